"""Outcomes on disk: what was run is not run again while case and code are the same."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from simulation.case import Case, Outcome, simulate
from simulation.parts import PARTS, Part

ROOT = Path(__file__).resolve().parents[3]
# What an outcome depends on.
_CODE = (
    "runtime/src/shardpool/swarm/*.py",
    "runtime/src/shardpool/transport/base.py",
    "runtime/src/shardpool/transport/loopback.py",
    "runtime/src/shardpool/model/holdings.py",
    "runtime/src/shardpool/discovery/base.py",
    "runtime/src/shardpool/retry.py",
    "tests/tools/simulated_pool.py",
    "tests/sim/simulation/case.py",
    "tests/sim/simulation/traffic.py",
)
_DEFAULTS = asdict(Case())
_MEASURES = [f.name for f in fields(Outcome) if f.name != "cpu"]  # the rest is the same on every machine


def code_digest() -> str:
    """Names the state of the scheduler and of the simulation."""
    state = hashlib.sha256()
    for pattern in _CODE:
        for path in sorted(ROOT.glob(pattern)):
            state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()[:12]


@dataclass(frozen=True)
class Run:
    """One run of a part's case: what came out, of which code."""

    part: str
    name: str
    case: Case
    code: str
    outcome: Outcome

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Its place: a run of the same place replaces it."""
        return self.part, self.name, self.case.replicas, self.case.number

    def encode(self) -> str:
        """One line of JSON. A case is what differs from the default; what never ended has no time."""
        case = {key: value for key, value in asdict(self.case).items() if value != _DEFAULTS[key]}
        outcome = {name: _rounded(getattr(self.outcome, name)) for name in _MEASURES}
        return json.dumps(
            {"part": self.part, "name": self.name, "code": self.code, "case": case, "outcome": outcome}, allow_nan=False
        )

    @classmethod
    def decode(cls, entry: dict[str, Any]) -> Run | None:
        """A run from its JSON; None if it is of an older kind."""
        try:
            case = Case(**entry["case"])
            told = {name: math.inf if value is None else value for name, value in entry["outcome"].items()}
            return cls(entry["part"], entry["name"], case, entry["code"], Outcome(cpu=0.0, **told))
        except (KeyError, TypeError):
            return None


class Group:
    """The runs of one case and size, which differ in their seed."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs

    @property
    def case(self) -> Case:
        """The case, of any seed."""
        return self.runs[0].case

    def values(self, measure: str) -> list[float]:
        """A measure of each run."""
        return [getattr(run.outcome, measure) for run in self.runs]

    def middle(self, measure: str) -> float:
        """The median of a measure."""
        return statistics.median(self.values(measure))


class Results:
    """The runs in a file, which need not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        entries = json.loads(path.read_text())["runs"] if path.exists() else []
        found = [run for run in map(Run.decode, entries) if run is not None]
        self._runs = {run.key: run for run in found}

    def __len__(self) -> int:
        return len(self._runs)

    def has(self, part: str, name: str, case: Case, code: str) -> bool:
        """Whether this very case was run with this code."""
        run = self._runs.get((part, name, case.replicas, case.number))
        return run is not None and run.case == case and run.code == code

    def keep(self, run: Run) -> None:
        """Add a run, or replace the one in its place, and write the file."""
        self._runs[run.key] = run
        order = {name: position for position, name in enumerate(PARTS)}
        runs = sorted(self._runs.values(), key=lambda r: (order.get(r.part, len(order)), r.key))
        text = '{"runs": [\n' + ",\n".join(run.encode() for run in runs) + "\n]}\n"
        fresh = self._path.with_suffix(".part")
        fresh.write_text(text)
        fresh.replace(self._path)

    def codes(self, part: str = "") -> set[str]:
        """Of which states of the code the runs (of a part) are."""
        return {run.code for run in self._runs.values() if part in ("", run.part)}

    def sizes(self, part: str, name: str = "") -> list[int]:
        """The numbers of replicas that were run, sorted."""
        return sorted({r.case.replicas for r in self._runs.values() if r.part == part and name in ("", r.name)})

    def pieces(self, part: str) -> list[int]:
        """Into how many pieces the models of a part were cut."""
        return sorted({r.case.pieces for r in self._runs.values() if r.part == part})

    def counts(self, part: str) -> list[int]:
        """How many runs, of one seed each, the cases and sizes of a part have."""
        places = Counter((r.name, r.case.replicas) for r in self._runs.values() if r.part == part)
        return sorted(set(places.values()))

    def group(self, part: str, name: str, replicas: int) -> Group | None:
        """The runs of a case and size, None where there are none."""
        runs = [r for r in self._runs.values() if (r.part, r.name, r.case.replicas) == (part, name, replicas)]
        return Group(runs) if runs else None

    def groups(self, part: str, name: str) -> Iterator[Group]:
        """The runs of a case, by size."""
        for size in self.sizes(part, name):
            group = self.group(part, name, size)
            assert group is not None
            yield group


def fill(
    results: Results,
    parts: Mapping[str, Part],
    *,
    names: Iterable[str] = (),
    count: int = 0,
    largest: int = 0,
    fresh: bool = False,
    told: Callable[[Run], None] = lambda run: None,
) -> int:
    """Run what the results lack; returns how many runs were there already.

    Args:
        results: where the outcomes go, each as soon as there is one.
        parts: what is to be run.
        names: of the parts, only these.
        count: seeds of each case, 0 for the usual number.
        largest: leave larger pools out; 0 is no limit.
        fresh: run everything, also what is there.
        told: called after each run.
    """
    code, there = code_digest(), 0
    for part in names or parts:
        for name, case in parts[part].runs(count):
            if largest and case.replicas > largest:
                continue
            if not fresh and results.has(part, name, case, code):
                there += 1
                continue
            run = Run(part, name, case, code, simulate(case))
            results.keep(run)
            told(run)
    return there


def _rounded(value: float) -> float | None:
    return None if math.isinf(value) else round(value, 4)


__all__ = ["Group", "Results", "Run", "code_digest", "fill"]
