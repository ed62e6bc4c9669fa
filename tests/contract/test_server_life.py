"""A source's beginning and end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pool_peers import PATIENCE, Conversation, Shard, Source, make_shard

from shardpool.errors import ConfigurationError, TransportError
from shardpool.settings import Settings
from shardpool.source.server import PoolServer

Start = Callable[..., Source]


def test_a_port_in_use_is_refused_by_name(shard: Shard, start_source: Start) -> None:
    source = start_source(shard)
    second = PoolServer(source.settings, source.state, shard, port=source.server.port)
    with pytest.raises(ConfigurationError, match=f"127.0.0.1:{source.server.port} cannot be bound"):
        second.start()
    second.stop()


def test_unreadable_certificates_are_refused_by_name(shard: Shard, start_source: Start) -> None:
    settings = Settings(bind_host="127.0.0.1", tls_cert="/nowhere/cert", tls_key="/nowhere/key", tls_ca="/nowhere/ca")
    server = PoolServer(settings, start_source(shard).state, shard, port=0)
    with pytest.raises(ConfigurationError, match="/nowhere/cert"):
        server.start()
    server.stop()


def test_the_port_is_the_base_and_the_local_rank(shard: Shard, start_source: Start) -> None:
    free = start_source(shard).server.port
    base = free - 3 if free > 5000 else free
    settings = Settings(bind_host="127.0.0.1", worker_grpc_port=base)
    server = PoolServer(settings, start_source(shard).state, shard, local_rank=free - base)
    with pytest.raises(ConfigurationError, match=str(free)):
        server.start()
    server.stop()


def test_stopping_lets_go_of_a_reader_that_waits_for_a_low_cap(
    start_source: Start, connect: Callable[..., Conversation], no_thread_left: None
) -> None:
    shard = make_shard(pieces=2, piece_size=1 << 22)
    source = start_source(shard, egress_limit_mbps=0.001)
    talk = connect(source.endpoint)
    talk.told.next("opened")
    for piece in range(2):
        talk.link.request(piece, shard.destination(piece)[1])
    assert talk.told.first_byte.wait(PATIENCE)
    source.server.stop()
    source.server.stop()
    assert isinstance(talk.told.next("closed")[1], TransportError)
    talk.transport.close()


def test_a_source_that_was_never_started_stops(shard: Shard, start_source: Start) -> None:
    PoolServer(Settings(), start_source(shard).state, shard, port=0).stop()
