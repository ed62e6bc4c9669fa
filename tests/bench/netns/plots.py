"""Plots of a run: time over the number of receivers, with the limit drawn, and the failure tax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plotting import new_plots, save

from netns import limits
from netns.contenders import CONTENDERS
from netns.contenders.base import STALL_SECONDS
from netns.results import Results

COLOURS = {"star": "#b0413e", "whole": "#d98e04", "bittorrent": "#6b7280", "warm": "#0b6e4f", "cold": "#1d5fa8"}
MARKERS = {"star": "s", "whole": "^", "bittorrent": "D", "warm": "o", "cold": "v"}


def draw(results: Results, folder: Path) -> list[str]:
    """Draw what the results have; returns the files' names. Raises PlotError without matplotlib."""
    pyplot = new_plots("swarm", font_size=10)
    drawn = {f"swarm-{start}.svg": _times(pyplot, results, start) for start in results.starts}
    if any(list(results.taxes(name)) for name in CONTENDERS):
        drawn["swarm-failure.svg"] = _taxes(pyplot, results)
    for name, figure in drawn.items():
        save(pyplot, figure, folder / name)
    return list(drawn)


def _times(pyplot: Any, results: Results, start: str) -> Any:
    figure, axes = pyplot.subplots(figsize=(8, 5))
    counts = results.receivers
    for name in CONTENDERS:
        points = [(n, results.copies(group)) for n in counts if (group := results.group(name, start, n))]
        if not points:
            continue
        x, middle = [n for n, _ in points], [copies[0] for _, copies in points]
        below, above = [c[0] - c[1] for _, c in points], [c[2] - c[0] for _, c in points]
        axes.errorbar(x, middle, [below, above], color=COLOURS[name], marker=MARKERS[name], markersize=5, capsize=3,
                      label=CONTENDERS[name].title)  # fmt: skip
    # On each link only payload, at the shaped rate; the copy that everything is measured by has headers too.
    scale = results.best_copy_seconds / results.copy_seconds
    line: dict[str, Any] = {"color": "black", "linewidth": 1}
    bound = [scale * (limits.swarm_limit(n, results.pieces) if start == "simultaneous" else 1.0) for n in counts]
    axes.plot(counts, bound, linestyle="--", label="limit of any way", **line)
    if start == "simultaneous":
        axes.plot(
            counts, [scale * limits.star_limit(n) for n in counts], linestyle=":", label="limit of a star", **line
        )
        axes.plot(
            counts,
            [scale * limits.whole_limit(n) for n in counts],
            linestyle="-.",
            label="limit of whole copies",
            **line,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(counts, [str(n) for n in counts])
    ticks = [0.5, 1, 2, 4, 8, 16]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(0.8, max(4.0, axes.get_ylim()[1]))
    axes.set_xlabel("receivers")
    axes.set_ylabel("slowest receiver, in copies' time")
    axes.set_title(f"{start.capitalize()} start, {results.rate:g} Mbit/s links, {results.size / 1e6:.0f} MB")
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=8, frameon=False)
    return figure


def _taxes(pyplot: Any, results: Results) -> Any:
    figure, axes = pyplot.subplots(figsize=(8, 4))
    names = [name for name in CONTENDERS if list(results.taxes(name))]
    faults = results.faults
    width = 0.8 / len(names)
    for k, name in enumerate(names):
        tax = {fault: seconds for fault, _, seconds in results.taxes(name)}
        axes.bar([i + k * width for i in range(len(faults))], [tax.get(fault, 0.0) for fault in faults], width,
                 color=COLOURS[name], label=CONTENDERS[name].title)  # fmt: skip
    axes.axhline(STALL_SECONDS, color="black", linewidth=1, linestyle="--", label="stall time")
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(faults))], faults)
    axes.set_ylabel("seconds beyond the play without a fault")
    axes.set_title("First of two sources fails half way")
    axes.legend(fontsize=8, frameon=False)
    return figure
