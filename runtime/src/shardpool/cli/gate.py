"""`shardpool gate`."""

from __future__ import annotations

import threading
from typing import Any

import click

from shardpool.cli.options import load_settings, settings_options


@click.command()
@settings_options(
    "Operation",
    only=(
        "world",
        "local_ranks",
        "first_rank",
        "pod_index",
        "worker_grpc_port",
        "bind_host",
        "http_port",
        "http_host",
        "connect_seconds",
    ),
)
def gate(**flags: Any) -> int:
    """Tell readiness of a pod whose engine loads with ModelExpress, until SIGTERM.

    /readyz answers 200 when the engine's health URL passes and every rank of this pod has published its tensors. /livez, /status and
    /metrics are beside it.
    """
    settings = load_settings(flags, layout="sharded")  # the parts are the engine's ranks
    from shardpool.probe.gate import Gate
    from shardpool.stop_signals import stop_signals

    stop = threading.Event()
    with stop_signals(lambda _: stop.set()):
        Gate(settings).run(stop)
    return 0
