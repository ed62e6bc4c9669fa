"""The results as a page: tables in Markdown."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shardpool.swarm.peer_table import EVERY_PEER, degree
from shardpool.transport.loopback import Network
from simulation.case import Case
from simulation.parts import COLD, PARTS, WARM
from simulation.results import Group, Results
from simulation.targets import FITTED_FROM, fit, verdicts

Cell = Callable[[Group], str]


def write(results: Results, page: Path) -> None:
    """Write the page; its plots and its numbers lie beside it, under the same name."""
    page.write_text("\n".join(_page(results, page)) + "\n")


def _page(results: Results, page: Path) -> Iterator[str]:
    yield "# Simulated pools"
    yield ""
    yield (
        "What a pool costs as it grows, to 1,000 replicas: time, bytes from storage, uploads, control messages. The scheduler and the loader run "
        "as they are, on a simulated network in virtual time."
    )
    yield ""
    yield f"Made by `make sim-page`; every outcome is in [{page.stem}.json]({page.stem}.json)."
    yield ""
    yield "```sh"
    yield "make sim-page                               # what is missing, or was made by other code"
    yield 'make sim-page SIM="--only growth,churn"     # some parts: ' + ", ".join(PARTS)
    yield "make sim-page SIM=--fresh                   # everything anew"
    yield "make sim-page SIM=--report-only             # the page again, from the outcomes"
    yield 'make sim SIM="-n 16 --churn 0.3 --window 4" # one case of your own; SIM=--help lists what can be changed'
    yield "```"
    yield ""
    yield from _reading(results)
    yield "## Targets"
    yield ""
    yield from _table(["what", "reach", "measured", ""], [list(row) for row in verdicts(results)])
    yield f"![time, storage and control traffic over the number of replicas]({page.stem}.svg)"
    yield ""
    yield from _standard(results)
    yield from _growth(results)
    yield from _many(results)
    yield from _control(results)


def _reading(results: Results) -> Iterator[str]:
    default = Case()
    yield (
        "- Every number is a ratio to one copy: time over that of one copy over one replica's link, bytes over one copy's. Nothing depends on the "
        "machine; the same code and seed give the same numbers."
    )
    yield (
        "- *Time* is that of the slowest replica, from its own start, over the time that its own link takes for a copy. Replicas that are killed are "
        "started again 2 s later; their own time is left out, what they cost the others and the storage is not."
    )
    yield (
        f"- All links have one speed, a copy takes {default.copy:g} s, and storage is no bottleneck beyond a replica's link, where a case does not "
        "say otherwise. Everybody starts at once."
    )
    yield (
        "- Medians over seeds, with least and most in brackets where they differ. "
        f"{_told('Runs of a case and size', results.counts)} {_told('Pieces of a copy', results.pieces)}"
    )
    codes = results.codes()
    if len(codes) == 1:
        yield f"- State of scheduler and simulation (a digest of their sources): `{next(iter(codes))}`."
    else:
        states = "; ".join(
            f"{part} {', '.join(f'`{code}`' for code in sorted(results.codes(part)))}"
            for part in PARTS
            if results.codes(part)
        )
        yield f"- **The outcomes are of different states of scheduler and simulation**: {states}."
    lacking = {part: sizes for part in PARTS if (sizes := sorted(set(PARTS[part].sizes) - {*results.sizes(part)}))}
    if lacking:
        what = "; ".join(f"{part} of {', '.join(map(str, sizes))}" for part, sizes in lacking.items())
        yield f"- **Not run yet**: {what}."
    yield ""


def _told(what: str, of: Callable[[str], Sequence[int]]) -> str:
    told = [f"{' or '.join(map(str, found))} ({part})" for part in PARTS if (found := of(part))]
    return f"{what}: {', '.join(told)}."


def _standard(results: Results) -> Iterator[str]:
    part = PARTS["standard"]
    sizes = results.sizes("standard")
    if not sizes:
        return
    yield f"## {part.title}"
    yield ""
    tables: Sequence[tuple[str, Cell]] = (
        ("Time, in copies' time:", lambda group: _spread(group, "time")),
        ("Bytes read from storage, in copies:", lambda group: _spread(group, "storage")),
        (
            "Upload of the first replica (the complete one, where there is one), in copies:",
            lambda group: f"{group.middle('first'):.2f}",
        ),
        ("Upload of the replica that sent most, in copies:", lambda group: f"{group.middle('most'):.2f}"),
        ("Control messages per replica:", lambda group: f"{group.middle('control'):,.0f}"),
        ("Pieces fetched again, in all:", lambda group: f"{group.middle('refetched'):.0f}"),
    )
    for title, cell in tables:
        yield title
        yield ""
        rows = []
        for name in part.cases:
            groups = [results.group("standard", name, size) for size in sizes]
            if any(groups):
                rows.append([name, *(cell(group) if group else "" for group in groups)])
        yield from _table(["replicas", *map(str, sizes)], rows)
    yield (
        "Of links 4:1 the slowest has a quarter of the fastest's speed, and two lie between: together they send "
        "0.57 of what the fastest could take, so that 1.75 copies' time is the limit for it. "
        "10 % of 2 and of 4 are nobody. What a killed replica had alone is read from storage again."
    )
    yield ""
    yield from _failures(results, "standard")


def _growth(results: Results) -> Iterator[str]:
    groups = list(results.groups("growth", COLD))
    if not groups:
        return
    yield f"## {PARTS['growth'].title}"
    yield ""
    yield "Cold pools that start at once."
    yield ""
    yield from _table(HEAD, [[f"{group.case.replicas:,}", *_cells(group)] for group in groups])
    yield (
        "From one source no way takes less than 1 + floor(log2 N)/M copies' time for M pieces (see [swarm.md](swarm.md)): "
        "part of what grows is that pieces of the same size pass through more hands."
    )
    yield ""
    yield from _failures(results, "growth")


def _many(results: Results) -> Iterator[str]:
    rows = []
    for part in ("churn", "warm"):
        for name in PARTS[part].cases:
            rows += [[f"{g.case.replicas:,}", *_cells(g), name] for g in results.groups(part, name)]
    if rows:
        yield "## 1,000 with faults, and from one"
        yield ""
        yield from _table([*HEAD, "case"], rows)
        yield (
            f"*{WARM.capitalize()}*: nobody else may read storage, and the first's upload is the complete replica's. "
            "DNS that lags 5 s: each replica learns of each start and each death after a time of its own between 0 and 5 s."
        )
        yield ""
        yield (
            "*Late lists*: nobody reads storage before a list has its own address and has stopped growing, so that the time has the lag of the "
            "lists in it (a tenth of a copy here), and storage does not. What it reads above one copy are pieces whose only reader was killed before "
            'it had passed them on, and some that two read at the same time (`make sim SIM="-n 250 --pieces 100 --dns-lag 5"` without the kills).'
        )
        yield ""
        yield (
            "*One complete replica* is asked by about forty others, who do not know of each other. It lends each piece once before it sends any "
            "twice (`swarm/first_copies.py`), and then whatever is asked. What is left above one copy is the time until enough pieces have spread "
            "over the pool for all links to be busy; it is counted in pieces, so that more pieces make it shorter: a model of 100 took 1.58."
        )
        yield ""
        yield from _failures(results, "churn")
        yield from _failures(results, "warm")


HEAD = ["replicas", "time", "median replica", "storage", "first's upload", "most upload", "control messages", "again"]


def _cells(group: Group) -> list[str]:
    return [
        _spread(group, "time"),
        f"{group.middle('median'):.2f}",
        _spread(group, "storage", digits=3),
        f"{group.middle('first'):.2f}",
        f"{group.middle('most'):.2f}",
        f"{group.middle('control'):,.0f}",
        f"{group.middle('refetched'):.0f}",
    ]


def _failures(results: Results, part: str) -> Iterator[str]:
    failed = {
        f"{name} of {group.case.replicas:,}": sum(group.values("failed"))
        for name in PARTS[part].cases
        for group in results.groups(part, name)
    }
    if any(failed.values()):
        yield (
            "**Loads failed**: " + ", ".join(f"{count:.0f} in {name}" for name, count in failed.items() if count) + "."
        )
        yield ""


def _control(results: Results) -> Iterator[str]:
    yield "## Control traffic"
    yield ""
    yield "A message counts where it is sent and where it is received. Payload is none of it."
    yield ""
    yield from _table(
        ["message", "what it says", "grows with"],
        [
            ["handshake", "who both are, and the outline for who lacks it", "links"],
            [
                "announcement of pieces",
                "the pieces verified since the last one, with claims and load if they have changed; "
                f"one link hears at most one in {_default('spacing') * 1000:g} ms",
                "links, and pieces until one announcement carries several",
            ],
            [
                "announcement of claims",
                "which pieces this replica is about to bring in, when nothing else is new",
                "links, and a replica's part of the reading",
            ],
            [
                "announcement of load",
                f"how many read from this replica, or its phase; at most one in {_default('look_again') * 1000:g} ms",
                "links, and time",
            ],
            ["lease", "a place among a source's readers: asked for, granted or refused, given back", "sources read from"],
            [
                "request",
                "one piece, on the stream that carries it: counted apart",
                "pieces, and refusals by sources that have readers enough",
            ],
        ],
    )  # fmt: skip
    groups = list(results.groups("growth", COLD))
    if groups:
        yield "Cold pools, messages per replica:"
        yield ""
        yield from _table(
            ["replicas", "links wanted", "handshakes", "pieces", "claims", "load", "leases", "**all**", "requests"],
            [[f"{g.case.replicas:,}", str(degree(g.case.replicas - 1)), *_kinds(g)] for g in groups],
        )
    yield from _fitted(results)
    yield (
        f"The reason is the number of links. Up to {EVERY_PEER + 1} replicas everybody is linked to everybody, so that each hears of each piece from "
        "each other, and messages per replica grow with N. A larger pool is a well-mixed graph in which a replica wants max(16, 2 log2 N) links "
        f"([peer_table.py]({_TABLE}), `degree`), and is linked to by as many: {degree(63)} of 64, {degree(249)} of 250, {degree(999)} of 1,000, "
        f"{degree(9999)} of 10,000. What is said on one link does not depend on N: it is bounded by the pieces and by the time of the load."
    )


def _default(name: str) -> float:
    """What a simulated network does when it is not told otherwise."""
    return float(inspect.signature(Network).parameters[name].default)


_TABLE = "../../runtime/src/shardpool/swarm/peer_table.py"


def _kinds(group: Group) -> list[str]:
    told = [group.middle(kind) for kind in ("handshakes", "pieces", "claims", "loads")]
    every = group.middle("control")
    return [f"{count:,.0f}" for count in (*told, max(0.0, every - sum(told)), every, group.middle("requests"))]


def _fitted(results: Results) -> Iterator[str]:
    grown = fit(results)
    if grown is None:
        return
    few, many = grown.sizes[0], grown.sizes[-1]
    slower = grown.growth <= grown.logarithm
    sign = "+" if grown.slope >= 0 else "-"
    yield (
        f"From {few} to {many:,} replicas N grows {many / few:.1f}-fold, log2 N {grown.logarithm:.2f}-fold, and the messages per replica "
        f"**{grown.growth:.2f}-fold**: {'no faster' if slower else '**faster**'} than log N. Least squares over the {len(grown.sizes)} sizes from "
        f"{FITTED_FROM} on give {grown.start:,.0f} {sign} {abs(grown.slope):,.0f} log2 N (R² {grown.fitness:.2f}); as a power of N the exponent is "
        f"{grown.power:.2f}, where 1 would be messages in proportion to N."
    )
    yield ""


def _spread(group: Group, measure: str, digits: int = 2) -> str:
    values = group.values(measure)
    middle, least, most = (f"{value:.{digits}f}" for value in (group.middle(measure), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    if rows:
        yield "| " + " | ".join(head) + " |"
        yield "|" + "---|" * len(head)
        yield from ("| " + " | ".join(row) + " |" for row in rows)
        yield ""


__all__ = ["write"]
