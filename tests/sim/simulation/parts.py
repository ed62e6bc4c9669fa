"""Which cases the page shows, in parts that can be run by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from simulation.case import Case

STANDARD = {
    "cold": Case(),
    "cold, slow storage (1 link)": Case(storage=1.0),
    "cold, one storage reader": Case(seed_readers=1),
    "cold, DNS lags 5 s, starts within 5 s": Case(dns_lag=5.0, stagger=5.0),
    "cold, 10 % killed": Case(churn=0.1),
    "cold, 20 % slow disks": Case(slow_disks=0.2),
    "cold, links 4:1": Case(speeds=4.0),
    "from one complete replica": Case(ready=1, storage=0.001, reader=0.001),
}
COLD, WARM = "cold", "from one complete replica"
CHURN = "cold, 10 % killed, DNS lags 5 s"
MANY = 1000
CHEAP = 64  # up to so many replicas a case is run with several seeds
SEEDS = 5


@dataclass(frozen=True)
class Part:
    """Cases by name, each with every one of `sizes` replicas."""

    title: str
    cases: Mapping[str, Case]
    sizes: Sequence[int]

    def runs(self, count: int = 0) -> Iterator[tuple[str, Case]]:
        """Every run: a case's name, and the case with its size and seed. `count` seeds, or as many as the size permits."""
        for size in self.sizes:
            for name, case in self.cases.items():
                for number in range(1, 1 + (count or (SEEDS if size <= CHEAP else 1))):
                    yield name, replace(case, replicas=size, number=number)


# Few pieces make a copy look a little worse than many: the time of one piece is a larger share of it.
PARTS = {
    "standard": Part(
        "Small pools", {name: replace(case, pieces=200) for name, case in STANDARD.items()}, (2, 4, 8, 16, 32)
    ),
    "growth": Part("Growth", {COLD: Case(pieces=100)}, (16, 32, 64, 125, 250, 500, MANY)),
    "churn": Part("1,000 replicas, 10 % killed", {CHURN: Case(pieces=100, churn=0.1, dns_lag=5.0)}, (MANY,)),
    "warm": Part("1,000 replicas from one", {WARM: Case(pieces=200, ready=1, storage=0.001, reader=0.001)}, (MANY,)),
}

__all__ = ["CHURN", "COLD", "MANY", "PARTS", "STANDARD", "WARM", "Part"]
