"""`shardpool serve`."""

from __future__ import annotations

from typing import Any

import click

from shardpool.cli.options import load_settings, settings_options


@click.command()
@settings_options("Model", "Topology", "Store", "Seed", "Peers", "Serving", "Time", "Operation")
def serve(**flags: Any) -> int:
    """Fill the model directory from peers and the seed, then serve it until SIGTERM.

    /readyz, /livez, /status and /metrics are on the HTTP port. Pieces are served as soon as they are verified; the directory appears when
    every rank of this pod is complete.
    """
    settings = load_settings(flags)
    from shardpool.node import Node

    return Node(settings, staying=True).run()
