"""What the bench needs of the machine: root, tools, one run at a time; and what the machine was doing meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

TOOLS = ("ip", "tc", "iperf3", "nginx", "aria2c")
LOCK = "/run/lock/shardpool-bench-swarm.lock"
COMMAND_SECONDS = 30.0


class BenchError(Exception):
    """The bench cannot go on; the text says what to do."""


class Stopped(Exception):
    """The run ends for a reason outside this play: an error in another lane, or Ctrl-C."""


def require_machine() -> None:
    """Raise BenchError unless this process may make namespaces and every tool is there."""
    if os.geteuid() != 0:
        raise BenchError("bench-swarm makes network namespaces and shapes links, which takes root: run it with sudo")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise BenchError(
            f"not found: {', '.join(missing)}; on Debian: apt-get install iproute2 iperf3 nginx-light aria2"
        )


@contextlib.contextmanager
def only_run() -> Iterator[None]:
    """Hold the machine's lock of this bench: two runs would measure each other."""
    with open(LOCK, "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BenchError(f"another bench-swarm runs on this machine (it holds {LOCK}): wait for it") from None
        yield


def command(*arguments: str, text: str | None = None) -> str:
    """Run a command to its end and return what it printed. Raises BenchError with its own words when it fails."""
    done = subprocess.run(
        arguments,
        input=text,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
        start_new_session=True,  # Ctrl-C in a terminal is for the bench alone
    )
    if done.returncode != 0:
        raise BenchError(f"{' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


@dataclass(frozen=True)
class CpuTimes:
    """The machine's processor time since boot, in seconds over all cores, and the time that some task waited for a core."""

    busy: float
    total: float
    waiting: float

    @classmethod
    def now(cls) -> CpuTimes:
        tick = os.sysconf("SC_CLK_TCK")
        with open("/proc/stat", encoding="ascii") as stat:
            fields = [int(value) / tick for value in stat.readline().split()[1:9]]
        waiting = 0.0
        with contextlib.suppress(OSError), open("/proc/pressure/cpu", encoding="ascii") as pressure:
            waiting = int(pressure.readline().rsplit("total=", 1)[1]) / 1e6
        return cls(sum(fields) - fields[3] - fields[4], sum(fields), waiting)

    def busy_share(self, later: CpuTimes) -> float:
        """Share of all cores in use between this moment and a later one."""
        return (later.busy - self.busy) / max(later.total - self.total, 1e-9)


def process_seconds(pid: int, *, children: bool = False) -> float:
    """Processor time that a process has used, in seconds; 0 when it has gone. With `children`, also of those that it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")


def describe() -> dict[str, object]:
    """The machine and the versions of what was measured."""
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "aria2": _version("aria2c", "--version"),
        "nginx": _version("nginx", "-v"),
        "iperf3": _version("iperf3", "--version"),
    }


def _version(*arguments: str) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    found = re.search(r"\d+\.\d+[\d.]*", done.stdout + done.stderr)
    return found[0] if found else "unknown"
