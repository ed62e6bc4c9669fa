"""What a run is to measure."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from netns import limits

STARTS = ("simultaneous", "staggered")
ORDER_SEED = 6
FIXED_SECONDS = 1.5  # of a play, besides what is timed
RECEIVER_SECONDS = 0.7  # of a processor, until a receiver that is more than a plain program has come to its gate
SLOWED = "ten times slower"
STEADY = ("star", "whole")  # their plays differ by less than a hundredth


@dataclass(frozen=True)
class Setting:
    """One play to be made: who, how many, how they start, what happens to the first source."""

    contender: str
    start: str
    receivers: int
    sources: int = 1
    fault: str = ""

    @property
    def light(self) -> bool:
        """Leaves the processors nearly idle, so that it can be played beside others: plain HTTP, and one or two receivers."""
        return self.contender in STEADY or self.receivers <= 2

    @property
    def expected_copies(self) -> float:
        """How long it takes, roughly, in copies' time."""
        if self.contender == "star":  # it waits for a source that is slow, and gives up one that is silent
            return self.receivers + (4.5 if self.fault == SLOWED else 1.0 if self.fault else 0.0)
        if self.contender == "whole":
            return limits.whole_limit(self.receivers)
        return 1.5 + (1.0 if self.start == "staggered" else 0.0) + (1.0 if self.fault else 0.0)

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
    steady_count: int
    bittorrent_count: int
    staggered_count: int
    lanes: int
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

    def plays(self, setting: Setting) -> int:
        """How often a setting is played."""
        bounds = [self.count]
        if setting.contender in STEADY:
            bounds.append(self.steady_count)
        if setting.contender == "bittorrent":
            bounds.append(self.bittorrent_count)
        if setting.start == "staggered":
            bounds.append(self.staggered_count)
        return min(bounds)

    def shares(self, settings: Sequence[Setting]) -> tuple[Sequence[Setting], Sequence[Setting]]:
        """What of a round is played beside each other, the longest first so that the lanes end together; and what is played alone, in order."""
        if self.lanes == 1:
            return [], settings
        light = [setting for setting in settings if setting.light]
        light.sort(key=lambda setting: setting.expected_copies, reverse=True)
        return light, [setting for setting in settings if not setting.light]

    @property
    def expected_seconds(self) -> float:
        """How long the run takes, roughly."""
        return sum(
            makespan(map(self._expected, beside), self.lanes) + sum(map(self._expected, alone))
            for beside, alone in (self.shares(settings) for _, settings in self.rounds())
        )

    def _expected(self, setting: Setting) -> float:
        start_up = FIXED_SECONDS + RECEIVER_SECONDS * setting.receivers * (setting.contender not in STEADY)
        return start_up + setting.expected_copies * self.copy_seconds

    def rounds(self) -> Iterator[tuple[int, Sequence[Setting]]]:
        """Every setting as often as it is to be played; each round is shuffled, so that a change of the machine meets all alike."""
        shuffle = random.Random(ORDER_SEED)
        for number in range(self.count):
            settings = [setting for setting in self.settings() if number < self.plays(setting)]
            shuffle.shuffle(settings)
            yield number, settings


def makespan(durations: Iterable[float], lanes: int) -> float:
    """How long pieces of work take when each of the lanes takes the next one as soon as it is free."""
    free = [0.0] * lanes
    for duration in durations:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


# With one receiver and two complete sources, the others are the same as one of these.
FAILING = ("star", "bittorrent", "warm")
