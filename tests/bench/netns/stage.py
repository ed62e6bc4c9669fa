"""A stage on which one contender plays once: its hosts, its processes, its gates, its clock."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netns.machine import BenchError, Stopped, process_seconds
from netns.network import Host, Network
from netns.payload import Payload

LOOK_SECONDS = 0.01
START_SECONDS = 90.0


@dataclass
class Process:
    """A process of a host."""

    host: Host
    popen: subprocess.Popen[bytes]
    log: Path
    seconds: float = 0.0  # processor time, once it has ended

    @property
    def code(self) -> int | None:
        """Exit code, None while it runs."""
        if self.popen.returncode is None and os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            # Its times go when it is waited for.
            self.seconds = process_seconds(self.popen.pid, children=True)
        return self.popen.poll()

    def wait(self) -> int:
        """Wait for its end; its exit code."""
        if self.popen.returncode is None:
            os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOWAIT)
        code = self.code
        assert code is not None
        return code

    def tail(self, length: int = 1500) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-length:]


@dataclass
class Gate:
    """Where a process waits, all start-up done, until it is let go: a FIFO that it reads a line of."""

    path: Path
    _descriptor: int = field(default=-1, repr=False)

    def __post_init__(self) -> None:
        os.mkfifo(self.path)
        self._descriptor = os.open(self.path, os.O_RDWR)

    @property
    def mark(self) -> Path:
        """The file that the process makes when it has come to the gate."""
        return self.path.with_suffix(".here")

    @property
    def reached(self) -> bool:
        """Whether the process waits here."""
        return self.mark.exists()

    def open(self) -> None:
        """Let it go."""
        os.write(self._descriptor, b"\n")

    def close(self) -> None:
        """Free the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Stage:
    """Use as a context manager; leaving ends the processes, mends the links and removes the files.

    When `stop` is set, whoever plays here gets `Stopped` at the next look.
    """

    def __init__(
        self, network: Network, payload: Payload, folder: Path, sources: int, receivers: int, stop: threading.Event
    ) -> None:
        self.network = network
        self.payload = payload
        self.folder = folder
        self.sources: Sequence[Host] = network.hosts[:sources]
        self.receivers: Sequence[Host] = network.hosts[sources : sources + receivers]
        self.services = network.hosts[-1]  # for what a contender needs besides, such as a tracker
        self.processes: list[Process] = []
        self.failed: Host | None = None  # the one that was made to fail
        self._failed_seconds = 0.0
        self._stop = stop
        self._gates: dict[int, Gate] = {}

    def __enter__(self) -> Stage:
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.popen.kill()  # also those that have not come to their namespace yet
        self.network.end_processes()
        self.network.mend()
        for process in self.processes:
            process.wait()
        for gate in self._gates.values():
            gate.close()
        remove_tree(self.folder)

    def home(self, host: Host) -> Path:
        """A host's own folder."""
        home = self.folder / f"host{host.number}"
        home.mkdir(exist_ok=True)
        return home

    def copy(self, host: Host) -> Path:
        """Where a receiver's copy appears when it is complete."""
        return self.home(host) / "model"

    def gate(self, host: Host) -> Gate:
        """The gate before a receiver's process."""
        if host.number not in self._gates:
            self._gates[host.number] = Gate(self.home(host) / "gate.fifo")
        return self._gates[host.number]

    def spawn(
        self, host: Host, arguments: Sequence[str], name: str, environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start a process on a host; its output goes to `NAME.log` in the host's folder."""
        self._raise_stopped()
        log = self.home(host) / f"{name}.log"
        with log.open("ab") as output:
            popen = subprocess.Popen(
                ["ip", "netns", "exec", host.namespace, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.home(host),
                env={**os.environ, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
                start_new_session=True,
            )
        process = Process(host, popen, log)
        self.processes.append(process)
        return process

    def spawn_gated(self, host: Host, arguments: Sequence[str], name: str) -> Process:
        """Start a process that becomes `arguments` when its gate opens."""
        gate = self.gate(host)
        script = ': > "$1"; read -r line < "$2"; shift 2; exec "$@"'
        return self.spawn(host, ["sh", "-c", script, "sh", str(gate.mark), str(gate.path), *arguments], name)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
        """Wait for a condition. Raises BenchError when it takes too long or a process has failed."""
        until = time.monotonic() + seconds
        while not condition():
            self.raise_failures()
            if time.monotonic() > until:
                tails = "\n".join(f"--- host {p.host.number}\n{p.tail(600)}" for p in self.processes)
                raise BenchError(f"after {seconds:.0f} s still waiting for {what}\n{tails}")
            time.sleep(LOOK_SECONDS)

    def _raise_stopped(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def raise_failures(self) -> None:
        """Raise BenchError when a process has ended with an error, unless its host was made to fail; Stopped when the run ends."""
        self._raise_stopped()
        for process in self.processes:
            if process.code not in (None, 0) and process.host is not self.failed:
                raise BenchError(
                    f"host {process.host.number}: {' '.join(map(str, process.popen.args[4:7]))} ended with exit code "  # type: ignore[index]
                    f"{process.code}:\n{process.tail()}"
                )

    def wait_gates(self) -> None:
        """Wait until every receiver has come to its gate."""
        self.wait(lambda: all(self.gate(host).reached for host in self.receivers), "receivers to start")

    def fail(self, host: Host, how: Callable[[Network, Host], None]) -> None:
        """Make a host fail; from here on its processes may end as they will."""
        self._failed_seconds = self._cpu_seconds([host])
        self.failed = host
        how(self.network, host)

    def cpu_seconds(self) -> float:
        """Processor time of this stage's processes: of those that live, and of those that were waited for."""
        seconds = self._cpu_seconds([host for host in self.network.hosts if host is not self.failed])
        if self.failed is not None:  # of processes that were killed at once nobody has waited for the children
            seconds += max(self._failed_seconds, self._cpu_seconds([self.failed]))
        return seconds

    def _cpu_seconds(self, hosts: Sequence[Host]) -> float:
        own = [process for process in self.processes if process.host in hosts]
        ended = {process.popen.pid: process.seconds for process in own if process.code is not None}
        # A process that is about to end has left its namespace already.
        living = {*self.network.pids(*hosts), *(process.popen.pid for process in own)} - ended.keys()
        return sum(ended.values()) + sum(process_seconds(pid, children=True) for pid in living)


def python() -> str:
    """The interpreter that runs the bench, for its processes on the hosts."""
    return sys.executable


def remove_tree(folder: Path) -> None:
    """Remove a folder, also where directories are read-only."""
    for root, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(root, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
