"""`shardpool pull`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from shardpool.cli.options import load_settings, settings_options

if TYPE_CHECKING:
    from shardpool.node import Node


@click.command()
@settings_options(
    "Model",
    "Topology",
    "Store",
    "Seed",
    "Peers",
    "Time",
    "Operation",
    only=("transport", "worker_grpc_port", "bind_host"),
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def pull(as_json: bool, **flags: Any) -> int:
    """Fill the model directory from peers and the seed, and exit.

    Nothing is served, and the directory is not visible before every byte of it is verified.
    """
    settings = load_settings(flags)
    from shardpool.node import Node

    bar = _Bar() if sys.stderr.isatty() and not as_json else None
    node = Node(settings, staying=False, progress=bar or _Lines())
    try:
        code = node.run()
    finally:
        if bar is not None:
            bar.close()
    if as_json:
        result = {"directory": settings.directory, "seconds": node.seconds, "ranks": list(node.summaries())}
        click.echo(json.dumps(result, indent=2))
    return code


def _totals(snapshots: Sequence[tuple[int, Mapping[str, Any]]]) -> tuple[int, int]:
    statuses = [answer.get("status", {}) for _, answer in snapshots]
    return sum(s.get("verified_bytes", 0) for s in statuses), sum(s.get("shard_bytes", 0) for s in statuses)


class _Bar:
    """A progress bar on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("filling", total=None)
        self._progress.start()

    def __call__(self, node: Node) -> None:
        done, total = _totals(node.snapshots())
        if total:
            self._progress.update(self._task, completed=done, total=total)

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    """A log line whenever another tenth is there."""

    def __init__(self) -> None:
        self._tenths = 0

    def __call__(self, node: Node) -> None:
        from shardpool.log import logger

        done, total = _totals(node.snapshots())
        if total and done * 10 // total > self._tenths:
            self._tenths = done * 10 // total
            logger(__name__).info("%d %% of %d bytes verified", self._tenths * 10, total)
