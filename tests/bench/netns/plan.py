"""What a run is to measure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from netns import limits

STARTS = ("simultaneous", "staggered")
ORDER_SEED = 6


@dataclass(frozen=True)
class Setting:
    """One play to be made: who, how many, how they start, what happens to the first source."""

    contender: str
    start: str
    receivers: int
    sources: int = 1
    fault: str = ""

    def offsets(self, copy_seconds: float) -> list[float]:
        """When each receiver is let go: at once, or spread evenly over the time of one copy."""
        step = copy_seconds / self.receivers if self.start == "staggered" else 0.0
        return [number * step for number in range(self.receivers)]

    def __str__(self) -> str:
        fault = f", one of {self.sources} sources {self.fault or 'not failing'}" if self.sources > 1 else ""
        return f"{self.contender}, {self.receivers} receivers, {self.start}{fault}"


@dataclass(frozen=True)
class Plan:
    """The whole run. `rate` in megabits a second, `size` in bytes, times in seconds."""

    receivers: Sequence[int]
    starts: Sequence[str]
    contenders: Sequence[str]
    faults: Sequence[str]
    count: int
    rate: float
    size: int
    work: Path
    output: Path
    time_limit: float
    keep_logs: Path | None

    @property
    def copy_seconds(self) -> float:
        """One copy over one link at best."""
        return limits.copy_seconds(self.size, self.rate)

    @property
    def hosts(self) -> int:
        """Sources (two where one fails), receivers, and one for services."""
        return max([*self.receivers, 2]) + 2

    def settings(self) -> list[Setting]:
        """Every setting once, in the order of the tables."""
        pool = [Setting(c, s, n) for s in self.starts for n in self.receivers for c in self.contenders]
        tax = [
            Setting(contender, "simultaneous", 1, 2, fault)
            for contender in self.contenders
            if contender in FAILING
            for fault in ("", *self.faults)
        ]
        return pool + (tax if self.faults else [])

    def rounds(self) -> Iterator[tuple[int, Setting]]:
        """Every setting `count` times; each round has all of them, shuffled, so that a change of the machine meets them alike."""
        shuffle = random.Random(ORDER_SEED)
        for number in range(self.count):
            settings = self.settings()
            shuffle.shuffle(settings)
            for setting in settings:
                yield number, setting


FAILING = (
    "star",
    "bittorrent",
    "warm",
)  # with one receiver and two complete sources, the others are the same as one of these
