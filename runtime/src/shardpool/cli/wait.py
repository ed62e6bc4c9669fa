"""`shardpool wait`."""

from __future__ import annotations

import signal
import sys
from typing import Any

import click

from shardpool.cli.options import load_settings, settings_options


@click.command()
@settings_options(
    "Peers",
    "Operation",
    only=(
        "world",
        "local_ranks",
        "first_rank",
        "pod_index",
        "worker_grpc_port",
        "bind_host",
        "wait_for_peers_seconds",
        "connect_seconds",
    ),
)
def wait(**flags: Any) -> int:
    """Hold a pod back until a peer is ready, or this pod is elected to read storage, or the time is up.

    Of a pool that starts cold exactly one replica goes first; the others find it ready. Always exits 0: whatever peers do, the engine may
    start then.
    """
    settings = load_settings(flags, layout="sharded")  # the parts are the engine's ranks
    from shardpool.log import logger
    from shardpool.probe.wait import wait as hold_back

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the first process of a container has no default for it
    outcome = hold_back(settings)
    logger(__name__).info("go on (%s): %s", outcome.kind, outcome.reason)
    return 0
