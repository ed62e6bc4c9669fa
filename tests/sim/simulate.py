"""Simulate pools of many replicas: time, storage reads, uploads and control traffic, and how each grows.

    python tests/sim/simulate.py                     the table of standard cases
    python tests/sim/simulate.py -n 4,16 --ready 1   one case, options below
    python tests/sim/simulate.py --large             1,000 replicas, and smaller pools to see the growth (minutes)
    python tests/sim/simulate.py --page FILE.md      everything, as a page with plots; goes on where it was stopped

Everything is a ratio: time over that of one copy over one replica's link, bytes over one copy. The runs use the scheduler and the
loader as they are, on the loopback network in virtual time; the same arguments give the same numbers.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from flag_lists import names, numbers
from plotting import PlotError
from simulation import page, plots
from simulation.case import Case, Outcome, simulate
from simulation.parts import PARTS, STANDARD
from simulation.results import Results, Run, fill

KINDS = {"int": int, "float": float, "str": str, "bool": lambda text: text == "true"}


def line(name: str, case: Case, outcome: Outcome) -> str:
    """One outcome on one line."""
    return (
        f"{name:40s} N={case.replicas:<5d} time {outcome.time:5.2f} (median {outcome.median:4.2f})  storage {outcome.storage:5.3f}  "
        f"first's upload {outcome.first:5.2f}  most {outcome.most:5.2f}  control/replica {outcome.control:7.0f}  "
        f"refetched {outcome.refetched:5d}  failed {outcome.failed}  [{outcome.cpu:.1f} s CPU]"
    )


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=numbers, default=(), help="numbers of replicas, as 2,4,16")
    parser.add_argument(
        "--count", type=int, default=0, help="seeds of each case, from --number on; medians are printed"
    )
    parser.add_argument("--large", action="store_true", help="1,000 replicas, and the growth up to there")
    case = parser.add_argument_group("one case", "the fields of simulation/case.py, which says what they are")
    for entry in dataclasses.fields(Case):
        if entry.name != "replicas":
            kind, default = KINDS[str(entry.type)], f"default {entry.default}"
            case.add_argument(f"--{entry.name.replace('_', '-')}", type=kind, default=None, help=default)
    paper = parser.add_argument_group("a page")
    paper.add_argument("--page", type=Path, help="write this page, with .json (outcomes) and .svg (plots) beside it")
    paper.add_argument("--only", type=names(PARTS), default=(), help="run only these parts of it: " + ", ".join(PARTS))
    paper.add_argument("--largest", type=int, default=0, help="run only pools of up to so many replicas")
    paper.add_argument("--fresh", action="store_true", help="run also what was run with this code already")
    paper.add_argument("--report-only", action="store_true", help="run nothing; write the page from the outcomes")
    return parser


def main() -> None:
    """Print a table, or write the page."""
    parser = arguments()
    options = vars(parser.parse_args())
    changes = {f.name: v for f in dataclasses.fields(Case) if (v := options.get(f.name)) is not None}
    try:
        if options["page"] is not None:
            if changes or options["n"]:
                parser.error("a page has cases of its own; print the one that you ask for without --page")
            write_page(options)
        elif options["large"]:
            show((name, case) for part in ("growth", "churn", "warm") for name, case in PARTS[part].runs(1))
        else:
            cases = {"as asked": Case()} if changes or options["n"] else STANDARD
            for name, case in cases.items():
                for size in options["n"] or (4, 16):
                    asked = replace(case, replicas=size, **changes)
                    seeds = range(asked.number, asked.number + max(1, options["count"]))
                    show((name, replace(asked, number=number)) for number in seeds)
    except PlotError as error:
        sys.exit(f"simulate: {error}")


def show(runs: Iterable[tuple[str, Case]]) -> None:
    """Run and print, and for several seeds of one case also the medians."""
    done: list[tuple[str, Case, Outcome]] = []
    for name, case in runs:
        outcome = simulate(case)
        done.append((name, case, outcome))
        print(line(name, case, outcome), flush=True)
    sizes = {case.replicas for _, case, _ in done}
    if len(done) > 1 and len(sizes) == 1:
        columns = zip(*(dataclasses.astuple(outcome) for *_, outcome in done), strict=True)
        whole = {"refetched", "failed"}
        middle = Outcome(*(statistics.median(column) for column in columns))
        middle = replace(middle, **{name: round(getattr(middle, name)) for name in whole})
        print(line(f"{done[0][0]}: median of {len(done)}", done[0][1], middle), flush=True)


def write_page(options: dict) -> None:
    """Run what the page lacks, and write it."""
    path: Path = options["page"]
    results = Results(path.with_suffix(".json"))
    if not options["report_only"]:

        def told(run: Run) -> None:
            print(line(f"{run.part}: {run.name}, seed {run.case.number}", run.case, run.outcome), flush=True)

        there = fill(
            results,
            PARTS,
            names=options["only"],
            count=options["count"],
            largest=options["largest"],
            fresh=options["fresh"],
            told=told,
        )
        print(f"{there} runs were there already, made by the same code")
    plots.draw(results, path.with_suffix(".svg"))
    page.write(results, path)
    print(f"{path}: {len(results)} runs")


if __name__ == "__main__":
    main()
