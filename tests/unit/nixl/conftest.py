"""Both ends of NIXL transfers as real processes, over TCP on loopback and over shared memory."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PEER = Path(__file__).with_name("nixl_peer.py")
PATIENCE = 60.0


class Process:
    """A peer process: orders in, events out."""

    def __init__(self, role: str, *arguments: str, **environment: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, str(PEER), role, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "UCX_LOG_LEVEL": "fatal", **environment},
        )
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.seen: list[dict[str, Any]] = []
        self._unclaimed: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.events.put(json.loads(line))
        self.events.put({"event": "end of output"})

    def order(self, **order: Any) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(order) + "\n")
        self.child.stdin.flush()

    def expect(self, *events: str) -> dict[str, Any]:
        """The first event of one of these kinds that was not expected before."""
        for got in self._unclaimed:
            if got["event"] in events:
                self._unclaimed.remove(got)
                return got
        while True:
            try:
                got = self.events.get(timeout=PATIENCE)
            except queue.Empty:
                pytest.fail(f"no {' or '.join(events)} came; seen: {self.seen[-5:]}")
            self.seen.append(got)
            if got["event"] in events:
                return got
            if got["event"] == "end of output":
                pytest.fail(f"the process ended ({self.child.wait(PATIENCE)}); seen: {self.seen[-5:]}")
            self._unclaimed.append(got)

    def signal(self, number: int) -> None:
        os.kill(self.child.pid, number)

    def finish(self) -> int:
        """Close its standard input and wait for its end; the exit code."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        return self.child.wait(PATIENCE)

    def end(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.child.wait(PATIENCE)
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None and not pipe.closed and pipe is not self.child.stdout:
                pipe.close()
        self._reader.join(PATIENCE)


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Start peer processes that are gone when the test is."""
    started: list[Process] = []

    def begin(role: str, *arguments: Any, **environment: str) -> Process:
        process = Process(role, *(str(argument) for argument in arguments), **environment)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.end()
