"""The status server: four pages, bounded, on both address families."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from shardpool.errors import ConfigurationError
from shardpool.http import MOST_REQUESTS_AT_ONCE, StatusPages, StatusServer, Verdict
from shardpool.metrics import Sample, render


class _Pages:
    ready = Verdict(False, "rank 0 is filling")

    def server(self, host: str = "") -> StatusServer:
        metrics = [Sample("shardpool_bytes_total", 7, {"rank": "1", "origin": "peer"})]
        return StatusServer(
            host,
            0,
            StatusPages(
                lambda: self.ready,
                lambda: Verdict(True, "alive"),
                lambda: {"model": "acme/tiny"},
                lambda: render(metrics),
            ),
        )


@pytest.fixture
def pages() -> _Pages:
    return _Pages()


@pytest.fixture
def server(pages: _Pages) -> Iterator[StatusServer]:
    server = pages.server()
    yield server
    server.close()


def _get(server: StatusServer, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{server.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_readiness_is_503_with_the_reason_until_it_is_200(server: StatusServer, pages: _Pages) -> None:
    assert _get(server, "/readyz") == (503, "rank 0 is filling\n")
    pages.ready = Verdict(True, "ready")
    assert _get(server, "/readyz") == (200, "ready\n")


def test_the_pages_answer_on_ipv6_too(server: StatusServer) -> None:
    status, body = _get(server, "/status", "[::1]")
    assert status == 200
    assert json.loads(body) == {"model": "acme/tiny"}


def test_metrics_are_in_prometheus_text(server: StatusServer) -> None:
    status, body = _get(server, "/metrics?x=1")
    assert status == 200
    assert 'shardpool_bytes_total{origin="peer",rank="1"} 7.0' in body


def test_another_path_is_404(server: StatusServer) -> None:
    assert _get(server, "/etc/passwd")[0] == 404


def test_idle_connections_do_not_keep_others_out(server: StatusServer) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3 * MOST_REQUESTS_AT_ONCE)]
    try:
        for connection in idle:
            connection.close()
        assert _get(server, "/livez") == (200, "alive\n")
    finally:
        for connection in idle:
            connection.close()


def test_a_port_that_is_taken_is_refused_by_name(server: StatusServer, pages: _Pages) -> None:
    with pytest.raises(ConfigurationError, match=f"HTTP port {server.port}.*cannot be bound"):
        StatusServer("", server.port, StatusPages(lambda: pages.ready, lambda: pages.ready, dict, bytes))


def test_a_metric_that_is_not_documented_cannot_be_shown() -> None:
    with pytest.raises(KeyError):
        render([Sample("shardpool_surprise", 1, {"rank": "0"})])
