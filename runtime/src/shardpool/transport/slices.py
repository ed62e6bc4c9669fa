"""Cutting runs of memory into slices, the unit in which a NIXL receiver posts reads and sees progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from shardpool.transport.nixl_agent import Run

MOST_RUNS = 256
"""Of one slice: many small runs would make one slow to post."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Runs that are read by one handle, and their bytes together."""

    runs: list[Run]
    length: int


def cut(runs: deque[Run], size: int) -> Slice:
    """Take the next `size` bytes from the left, or fewer where they are many small runs."""
    taken: list[Run] = []
    length = 0
    while runs and length < size and len(taken) < MOST_RUNS:
        run = runs.popleft()
        here = min(run.length, size - length)
        if here < run.length:
            runs.appendleft(Run(run.local + here, run.remote + here, run.length - here, run.device))
        taken.append(Run(run.local, run.remote, here, run.device))
        length += here
    return Slice(taken, length)


def joined(runs: Iterable[Run]) -> list[Run]:
    """Runs of local memory to register: those that touch become one (their remote side is then meaningless)."""
    joined: list[Run] = []
    for run in runs:
        if joined and joined[-1].local + joined[-1].length == run.local:
            joined[-1] = Run(joined[-1].local, 0, joined[-1].length + run.length)
        else:
            joined.append(run)
    return joined
