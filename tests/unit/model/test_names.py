"""Paths are data until they are known to be paths of a model."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpool.model.names import path_fault, shown, tree_fault


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "a/b/c.json",
        ".gitattributes",
        "a.b/..c/d...",
        "模型/ü.bin",
        "a b",
        "model:v1",
        "nul",
        ".shardpool-notes",
        "x.shardpool",
    ],
)
def test_paths_that_models_have(path: str) -> None:
    assert path_fault(path, 1024) == ""


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "empty"),
        ("/", "absolute"),
        ("/a", "absolute"),
        ("C:a", "absolute"),
        ("c:/a", "absolute"),
        ("..", "'..'"),
        ("../../x", "'..'"),
        ("a/../b", "'..'"),
        ("a/./b", "'.'"),
        ("a//b", "''"),
        ("a/", "''"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\x7fb", "control"),
        ("a\\b", "backslash"),
        ("a\ud800", "surrogate"),
        ("ä" * 128, "longer than 255"),
        ("a/" * 600 + "a", "longer than 1024"),
        (".model.shardpool/marker", "reserved"),
        ("a/.X.ShardPool", "reserved"),
    ],
)
def test_paths_that_are_refused(path: str, said: str) -> None:
    assert said in path_fault(path, 1024)


@given(st.text(st.sampled_from("ab./\\:\0C"), max_size=8))
def test_a_fit_path_stays_in_its_directory_and_has_one_spelling(path: str) -> None:
    if not path_fault(path, 1024):
        assert posixpath.normpath(posixpath.join("/top", path)) == f"/top/{path}"


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["a", "a"], "twice"),
        (["a", "A"], "case only"),
        (["straße", "STRASSE"], "case only"),
        (["a/x", "A/y"], "directories"),
        (["a", "a/b"], "both as a file and as a directory"),
        (["A", "a/b/c"], "both as a file and as a directory"),
    ],
)
def test_files_that_cannot_lie_side_by_side(paths: list[str], said: str) -> None:
    assert said in tree_fault(paths)
    assert said in tree_fault(reversed(paths))


def test_files_that_can() -> None:
    assert tree_fault(["a", "b/a", "b/c/a", "d"]) == ""


def test_a_name_in_an_error_is_short_and_plain() -> None:
    assert shown("a\n\x1b[31m模") == "'a\\n\\x1b[31m\\u6a21'"
    assert len(shown("x" * 10**6)) < 200
