"""Settings: one object from environment and flags, and every mistake named at once."""

from __future__ import annotations

import dataclasses

import pytest

from shardpool.errors import ConfigurationError
from shardpool.settings import Settings

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_defaults_need_no_environment() -> None:
    settings = Settings.load({})
    assert (settings.layout, settings.world, settings.worker_grpc_port, settings.metadata_port) == (
        "whole",
        1,
        6555,
        5555,
    )


def test_a_flag_wins_over_the_environment() -> None:
    settings = Settings.load({"SHARDPOOL_HTTP_PORT": "1000"}, {"http_port": "2000", "model": None})
    assert settings.http_port == 2000


def test_the_first_name_that_is_set_wins() -> None:
    both = {"SHARDPOOL_REVISION": "a", "MX_MODEL_REVISION": "b"}
    assert Settings.load(both).revision == "a"
    assert Settings.load({"SHARDPOOL_REVISION": "", "MX_MODEL_REVISION": "b"}).revision == "b"


def test_every_mistake_is_named_in_one_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(
            {"SHARDPOOL_WORLD": "many", "SHARDPOOL_LAYOUT": "sliced", "MX_WORKER_GRPC_PORT": "70000"},
            {"seed_concurrency": "0"},
        )
    text = str(caught.value)
    for part in (
        "SHARDPOOL_WORLD='many' is not a number",
        "SHARDPOOL_LAYOUT='sliced' is not one of whole, striped, sharded",
        "MX_WORKER_GRPC_PORT='70000' is not between 1 and 65535",
        "--seed-concurrency='0' is not between 1 and 64",
    ):
        assert part in text
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("number", ["nan", "inf", "-1"])
def test_a_time_is_a_finite_positive_number(number: str) -> None:
    with pytest.raises(ConfigurationError, match="SHARDPOOL_STALL_SECONDS"):
        Settings.load({"SHARDPOOL_STALL_SECONDS": number})


@pytest.mark.parametrize(
    ("environment", "what"),
    [
        (
            {"SHARDPOOL_LAYOUT": "striped", "SHARDPOOL_WORLD": "2", "SHARDPOOL_LOCAL_RANKS": "4"},
            "do not fit a world of 2",
        ),
        (
            {
                "SHARDPOOL_LAYOUT": "striped",
                "SHARDPOOL_WORLD": "4",
                "SHARDPOOL_LOCAL_RANKS": "2",
                "SHARDPOOL_FIRST_RANK": "3",
            },
            "ranks 3 to 4",
        ),
        ({"SHARDPOOL_WORLD": "2"}, "layout whole is for a world of 1"),
        ({"SHARDPOOL_LAYOUT": "striped", "SHARDPOOL_WORLD": "8", "MX_WORKER_GRPC_PORT": "65530"}, "passes port 65535"),
        ({"SHARDPOOL_TLS_CERT": "a.pem"}, "a certificate, a key and a CA"),
        ({"SHARDPOOL_CONTENT_DIGEST": "ab"}, "64 lower-case hex digits"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(environment: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        Settings.load(environment)


@pytest.mark.parametrize(("index", "first"), [(0, 0), (1, 2), (2, 0), (3, 2)])
def test_the_first_rank_follows_from_the_pod_index(index: int, first: int) -> None:
    environment = {
        "SHARDPOOL_LAYOUT": "sharded",
        "SHARDPOOL_WORLD": "4",
        "SHARDPOOL_LOCAL_RANKS": "2",
        "SHARDPOOL_POD_INDEX": str(index),
    }
    assert Settings.load(environment).global_first_rank == first


@pytest.mark.parametrize("revision", [COMMIT, "sha256:" + "a" * 64])
def test_a_pinned_revision_is_accepted(revision: str) -> None:
    settings = Settings.load({"SHARDPOOL_MODEL": "acme/tiny", "SHARDPOOL_REVISION": revision})
    settings.require_model()
    assert settings.revision == revision


@pytest.mark.parametrize("revision", ["", "main", COMMIT[:-1], COMMIT.upper(), "sha256:" + "a" * 63])
def test_an_unpinned_revision_is_refused_unless_allowed(revision: str) -> None:
    environment = {"SHARDPOOL_MODEL": "acme/tiny", "SHARDPOOL_REVISION": revision}
    with pytest.raises(ConfigurationError, match="not pinned"):
        Settings.load(environment).require_model()
    Settings.load({**environment, "SHARDPOOL_ALLOW_UNPINNED": "true"}).require_model()


def test_every_setting_says_what_it_is_and_where_it_comes_from() -> None:
    names = [name for entry in dataclasses.fields(Settings) for name in entry.metadata["names"]]
    assert len(names) == len(set(names))
    assert all(entry.metadata["help"].endswith(".") for entry in dataclasses.fields(Settings))
