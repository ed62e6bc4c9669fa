"""Sources and links that end with their test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pool_peers import PATIENCE, Conversation, Recorder, Shard, Source, make_party, make_shard

from shardpool.discovery.base import Endpoint
from shardpool.settings import Settings
from shardpool.swarm.state import Party
from shardpool.transport.grpc_link import GrpcTransport
from shardpool.transport.stream import StreamMover


@pytest.fixture
def shard() -> Shard:
    return make_shard()


@pytest.fixture
def start_source() -> Iterator[Callable[..., Source]]:
    """Start sources; they are stopped afterwards."""
    started: list[Source] = []

    def start(*arguments: Any, **options: Any) -> Source:
        started.append(Source(*arguments, **options))
        return started[-1]

    yield start
    for source in started:
        source.server.stop()


@pytest.fixture
def connect() -> Iterator[Callable[..., Conversation]]:
    """Open links; they are closed afterwards."""
    transports: list[GrpcTransport] = []

    def open_link(endpoint: Endpoint, caller: Party | None = None, movers: Any = None, **options: Any) -> Conversation:
        transport = GrpcTransport(Settings(**options), movers or [StreamMover()])
        transports.append(transport)
        told = Recorder()
        return Conversation(transport.connect(endpoint, caller or make_party(), told), told, transport)

    yield open_link
    for transport in transports:
        transport.close()


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    """The test ends with the threads that it began with."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + PATIENCE
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(max(deadline - time.monotonic(), 0))
    alive = [thread.name for thread in left if thread.is_alive()]
    assert not alive, f"threads left: {alive}"
