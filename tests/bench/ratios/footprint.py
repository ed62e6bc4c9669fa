"""What processes use, from /proc."""

from __future__ import annotations

import os
import re
import resource
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Resident:
    """Resident bytes of a set of processes: `shard` of files below the model directory, `rest` of everything else.

    A file's pages that several of the processes have mapped are counted once.
    """

    shard: int
    rest: int


def resident(pids: Iterable[int], directory: Path) -> Resident:
    """Resident bytes of processes that live now."""
    below = str(directory.parent)
    anonymous = 0
    files: Counter[str] = Counter()
    for pid in pids:
        own: Counter[str] = Counter()
        path = ""
        try:
            lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        sizes: dict[str, int] = {}
        for line in lines:
            if mapping := _MAPPING.match(line):
                path = mapping[1]
                continue
            key, _, value = line.partition(":")
            if key in {"Rss", "Anonymous"}:
                sizes[key] = int(value.split()[0]) * 1024
            if key == "Anonymous":
                anonymous += sizes["Anonymous"]
                own[path] += sizes["Rss"] - sizes["Anonymous"]
        files |= own  # the larger of both
    shard = sum(size for path, size in files.items() if path.startswith(below))
    return Resident(shard, anonymous + sum(files.values()) - shard)


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time that processes have used so far."""
    total = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def children_cpu_seconds() -> float:
    """Processor time of this process's children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def child_processes(pid: int) -> list[int]:
    """A process and its children: a web server's workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def load_average() -> float:
    """Of the machine, over the last minute."""
    return os.getloadavg()[0]
