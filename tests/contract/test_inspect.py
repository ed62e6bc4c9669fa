"""`shardpool inspect` against real sources."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result
from pool_peers import IDENTITY, SOURCE_ID, Shard, Source

from shardpool.cli.inspect import inspect
from shardpool.errors import NoSourceError
from shardpool.model.holdings import Holdings

Start = Callable[..., Source]


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(inspect, arguments, standalone_mode=False)


def test_a_list_of_peers_is_shown_with_what_each_holds(shard: Shard, start_source: Start) -> None:
    full, filling = start_source(shard, max_readers=3), start_source(shard, held=[0, 7])
    filling.state.set_claims(frozenset({1, 2}))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"127.0.0.1:{listener.getsockname()[1]}"
    result = _run("--json", f"{full.endpoint.target},{filling.endpoint.target},{closed}")
    assert result.exit_code == 0, result.output
    peers = {peer["endpoint"]: peer for peer in json.loads(result.stdout)["peers"]}
    first, second = peers[full.endpoint.target], peers[filling.endpoint.target]
    assert (first["phase"], first["pieces_held"], first["held_bytes"]) == ("ready", 8, len(shard.data))
    assert (second["phase"], second["pieces_held"], second["pieces_claimed"]) == ("filling", 2, 2)
    assert second["held_bytes"] == len(shard.piece(0)) + len(shard.piece(7))
    assert first["catalog_digest"] == second["catalog_digest"] == shard.catalog.digest.hex()
    holdings = Holdings(8, shard.catalog.digest)
    for piece in range(8):
        holdings.add(piece, shard.digest(piece))
    assert first["content_digest"] == holdings.content_digest().hex()
    assert second["content_digest"] == ""
    assert (first["mx_source_id"], first["identity"]) == (SOURCE_ID, json.loads(IDENTITY))
    assert (first["max_readers"], first["transports"]) == (3, ["stream"])
    assert "refused" in peers[closed]["problem"]


def test_people_get_a_table(shard: Shard, start_source: Start) -> None:
    source = start_source(shard, held=[3])
    result = _run(source.endpoint.target)
    assert result.exit_code == 0
    for text in (source.endpoint.target, "filling", "1/8", "0/1", "stream", SOURCE_ID, shard.catalog.digest.hex()):
        assert text in result.output


def test_a_source_without_an_outline_is_shown(start_source: Start) -> None:
    source = start_source(None)
    (peer,) = json.loads(_run("--json", source.endpoint.target).stdout)["peers"]
    assert (peer["pieces"], peer["pieces_held"], peer["catalog_digest"]) == (0, 0, "")


def test_nobody_there_is_an_error_that_names_each_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"127.0.0.1:{listener.getsockname()[1]}"
    result = _run(closed)
    assert isinstance(result.exception, NoSourceError)
    assert closed in str(result.exception)
    assert result.exception.exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "port"), [(("--rank", "3"), 6558), (("--rank", "3", "--local-ranks", "2"), 6556)]
)
def test_the_port_follows_the_rank_where_none_is_given(arguments: tuple[str, ...], port: int) -> None:
    result = _run(*arguments, "127.0.0.1")
    assert f"127.0.0.1:{port}" in f"{result.exception} {result.output}"


def test_a_pods_own_topology_does_not_get_in_the_way(
    monkeypatch: pytest.MonkeyPatch, shard: Shard, start_source: Start
) -> None:
    for name, value in {"SHARDPOOL_WORLD": "4", "SHARDPOOL_LOCAL_RANKS": "4", "SHARDPOOL_FIRST_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert _run(start_source(shard).endpoint.target).exit_code == 0
    assert "127.0.0.1:6556" in str(_run("--rank", "5", "127.0.0.1").exception)
