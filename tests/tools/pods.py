"""Real `shardpool` processes on loopback, for tests: each pod a process of its own, waited for by what it logs."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MODEL = "acme/tiny"
REVISION = "0123456789abcdef0123456789abcdef01234567"
DEADLINE = 60.0
TERMINAL = "\n  "


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports that are free on every loopback address."""
    for _ in range(100):
        with contextlib.ExitStack() as held:
            first = held.enter_context(socket.create_server(("", 0))).getsockname()[1]
            if first + count > 65535:
                continue
            with contextlib.suppress(OSError):
                for port in range(first + 1, first + count):
                    held.enter_context(socket.create_server(("", port)))
                return int(first)
    raise RuntimeError(f"no {count} consecutive free ports")


class Pod:
    """One `shardpool serve` or `pull`. Arguments are settings: `seed="none"` becomes `--seed none`."""

    def __init__(self, directory: Path, command: str = "serve", host: str = "127.0.0.1", **settings: object) -> None:
        self.directory = directory
        self.host = host
        self.command = command
        self.settings: dict[str, object] = {
            "model": MODEL,
            "revision": REVISION,
            "directory": directory,
            "transport": "stream",
            "bind-host": host,
            "deadline-seconds": DEADLINE,
        }
        if command == "serve":
            self.http_port = free_ports(1)
            self.settings |= {"http-host": host, "http-port": self.http_port, "worker-host": host, "drain-seconds": 5}
        self.settings |= {name.replace("_", "-"): value for name, value in settings.items()}
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Pod:
        """Start it; a second time after it ended."""
        self.close()
        self.lines = []
        flags = [part for name, value in self.settings.items() for part in (f"--{name}", str(value))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "shardpool", self.command, *flags, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._said:
                self.lines.append(line.rstrip())
                self._said.notify_all()
        with self._said:
            self.lines.append("<end>")
            self._said.notify_all()

    @property
    def log(self) -> str:
        """All that it logged."""
        return TERMINAL.join(["", *self.lines])

    def wait_for(self, pattern: str, timeout: float = DEADLINE, since: int = 0) -> str:
        """Wait for a log line that matches; it. Fails when the process ends or the time is over without one."""

        def found() -> str | None:
            return next((line for line in self.lines[since:] if re.search(pattern, line)), None)

        with self._said:
            self._said.wait_for(lambda: found() is not None or "<end>" in self.lines[since:], timeout)
            line = found()
        assert line is not None, f"{pattern!r} was not logged:{self.log}"
        return line

    def wait_ready(self) -> Pod:
        """Wait until every rank serves."""
        self.wait_for(r"ready: ")
        return self

    def wait_until(self, condition: Any, timeout: float = DEADLINE) -> Any:
        """Look at /status until `condition(status)` is true; its value."""
        until = time.monotonic() + timeout
        pause = threading.Event()
        while time.monotonic() < until:
            status = self.status()
            value = condition(status) if status else None
            if value:
                return value
            pause.wait(0.02)
        raise AssertionError(f"the condition did not come true; {self.status()}{self.log}")

    def get(self, path: str) -> tuple[int, str]:
        """Status code and body of one of its pages; (0, "") when it does not answer."""
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        body = self.get("/status")[1]
        return dict(json.loads(body)) if body else {}

    def metric(self, name: str) -> dict[str, float]:
        """Label text to value of every sample of a metric."""
        body = self.get("/metrics")[1]
        found = re.findall(rf"^{name}(?:\{{(.*)\}})? ([0-9.e+]+)$", body, re.M)
        return {labels: float(value) for labels, value in found}

    def bytes_by_origin(self) -> dict[str, int]:
        """Verified bytes of all ranks: `peer`, `seed`, `resume`."""
        totals = {"peer": 0, "seed": 0, "resume": 0}
        for rank in self.status()["ranks"]:
            for origin, count in rank["load"]["bytes_from"].items():
                totals[origin] += count
        return totals

    def rank_pids(self) -> list[int]:
        return [rank["pid"] for rank in self.status()["ranks"]]

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def send_to_another_thread(self, number: int) -> None:
        """A signal to the node that a thread other than the main one takes, as the kernel may choose."""
        assert self._process is not None
        pid = self._process.pid
        thread = next(int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.tgkill(pid, thread, number):
            raise OSError(ctypes.get_errno(), "tgkill")

    def kill(self) -> None:
        """SIGKILL to the node; its ranks end with it."""
        self.send(signal.SIGKILL)
        self.wait()

    def wait(self, timeout: float = DEADLINE) -> int:
        """Wait for the end; the exit code."""
        assert self._process is not None
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout:g} s:{self.log}") from None

    def output(self) -> str:
        """What it printed, to the end."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.read()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        if self._reader is not None:
            self._reader.join(10)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def pods() -> Iterator[Any]:
    """A maker of pods; they end with the block, whatever happens."""
    made: list[Pod] = []

    def make(*arguments: Any, **settings: Any) -> Pod:
        made.append(Pod(*arguments, **settings))
        return made[-1]

    try:
        yield make
    finally:
        for pod in made:
            pod.close()
