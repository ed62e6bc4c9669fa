"""The results of a run, grouped: medians over the plays of one setting."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netns import limits
from netns.machine import BenchError
from netns.plan import STARTS
from netns.play import FAULTS

RESULTS = "swarm.json"


@dataclass(frozen=True)
class Group:
    """The plays of one setting."""

    plays: Sequence[dict[str, Any]]

    @property
    def slowest(self) -> list[float]:
        """Of each play, the seconds of its last receiver from its own signal."""
        return [max(play["seconds"]) for play in self.plays]

    def middle(self, key: str) -> float:
        """Median of a number of the plays."""
        return float(statistics.median(play[key] for play in self.plays))

    def detail(self, key: str) -> float | None:
        """Median of a number that the contender itself told, None where it told none."""
        values = [play["details"].get(key) for play in self.plays]
        return None if None in values else statistics.median(values)


class Results:
    """What `swarm.json` holds."""

    def __init__(self, folder: Path) -> None:
        try:
            self.data: dict[str, Any] = json.loads((folder / RESULTS).read_text())
        except OSError as error:
            raise BenchError(f"no results in {folder}: {error}; run `make bench-swarm`") from None
        self.outcomes: list[dict[str, Any]] = self.data["outcomes"]
        if "piece_bytes" not in self.data:
            raise BenchError(f"{folder / RESULTS} is of an older bench; run `make bench-swarm`")
        self.size: int = self.data["size"]
        self.piece_bytes: int = self.data["piece_bytes"]
        self.rate: float = self.data["network"]["rate_mbps"]

    def group(self, contender: str, start: str, receivers: int, sources: int = 1, fault: str = "") -> Group | None:
        """The plays of a setting, None where there are none."""
        wanted = (contender, start, receivers, sources, fault)
        keys = ("contender", "start", "receivers", "sources", "fault")
        plays = [outcome for outcome in self.outcomes if tuple(outcome[key] for key in keys) == wanted]
        return Group(plays) if plays else None

    @property
    def pieces(self) -> int:
        """Of one copy; the last one is shorter."""
        return -(-self.size // self.piece_bytes)

    @property
    def beside(self) -> list[dict[str, Any]]:
        """The plays during which there were others."""
        return [outcome for outcome in self.outcomes if outcome["beside"] > 1]

    @property
    def starts(self) -> list[str]:
        """The kinds of start that pools of one source were played with."""
        found = {outcome["start"] for outcome in self.outcomes if outcome["sources"] == 1}
        return [start for start in STARTS if start in found]

    @property
    def receivers(self) -> list[int]:
        """The numbers of receivers that were played with, sorted."""
        return sorted({outcome["receivers"] for outcome in self.outcomes if outcome["sources"] == 1})

    @property
    def faults(self) -> list[str]:
        """The faults that were played."""
        found = {outcome["fault"] for outcome in self.outcomes}
        return [fault for fault in FAULTS if fault in found]

    @property
    def best_copy_seconds(self) -> float:
        """One copy at the shaped rate, nothing but payload."""
        return limits.copy_seconds(self.size, self.rate)

    @property
    def copy_seconds(self) -> float:
        """One copy over the same link, measured in the same run: plain HTTP from one host to one other."""
        groups = [self.group("star", start, 1) for start in self.starts]  # one receiver's start is the same either way
        group = next((group for group in groups if group), None)
        return statistics.median(group.slowest) if group else self.best_copy_seconds

    def copies(self, group: Group) -> tuple[float, float, float]:
        """Median, least and most of the slowest receiver's time, in copies' time."""
        times = [seconds / self.copy_seconds for seconds in group.slowest]
        return statistics.median(times), min(times), max(times)

    def taxes(self, contender: str) -> Iterator[tuple[str, Group, float]]:
        """Of each fault of a contender: its plays, and the median seconds that they took beyond those without a fault."""
        sound = self.group(contender, "simultaneous", 1, 2)
        if sound is None:
            return
        for fault in self.faults:
            group = self.group(contender, "simultaneous", 1, 2, fault)
            if group is not None:
                yield fault, group, statistics.median(group.slowest) - statistics.median(sound.slowest)
