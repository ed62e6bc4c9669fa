"""The look of plots under docs, and files that are the same whenever they are drawn from the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class PlotError(Exception):
    """There is nothing to draw with."""


def new_plots(salt: str, *, font_size: int) -> Any:
    """matplotlib's `pyplot`, set up for SVG whose element ids follow from `salt`. Raises PlotError without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise PlotError("matplotlib is not installed: `make setup` does it, or pip install matplotlib") from None
    mpl.use("svg")
    mpl.rcParams.update(
        {"svg.hashsalt": salt, "font.size": font_size, "axes.spines.top": False, "axes.spines.right": False}
    )
    from matplotlib import pyplot

    return pyplot


def save(pyplot: Any, figure: Any, path: Path) -> None:
    """Write a figure, without the date, and let it go."""
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


__all__ = ["PlotError", "new_plots", "save"]
