"""Time, storage and control traffic over the number of replicas, with the targets drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from plotting import new_plots, save

from simulation.parts import CHURN, COLD, MANY, WARM
from simulation.results import Results
from simulation.targets import STORAGE, TIME, fit

COLOURS = {COLD: "#1d5fa8", CHURN: "#b0413e", WARM: "#0b6e4f"}
MARKERS = {COLD: "v", CHURN: "s", WARM: "o"}
SERIES = (("growth", COLD), ("churn", CHURN), ("warm", WARM))


def draw(results: Results, path: Path) -> None:
    """Draw what the results have. Raises PlotError without matplotlib."""
    pyplot = new_plots("simulation", font_size=9)
    figure, (time, storage, control) = pyplot.subplots(1, 3, figsize=(12, 4))
    _measure(results, time, "time", "slowest replica, in copies' time")
    _limit(results, time)
    time.axhline(TIME, color="black", linewidth=1, linestyle="--", label=f"target for {MANY:,}")
    time.set_ylim(bottom=0.9)
    _measure(results, storage, "storage", "read from storage, in copies")
    storage.axhline(STORAGE, color="black", linewidth=1, linestyle="--", label=f"target for {MANY:,}")
    storage.set_ylim(bottom=0)
    _measure(results, control, "control", "control messages per replica")
    _logarithm(results, control)
    control.set_ylim(bottom=0)
    for axes in (time, storage, control):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8, frameon=False)
    save(pyplot, figure, path)


def _measure(results: Results, axes: Any, measure: str, title: str) -> None:
    sizes = sorted({size for part, name in SERIES for size in results.sizes(part, name)})
    for part, name in SERIES:
        groups = list(results.groups(part, name))
        if not groups or (part == "warm" and measure == "storage"):
            continue
        x, middle = [group.case.replicas for group in groups], [group.middle(measure) for group in groups]
        below = [m - min(group.values(measure)) for m, group in zip(middle, groups, strict=True)]
        above = [max(group.values(measure)) - m for m, group in zip(middle, groups, strict=True)]
        axes.errorbar(x, middle, [below, above], color=COLOURS[name], marker=MARKERS[name], markersize=5, capsize=3,
                      linestyle="-" if part == "growth" else "none", label=name)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("replicas")
    axes.set_ylabel(title)
    axes.grid(visible=True, alpha=0.25)


def _limit(results: Results, axes: Any) -> None:
    groups = list(results.groups("growth", COLD))
    if groups:
        bound = [1 + math.floor(math.log2(group.case.replicas)) / group.case.pieces for group in groups]
        x = [group.case.replicas for group in groups]
        axes.plot(x, bound, color="black", linewidth=1, linestyle=":", label="limit from one source")


def _logarithm(results: Results, axes: Any) -> None:
    grown = fit(results)
    if grown is not None:
        scale = grown.messages[0] / math.log2(grown.sizes[0])
        line = [scale * math.log2(size) for size in grown.sizes]
        label = f"growth as log N from {grown.sizes[0]}"
        axes.plot(grown.sizes, line, color="black", linewidth=1, linestyle="--", label=label)


__all__ = ["draw"]
