"""Plots of a run: time over the number of receivers, with the limit drawn, and the failure tax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netns import limits
from netns.contenders import CONTENDERS
from netns.contenders.base import STALL_SECONDS
from netns.machine import BenchError
from netns.results import Results

COLOURS = {"star": "#b0413e", "whole": "#d98e04", "bittorrent": "#6b7280", "warm": "#0b6e4f", "cold": "#1d5fa8"}
MARKERS = {"star": "s", "whole": "^", "bittorrent": "D", "warm": "o", "cold": "v"}


def draw(results: Results, folder: Path) -> list[str]:
    """Draw what the results have; returns the files' names. Raises BenchError without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise BenchError("matplotlib is not installed: `make setup` does it, or pip install matplotlib") from None
    mpl.use("svg")
    mpl.rcParams.update(
        {"svg.hashsalt": "swarm", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    )
    names = [_times(results, start, folder) for start in results.starts]
    if any(list(results.taxes(name)) for name in CONTENDERS):
        names.append(_taxes(results, folder))
    return names


def _times(results: Results, start: str, folder: Path) -> str:
    from matplotlib import pyplot

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
    return _save(figure, folder, f"swarm-{start}.svg")


def _taxes(results: Results, folder: Path) -> str:
    from matplotlib import pyplot

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
    return _save(figure, folder, "swarm-failure.svg")


def _save(figure: Any, folder: Path, name: str) -> str:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(folder / name, metadata={"Date": None})
    pyplot.close(figure)
    return name
