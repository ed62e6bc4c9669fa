"""Rows with their targets, for people and for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One number. `reach` is what it should be, at least or at most as `least` says; None where there is no target."""

    section: str
    what: str
    value: float
    unit: str
    reach: float | None = None
    least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.reach is None:
            return None
        return self.value >= self.reach if self.least else self.value <= self.reach

    @property
    def target(self) -> str:
        """The target as text."""
        return "" if self.reach is None else f"{'>=' if self.least else '<='} {self.reach:.4g} {self.unit}".rstrip()

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return dataclasses.asdict(self) | {"met": self.met}


@dataclass(frozen=True)
class Skipped:
    """A section that this machine cannot measure and what it lacks, or one that `failed`. It is shown, never left out."""

    section: str
    why: str
    failed: bool = False


def show(rows: Iterable[Row | Skipped]) -> None:
    """Print the table."""
    table = Table("", "measured", "target", "", "note", box=None, pad_edge=False)
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            table.add_row()
            table.add_row(f"[bold]{section}[/bold]")
        if isinstance(row, Skipped):
            table.add_row("  not measured", "", "", "", row.why)
            continue
        verdict = {True: "[green]met[/green]", False: "[red]missed[/red]", None: ""}[row.met]
        table.add_row(f"  {row.what}", f"{row.value:.4g} {row.unit}".rstrip(), row.target, verdict, row.note)
    Console(width=None if Console().is_terminal else 160).print(table)


def markdown(rows: Iterable[Row | Skipped]) -> str:
    """The table for a page."""
    lines = ["| | measured | target | | |", "|---|---|---|---|---|"]
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            lines.append(f"| **{section}** | | | | |")
        if isinstance(row, Skipped):
            lines.append(f"| not measured | | | | {row.why} |")
            continue
        verdict = {True: "met", False: "**missed**", None: ""}[row.met]
        lines.append(f"| {row.what} | {row.value:.4g} {row.unit} | {row.target} | {verdict} | {row.note} |")
    return "\n".join(lines)
