"""Real processes of ModelExpress 0.7.0 and of shardpool on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

HERE = Path(__file__).parent
PATIENCE = 120.0
ENVIRONMENT = {
    "UCX_TLS": "tcp,self,sm",
    "UCX_NET_DEVICES": "lo",
    "UCX_MODULES": "^efa",
    "UCX_LOG_LEVEL": "fatal",
    "MX_WORKER_HOST": "127.0.0.1",
}
MX_IDENTITY = {
    "mx_version": "0.7.0",
    "model_name": "some/Model",
    "backend_framework": 1,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "expert_parallel_size": 1,
    "dtype": "bfloat16",
    "revision": "a" * 40,
}


def run(script: str, *arguments: str) -> dict[str, Any]:
    """Run a script of this folder to its end; the JSON object that it printed last."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **ENVIRONMENT},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"{script} ended with {done.returncode}: {done.stdout[-2000:]} {done.stderr[-4000:]}"
    return json.loads(lines[-1])


class Source:
    """A process that serves until its standard input ends."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT, **environment},
        )

    def line(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        for text in self.child.stdout:
            if text.startswith("{"):
                return json.loads(text)
        raise AssertionError(f"the source ended with {self.child.wait(PATIENCE)}")

    def order(self, text: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(text + "\n")
        self.child.stdin.flush()

    def end(self, number: int = signal.SIGKILL) -> int:
        if self.child.poll() is None:
            self.child.send_signal(number)
        code = self.child.wait(PATIENCE)
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()
        return code


@pytest.fixture
def start() -> Iterator[Callable[..., Source]]:
    """Start sources that are gone when the test is."""
    started: list[Source] = []

    def begin(*command: str, **environment: str) -> Source:
        started.append(Source([sys.executable, *command], environment))
        return started[-1]

    yield begin
    for source in started:
        source.end()


@pytest.fixture
def modelexpress_source(start: Callable[..., Source]) -> tuple[Source, dict[str, Any]]:
    """A source of ModelExpress that has published, and what it said of itself."""
    source = start(str(HERE / "mx_source.py"), "0", "7", json.dumps(MX_IDENTITY))
    said = source.line()
    source.order("publish")
    assert source.line() == {"published": True}
    return source, said


def await_ready(http_port: int, source: Source) -> None:
    """Wait until a replica says that it is ready."""
    deadline = monotonic() + PATIENCE
    while monotonic() < deadline:
        assert source.child.poll() is None, f"shardpool ended with {source.child.returncode}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        sleep(0.1)
    raise AssertionError("the replica did not become ready")
