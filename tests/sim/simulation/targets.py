"""What a pool is to reach, and how its control traffic grows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulation.parts import CHURN, COLD, MANY, WARM
from simulation.results import Results

TIME, STORAGE = 1.5, 1.1  # of 1,000 replicas
FITTED_FROM = 64  # below, everybody is linked to everybody
Row = tuple[str, str, str, str]


@dataclass(frozen=True)
class Fit:
    """Messages per replica, as `start + slope * log2 N` and as `N ** power`, over the measured `sizes`."""

    sizes: Sequence[int]
    messages: Sequence[float]
    start: float
    slope: float
    fitness: float  # R squared of the first
    power: float

    @property
    def growth(self) -> float:
        """By how much messages grew from the smallest to the largest pool."""
        return self.messages[-1] / self.messages[0]

    @property
    def logarithm(self) -> float:
        """By how much log N grew."""
        return math.log2(self.sizes[-1]) / math.log2(self.sizes[0])


def fit(results: Results) -> Fit | None:
    """The growth of the control traffic of cold pools that are not linked in full; None if too few were run."""
    groups = [group for group in results.groups("growth", COLD) if group.case.replicas >= FITTED_FROM]
    if len(groups) < 3:
        return None
    sizes = [group.case.replicas for group in groups]
    messages = [group.middle("control") for group in groups]
    logs = [math.log2(size) for size in sizes]
    slope, start = statistics.linear_regression(logs, messages)
    power = statistics.linear_regression(logs, [math.log2(count) for count in messages]).slope
    spread = max(messages) > min(messages)
    fitness = statistics.correlation(logs, messages) ** 2 if spread else 1.0
    return Fit(sizes, messages, start, slope, fitness, power)


def verdicts(results: Results) -> Iterator[Row]:
    """Rows: what, what to reach, what was measured, `met` or `missed`. Only of what was run."""
    many = f"{MANY:,}"
    for part, name in (("growth", COLD), ("churn", CHURN)):
        group = results.group(part, name, MANY)
        if group is not None:
            yield _row(f"{many}, {name}: time", TIME, group.middle("time"), "copies' time")
            yield _row(f"{many}, {name}: read from storage", STORAGE, group.middle("storage"), "copies")
    group = results.group("warm", WARM, MANY)
    if group is not None:
        yield _row(f"{many}, {WARM}: time", TIME, group.middle("time"), "copies' time")
        yield _row(f"{many}, {WARM}: its upload", 1.5, group.middle("first"), "copies")
    grown = fit(results)
    if grown is not None:
        what = (
            f"control messages per replica: growth from {grown.sizes[0]} to {grown.sizes[-1]:,}, no faster than log N"
        )
        yield _row(what, grown.logarithm, grown.growth, "times")
    group = results.group("standard", COLD, 16)
    if group is not None:
        yield _row("16, cold: time", 1.3, group.middle("time"), "copies' time")
        yield _row("16, cold: read from storage", 1.05, group.middle("storage"), "copies")
        few = results.group("standard", COLD, 4)
        if few is not None:
            growth = group.middle("time") / few.middle("time")
            yield _row("cold: growth of the time from 4 to 16", 1.15, growth, "times")
    group = results.group("standard", WARM, 16)
    if group is not None:
        yield _row(f"16, {WARM}: its upload", 1.5, group.middle("first"), "copies")


def _row(what: str, reach: float, measured: float, unit: str) -> Row:
    return what, f"<= {reach:.2f} {unit}", f"{measured:.2f} {unit}", "met" if measured <= reach else "**missed**"


__all__ = ["FITTED_FROM", "STORAGE", "TIME", "Fit", "fit", "verdicts"]
