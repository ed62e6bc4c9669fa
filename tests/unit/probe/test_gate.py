"""A gate is ready when the engine is healthy and every local rank has published."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest

from shardpool.errors import ConfigurationError
from shardpool.probe.gate import Gate
from shardpool.settings import Settings

DEADLINE = 60.0


@pytest.fixture
def gate(health: Any, free_ports: Callable[[int], int]) -> Iterator[Callable[..., Gate]]:
    opened: list[Gate] = []

    def begin(port: int, **more: Any) -> Gate:
        values = {
            "world": 2,
            "layout": "sharded",
            "worker_grpc_port": port,
            "http_port": 0,
            "http_host": "127.0.0.1",
            "engine_health_url": health.url,
            **more,
        }
        opened.append(Gate(Settings(**values), poll_seconds=0.05))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


def _page(gate: Gate, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{gate.port}{path}", timeout=DEADLINE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _wait_for(gate: Gate, status: int, text: str = "") -> str:
    pause = threading.Event()
    for _ in range(int(DEADLINE / 0.05)):
        got, reason = _page(gate, "/readyz")
        if got == status and text in reason:
            return reason
        pause.wait(0.05)
    pytest.fail(f"/readyz stays at {got}: {reason}")


def test_ready_only_when_the_last_rank_has_published(
    worker: Callable[..., Any], gate: Callable[..., Gate], free_ports: Callable[[int], int]
) -> None:
    port = free_ports(2)
    ranks = [worker("127.0.0.1", port + rank, rank) for rank in range(2)]
    one = gate(port)
    assert (
        _wait_for(one, 503, "rank 1: not published yet").strip()
        == "rank 0: not published yet; rank 1: not published yet"
    )
    ranks[0].publish()
    assert _wait_for(one, 503, "rank 1").strip() in {
        "rank 1: not published yet",
        "rank 0: not published yet; rank 1: not published yet",
    }
    ranks[1].publish()
    assert ranks[0].source_id in _wait_for(one, 200)
    status = json.loads(_page(one, "/status")[1])
    assert [status["ranks"][rank]["state"] for rank in ("0", "1")] == ["yes", "yes"]
    metrics = _page(one, "/metrics")[1]
    assert 'shardpool_gate_rank_published{rank="1"} 1.0' in metrics
    assert "shardpool_gate_engine_healthy 1.0" in metrics


def test_an_unhealthy_engine_is_not_ready_and_comes_back(
    worker: Callable[..., Any], gate: Callable[..., Gate], free_ports: Callable[[int], int], health: Any
) -> None:
    port = free_ports(1)
    worker("127.0.0.1", port, 0).publish()
    one = gate(port, world=1)
    _wait_for(one, 200)
    health.status = HTTPStatus.INTERNAL_SERVER_ERROR
    assert "answers 500" in _wait_for(one, 503)
    assert _page(one, "/livez")[0] == 200
    health.status = HTTPStatus.OK
    _wait_for(one, 200)


def test_a_rank_that_goes_takes_readiness_with_it(
    worker: Callable[..., Any], gate: Callable[..., Gate], free_ports: Callable[[int], int]
) -> None:
    port = free_ports(1)
    rank = worker("127.0.0.1", port, 0)
    rank.publish()
    one = gate(port, world=1)
    _wait_for(one, 200)
    rank.server.stop()
    _wait_for(one, 503, "rank 0")


def test_ranks_are_named_by_their_global_number(
    worker: Callable[..., Any], gate: Callable[..., Gate], free_ports: Callable[[int], int]
) -> None:
    port = free_ports(2)
    for local in range(2):
        worker("127.0.0.1", port + local, 2 + local, world=4).publish()
    one = gate(port, world=4, local_ranks=2, pod_index=1)
    _wait_for(one, 200)
    assert set(json.loads(_page(one, "/status")[1])["ranks"]) == {"2", "3"}


def test_what_is_no_worker_is_explained(health: Any, gate: Callable[..., Gate]) -> None:
    one = gate(health.server.server_port, world=1)
    _wait_for(one, 503, "rank 0: ")


def test_whoever_leaves_says_not_ready_first(
    worker: Callable[..., Any], gate: Callable[..., Gate], free_ports: Callable[[int], int]
) -> None:
    port = free_ports(1)
    worker("127.0.0.1", port, 0).publish()
    one = gate(port, world=1)
    _wait_for(one, 200)
    stop = threading.Event()
    runner = threading.Thread(target=one.run, args=(stop,))
    runner.start()
    stop.set()
    runner.join(DEADLINE)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{one.port}/readyz", timeout=5)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000/health", "file:///etc/passwd"])
def test_a_health_url_is_asked_for(url: str) -> None:
    with pytest.raises(ConfigurationError, match="SHARDPOOL_ENGINE_HEALTH_URL"):
        Gate(Settings(engine_health_url=url, http_port=0))
