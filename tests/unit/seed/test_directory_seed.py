"""Directories with something wrong in them."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from shardpool.errors import SeedError
from shardpool.seed.directory import DirectorySeed

COMMIT = "ab" * 20


def listed(path: Path, **choice: str) -> list[str]:
    return [file.path for file in DirectorySeed(path, **choice).files()]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    root = tmp_path / "plain"
    root.mkdir()
    (root / "config.json").write_text("{}")
    return root


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    cache = tmp_path / "hub" / "models--acme--tiny"
    (cache / "blobs").mkdir(parents=True)
    (cache / "refs" / "pr").mkdir(parents=True)
    for commit in (COMMIT, "cd" * 20):
        (cache / "snapshots" / commit).mkdir(parents=True)
        (cache / "blobs" / commit).write_text(commit)
        (cache / "snapshots" / commit / f"{commit[:2]}.txt").symlink_to(Path("../../blobs") / commit)
    (cache / "refs" / "main").write_text("cd" * 20 + "\n")
    (cache / "refs" / "pr" / "1").write_text(COMMIT)
    return cache


@pytest.mark.parametrize(("revision", "file"), [(COMMIT, "ab.txt"), ("main", "cd.txt"), ("pr/1", "ab.txt")])
def test_cache_opens_at_the_revision_by_commit_or_ref(cache: Path, revision: str, file: str) -> None:
    for path in (cache, cache.parent, cache.parent.parent):
        assert listed(path, model="acme/tiny", revision=revision) == [file]


@pytest.mark.parametrize("revision", ["", "ef" * 20, "other", "../../secret", "."])
def test_revision_that_a_cache_does_not_hold_is_refused_with_those_it_does(cache: Path, revision: str) -> None:
    (cache.parent / "secret").write_text(COMMIT)
    with pytest.raises(SeedError, match=COMMIT):
        listed(cache, revision=revision)


def test_cache_without_the_model_is_refused(cache: Path) -> None:
    for model in ("", "acme/huge"):
        with pytest.raises(SeedError, match="set SHARDPOOL_MODEL"):
            listed(cache.parent, model=model, revision=COMMIT)


def test_link_out_of_the_seed_is_refused_by_name(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (plain / "weights.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(SeedError, match=r"weights\.bin in .* leaves the seed"):
        listed(plain)


@pytest.mark.parametrize("target", ["../secret", "../plain-other/secret"])
def test_relative_link_out_of_the_seed_is_refused(plain: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "plain-other").mkdir()
    (plain / target).write_text("secret")
    (plain / "weights.bin").symlink_to(target)
    with pytest.raises(SeedError, match="leaves the seed"):
        listed(plain)


def test_directory_linked_from_outside_is_refused(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text("x")
    (plain / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(SeedError, match=r"sub in .* leaves the seed"):
        listed(plain)


def test_link_in_a_cache_to_anything_but_its_blobs_is_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    link = cache / "snapshots" / COMMIT / "weights.bin"
    for target in (tmp_path / "secret", "../../refs/main", f"../{'cd' * 20}/cd.txt/..", "../../../../secret"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        with pytest.raises(SeedError, match=r"weights\.bin in "):
            listed(cache, revision=COMMIT)


@pytest.mark.parametrize(
    "target", ["nothing", "../../blobs/nothing", "/nowhere/blobs/nothing", "/nowhere/blobs/..", "/nowhere/nothing"]
)
def test_dangling_link_is_refused_by_name(cache: Path, target: str) -> None:
    (cache / "snapshots" / COMMIT / "weights.bin").symlink_to(target)
    with pytest.raises(SeedError, match=r"weights\.bin in "):
        listed(cache, revision=COMMIT)


def test_links_inside_the_seed_are_followed(plain: Path) -> None:
    (plain / "real").mkdir()
    (plain / "real" / "x.json").write_text("x")
    (plain / "alias").symlink_to("real")
    (plain / "y.json").symlink_to("real/x.json")
    assert listed(plain) == ["alias/x.json", "config.json", "real/x.json", "y.json"]


def test_link_to_a_directory_above_is_refused(plain: Path) -> None:
    (plain / "sub").mkdir()
    (plain / "sub" / "x").write_text("x")
    (plain / "sub" / "up").symlink_to("../sub")
    with pytest.raises(SeedError, match="directory above"):
        listed(plain)
    (plain / "sub" / "up").unlink()
    (plain / "sub" / "up").symlink_to("..")
    with pytest.raises(SeedError, match=r"directory above|leaves the seed"):
        listed(plain)


def test_what_tools_leave_at_the_top_is_not_of_the_model(plain: Path) -> None:
    for name in (".git", ".cache", "lost+found", "..2026_11_29"):
        (plain / name).mkdir()
        (plain / name / "x").write_text("x")
    (plain / "sub" / ".cache").mkdir(parents=True)
    (plain / "sub" / ".cache" / "kept").write_text("x")
    (plain / ".gitattributes").write_text("x")
    assert listed(plain) == [".gitattributes", "config.json", "sub/.cache/kept"]


def test_special_file_is_refused_and_not_opened(plain: Path) -> None:
    os.mkfifo(plain / "pipe")
    with pytest.raises(SeedError, match="pipe is neither a file nor a directory"):
        listed(plain)


@pytest.mark.parametrize("what", ["missing", "a file", "empty"])
def test_place_that_holds_no_model_is_refused_with_a_hint(tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    if what == "a file":
        place.write_text("x")
    elif what == "empty":
        place.mkdir()
    with pytest.raises(SeedError, match="check that the volume is mounted") as failure:
        listed(place)
    assert str(place) in str(failure.value)
    assert not failure.value.transient


def test_file_replaced_or_cut_after_the_listing_is_refused(plain: Path) -> None:
    (plain / "weights.bin").write_bytes(b"x" * 5000)
    for change in (
        lambda path: path.write_bytes(b"y" * 5000),
        lambda path: os.truncate(path, 10),
        lambda path: (shutil.copy(path, path.with_suffix(".new")), os.replace(path.with_suffix(".new"), path)),
    ):
        seed = DirectorySeed(plain)
        seed.files()
        change(plain / "weights.bin")
        with pytest.raises(SeedError, match="has changed since it was listed"):
            seed.read_into("weights.bin", 0, memoryview(bytearray(10)))


def test_file_deleted_after_the_listing_is_an_error_with_its_path(plain: Path) -> None:
    seed = DirectorySeed(plain)
    seed.files()
    (plain / "config.json").unlink()
    with pytest.raises(SeedError, match=r"config\.json cannot be read: No such file"):
        seed.read_into("config.json", 0, memoryview(bytearray(1)))


def test_no_descriptor_stays_open(plain: Path) -> None:
    seed = DirectorySeed(plain)
    before = len(os.listdir("/proc/self/fd"))
    threads = [
        threading.Thread(target=seed.read_into, args=("config.json", 0, memoryview(bytearray(2)))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("path", ["", " "])
def test_seed_without_a_path_is_refused(path: str) -> None:
    with pytest.raises(SeedError, match="SHARDPOOL_SEED=directory:/path"):
        DirectorySeed(path).files()
