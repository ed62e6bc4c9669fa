"""Workers of the contract on loopback, as a gate, a waiting pod or a preflight meets them."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shardpool.identity import SourceIdentity
from shardpool.settings import Settings
from shardpool.source.publication import Publication, PublishedTensor
from shardpool.source.server import PoolServer
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Party, Phase

IDENTITY = SourceIdentity(
    mx_version="shardpool/1",
    model_name="some/Model",
    tensor_parallel_size=2,
    pipeline_parallel_size=1,
    revision="a" * 40,
    extra_parameters={"shardpool_layout": "striped"},
)


@pytest.fixture
def identity() -> SourceIdentity:
    """What the workers are of unless a test says otherwise."""
    return IDENTITY


class Worker:
    """A real server of one rank that publishes when told."""

    def __init__(self, host: str, port: int, rank: int, identity: SourceIdentity = IDENTITY, world: int = 2) -> None:
        self.host, self.rank, self.source_id = host, rank, identity.mx_source_id()
        self.state = ReplicaState(
            Party(secrets.token_hex(16), self.source_id, identity.canonical_json(), rank, world, "striped"),
            transports=("stream",),
        )
        self.server = PoolServer(Settings(bind_host=host), self.state, port=port)
        self.port = self.server.start()

    def publish(self, rank: int | None = None) -> None:
        tensors = [PublishedTensor("w", 4096, 8, "torch.float32")]
        rank = self.rank if rank is None else rank
        self.server.publish(Publication(self.source_id, rank, lambda: tensors))
        self.state.set_phase(Phase.READY)


@pytest.fixture
def worker() -> Iterator[Callable[..., Worker]]:
    """Start workers that are gone when the test is."""
    started: list[Worker] = []

    def begin(host: str, port: int, rank: int, **more: object) -> Worker:
        started.append(Worker(host, port, rank, **more))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for one in started:
        one.server.stop()


@pytest.fixture
def free_ports() -> Callable[[int], int]:
    """The first of so many ports in a row that are free on every loopback address."""

    def find(count: int) -> int:
        for first in range(30_100, 32_000, count):
            with ExitStack() as held:
                try:
                    for port in range(first, first + count):
                        held.enter_context(socket.create_server(("", port)))
                except OSError:
                    continue
                return first
        raise RuntimeError("no free ports in a row")

    return find


class Health:
    """An engine's health page."""

    def __init__(self) -> None:
        self.status = HTTPStatus.OK
        health = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(health.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/health"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@pytest.fixture
def health() -> Iterator[Health]:
    """A healthy engine."""
    page = Health()
    yield page
    page.close()
