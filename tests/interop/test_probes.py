"""The gate and the wait against a worker server of ModelExpress itself."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import ENVIRONMENT, HERE, MX_IDENTITY, PATIENCE, Source, await_ready
from ports import free_port


@pytest.fixture
def health_url() -> Iterator[str]:
    """A healthy engine's health page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/health"
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE)


def _reason(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""


def test_a_gate_turns_ready_when_modelexpress_publishes(start: Callable[..., Source], health_url: str) -> None:
    worker = start(str(HERE / "mx_source.py"), "0", "7", json.dumps(MX_IDENTITY))
    said, http = worker.line(), free_port()
    gate = start(
        "-m",
        "shardpool",
        "gate",
        MX_WORKER_GRPC_PORT=str(said["port"]),
        SHARDPOOL_ENGINE_HEALTH_URL=health_url,
        SHARDPOOL_HTTP_HOST="127.0.0.1",
        SHARDPOOL_HTTP_PORT=str(http),
    )
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.1)):
        if "not published yet" in _reason(http):
            break
        pause.wait(0.1)
    assert _reason(http).strip() == "rank 0: not published yet"
    worker.order("publish")
    await_ready(http, gate)
    assert said["mx_source_id"] in _reason(http)


def test_a_wait_ends_when_a_worker_of_modelexpress_has_published(start: Callable[..., Source]) -> None:
    worker = start(str(HERE / "mx_source.py"), "0", "7", json.dumps(MX_IDENTITY))
    said = worker.line()
    worker.order("publish")
    worker.line()
    done = subprocess.run(
        [sys.executable, "-m", "shardpool", "wait"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={
            **ENVIRONMENT,
            "PATH": "/usr/bin:/bin",
            "HOME": "/",
            "PYTHONPATH": ":".join(sys.path),
            "MX_WORKER_HOST": "127.0.0.2",
            "SHARDPOOL_BIND_HOST": "127.0.0.2",
            "MX_WORKER_GRPC_PORT": str(free_port()),
            "SHARDPOOL_PEERS": f"127.0.0.1:{said['port']}",
            "SHARDPOOL_WAIT_FOR_PEERS_SECONDS": "90",
        },
        check=False,
    )
    assert done.returncode == 0
    assert "go on (ready)" in done.stderr
