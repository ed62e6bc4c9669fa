"""The results as pages: tables in Markdown, plots beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from netns import limits, plots
from netns.contenders import CONTENDERS
from netns.contenders.base import STALL_SECONDS
from netns.results import Group, Results
from netns.targets import verdicts

PAGE = "swarm-results.md"
DOCUMENTS = Path(__file__).resolve().parents[3] / "docs" / "benchmarks"
BUSY = 0.9  # of the processors: beyond, plays beside each other may have waited for a core


def write(folder: Path) -> bool:
    """Write the tables and plots of the results in `folder`. Returns whether the control says that they are valid."""
    results = Results(folder)
    drawn = plots.draw(results, folder)
    (folder / PAGE).write_text("\n".join(page(results, drawn, guide=_guide(folder))) + "\n")
    valid = bool(results.data["control"]["valid"])
    print(f"{folder / PAGE}: {len(results.outcomes)} plays; the run is {'valid' if valid else 'INVALID'}")
    return valid


def _guide(folder: Path) -> str:
    """Where a page in `folder` finds what says how it was made."""
    folder = folder.resolve()
    return (
        "../" * len(folder.relative_to(DOCUMENTS).parts) + "swarm.md"
        if folder.is_relative_to(DOCUMENTS)
        else "swarm.md"
    )


def page(results: Results, drawn: list[str], *, guide: str = "swarm.md") -> Iterator[str]:
    """The lines of the page of results, with the plots `drawn`; `guide` is the page that says how they were made."""
    data, control = results.data, results.data["control"]
    only = f", {results.starts[0]} start only" if len(results.starts) == 1 else ""
    yield f"# The swarm on shaped links: results{only}"
    yield ""
    yield f"Made by `make bench-swarm`; [swarm.md]({guide}) says how and what follows from it. Raw numbers: [swarm.json](swarm.json)."
    yield ""
    if not control["valid"]:
        yield "**This run is INVALID: the control's iperf3 pairs did not reach 95 % of the shaped rate.**"
        yield ""
    machine, network = data["machine"], data["network"]
    yield (
        f"- Machine: {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}, aria2 {machine['aria2']}, "
        f"nginx {machine['nginx']}."
    )
    yield (
        f"- Links: {network['rate_mbps']:g} Mbit/s each way, htb on both ends, a FIFO of {network['queue_bytes'] // 1024} KiB per port, "
        f"MTU {network['mtu']}, TCP {network['congestion_control']}."
    )
    yield (
        f"- One copy: {results.size / 1e6:.1f} MB; {results.best_copy_seconds:.2f} s at the shaped rate, **{results.copy_seconds:.2f} s measured** "
        "(HTTP, one host to one other); every ratio below is to the latter."
    )
    for when in ("before", "after"):
        rates = control[f"{when}_mbps"]
        if rates:
            yield (
                f"- Control {when} the run: {len(rates)} iperf3 streams at once between pairs of hosts, both ways: "
                f"{min(rates):.1f} to {max(rates):.1f} Mbit/s, least {min(rates) / results.rate:.1%} of the shaped rate."
            )
    count = data["count"]
    fewer = [
        f"{min(count, data['steady_count'])} of star and whole copies, whose times hardly differ",
        f"{min(count, data['bittorrent_count'])} of BitTorrent",
    ]
    if len(results.starts) > 1:
        fewer.append(f"{min(count, data['staggered_count'])} with a staggered start")
    yield (
        f"- {count} plays of each setting ({'; '.join(fewer)}), in shuffled rounds; medians, with least and most in brackets."
    )
    yield f"- The model has {results.pieces} pieces of {results.piece_bytes // 1024} KiB, for shardpool and for BitTorrent."
    yield f"- {_beside(results)}"
    yield ""
    targets = [list(row) for row in verdicts(results)]
    if targets:
        yield "## Targets"
        yield ""
        yield from _table(["what", "reach", "measured", ""], targets)
    for start in results.starts:
        yield from _start(results, start, drawn)
    yield from _failures(results, drawn)


def _start(results: Results, start: str, drawn: list[str]) -> Iterator[str]:
    yield f"## {start.capitalize()} start"
    yield ""
    yield (
        "Time until the last receiver has its verified copy, in copies' time."
        if start == "simultaneous"
        else "Receivers start evenly spread over one copy's time; time of the slowest receiver from its own start, in copies' time."
    )
    yield ""
    yield from (f"![{name}]({name})\n" for name in drawn if start in name)
    yield from _by_receivers(results, start, lambda group: _spread(*results.copies(group)), limit=True)
    yield "Bytes that the first source's link carried, in copies (frames and control traffic included):"
    yield ""
    yield from _by_receivers(results, start, lambda group: f"{group.middle('first_source_copies'):.2f}")
    if any(results.group("cold", start, receivers) for receivers in results.receivers):
        yield "Bytes that the storage (the hub of the cold pool) sent, by its own log, in copies:"
        yield ""
        yield from _by_receivers(
            results,
            start,
            lambda group: f"{(group.detail('storage_bytes') or 0) / results.size:.3f}",
            only="cold",
        )
    yield (
        "Processors: share of the machine in use / share of the time in which some task waited for a core / seconds used by the "
        "contender's processes:"
    )
    yield ""
    yield from _by_receivers(
        results,
        start,
        lambda group: (
            f"{group.middle('busy_share'):.0%} / {group.middle('waiting_share'):.0%} / {group.middle('cpu_seconds'):.1f} s"
        ),
    )


def _by_receivers(
    results: Results, start: str, cell: Callable[[Group], str], *, limit: bool = False, only: str = ""
) -> Iterator[str]:
    counts = results.receivers
    names = [name for name in CONTENDERS if only in ("", name) and any(results.group(name, start, n) for n in counts)]
    head = ["receivers", *(CONTENDERS[name].title for name in names), *(["limit"] if limit else [])]
    rows = []
    for receivers in counts:
        groups = [results.group(name, start, receivers) for name in names]
        if any(groups):
            cells = [cell(group) if group else "" for group in groups]
            ideal = f"{limits.swarm_limit(receivers, results.pieces):.2f}"
            rows.append([str(receivers), *cells, *([ideal] if limit and start == "simultaneous" else [])])
    yield from _table(head if start == "simultaneous" else [name for name in head if name != "limit"], rows)


def _failures(results: Results, drawn: list[str]) -> Iterator[str]:
    names = [name for name in CONTENDERS if results.group(name, "simultaneous", 1, 2)]
    if not names:
        return
    yield "## Failure tax"
    yield ""
    yield (
        "One receiver, two complete sources; the first one fails when the receiver has had half a copy. What that costs beyond "
        f"the same play without a fault, in seconds (and in copies' time). Stall time where it can be set: {STALL_SECONDS:g} s."
    )
    yield ""
    yield from (f"![{name}]({name})\n" for name in drawn if "failure" in name)
    taxes = {name: {fault: (group, tax) for fault, group, tax in results.taxes(name)} for name in names}
    rows = []
    for fault in results.faults:
        cells = [
            f"{of[fault][1]:+.2f} s ({of[fault][1] / results.copy_seconds:+.2f})" if fault in of else ""
            for of in taxes.values()
        ]
        rows.append([fault, *cells])
    yield from _table(["first source", *(CONTENDERS[name].title for name in names)], rows)
    yield "Bytes that reached the receiver's link, in copies (1 and the headers' share without a fault):"
    yield ""
    rows = []
    for fault in ("", *results.faults):
        groups = [results.group(name, "simultaneous", 1, 2, fault) for name in names]
        rows.append(
            [fault or "no fault", *(f"{group.middle('most_received_copies'):.3f}" if group else "" for group in groups)]
        )
    yield from _table(["first source", *(CONTENDERS[name].title for name in names)], rows)


def _beside(results: Results) -> str:
    plays = results.beside
    if not plays:
        return "Every play had the machine alone."
    most, busiest = max(play["beside"] for play in plays), max(play["busy_share"] for play in plays)
    facts = [
        f"{len(plays)} of {len(results.outcomes)} plays (plain HTTP, and one or two receivers) ran beside others, at most {most} at once, "
        f"each on a network of its own; the machine was at most {busiest:.0%} busy meanwhile."
    ]
    if busiest > BUSY:
        facts.append(f"**More than {BUSY:.0%}: too many at once (`--lanes`), or somebody else used the machine.**")
    if len(plays) < len(results.outcomes):
        facts.append("The other plays had it alone.")
    return " ".join(facts)


def _spread(middle: float, least: float, most: float) -> str:
    return f"{middle:.2f} ({least:.2f} to {most:.2f})"


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in rows)
    yield ""
