"""The page of simulated pools: what was run is kept, and everything that was run is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulation import page, plots, results
from simulation.case import Case, Outcome
from simulation.parts import COLD, MANY, PARTS
from simulation.results import Results, Run, fill
from simulation.targets import fit, verdicts

TINY = {name: replace(part, sizes=(2, 3)) for name, part in PARTS.items()}
PLAIN = Outcome(1.0, 1.0, 1.0, 0.9, 1.0, 100.0, 50.0, 10.0, 60.0, 10.0, 10.0, 0, 0, 0.0)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """Outcomes at no cost; the cases that were run."""
    cases: list[Case] = []

    def simulate(case: Case) -> Outcome:
        cases.append(case)
        return PLAIN

    monkeypatch.setattr(results, "simulate", simulate)
    return cases


def test_what_was_run_is_not_run_again(tmp_path: Path, ran: list[Case]) -> None:
    path = tmp_path / "page.json"
    assert fill(Results(path), TINY, names=["growth"], count=2) == 0
    assert len(ran) == 4
    assert fill(Results(path), TINY, names=["growth"], count=3) == 4
    assert len(ran) == 6
    fill(Results(path), TINY, names=["growth"], count=3, fresh=True)
    assert len(ran) == 12


def test_other_code_and_other_cases_are_run_again(
    tmp_path: Path, ran: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page.json"
    fill(Results(path), TINY, names=["growth"], count=1)
    changed = {"growth": replace(TINY["growth"], cases={COLD: Case(pieces=7)})}
    assert fill(Results(path), changed, count=1) == 0
    monkeypatch.setattr(results, "code_digest", lambda: "changed")
    assert fill(Results(path), changed, count=1) == 0
    assert Results(path).codes() == {"changed"}
    assert len(Results(path)) == 2


def test_larger_pools_may_be_left_out(tmp_path: Path, ran: list[Case]) -> None:
    fill(Results(tmp_path / "page.json"), TINY, names=["standard"], count=1, largest=2)
    assert {case.replicas for case in ran} == {2}


def test_an_outcome_without_an_end_is_kept(tmp_path: Path) -> None:
    kept = Results(tmp_path / "page.json")
    kept.keep(Run("growth", COLD, Case(), "code", replace(PLAIN, time=float("inf"))))
    group = Results(tmp_path / "page.json").group("growth", COLD, 16)
    assert group is not None
    assert group.middle("time") == float("inf")


def test_the_page_has_every_part_and_says_what_is_lacking(tmp_path: Path, ran: list[Case]) -> None:
    outcomes = Results(tmp_path / "page.json")
    fill(outcomes, TINY, count=1)
    page.write(outcomes, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "(page.json)" in text
    assert "(page.svg)" in text
    assert "growth of 16, 32" in text
    for part in ("standard", "churn", "warm"):
        assert all(f"| {name} |" in text for name in PARTS[part].cases)


@pytest.mark.parametrize(("most", "verdict"), [(160.0, "met"), (170.0, "**missed**")])
def test_control_traffic_may_grow_as_the_logarithm(tmp_path: Path, most: float, verdict: str) -> None:
    outcomes = Results(tmp_path / "page.json")
    for size, control in ((32, 500.0), (64, 100.0), (250, 130.0), (MANY, most)):
        outcomes.keep(Run("growth", COLD, Case(replicas=size), "code", replace(PLAIN, control=control)))
    grown = fit(outcomes)
    assert grown is not None
    assert grown.sizes == [64, 250, MANY]
    assert [row[3] for row in verdicts(outcomes) if "log N" in row[0]] == [verdict]


def test_what_is_there_is_drawn(tmp_path: Path, ran: list[Case]) -> None:
    outcomes = Results(tmp_path / "page.json")
    fill(outcomes, TINY, names=["growth", "warm"], count=1)
    plots.draw(outcomes, tmp_path / "page.svg")
    first = (tmp_path / "page.svg").read_bytes()
    plots.draw(outcomes, tmp_path / "page.svg")
    assert (tmp_path / "page.svg").read_bytes() == first
