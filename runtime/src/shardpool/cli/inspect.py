"""`shardpool inspect`."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from shardpool.cli.options import load_settings, settings_options
from shardpool.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardpool.transport.inspection import Inspection

_WATCH_SECONDS = 1.0
_LOCAL_RANKS = next(field.metadata["names"] for field in dataclasses.fields(Settings) if field.name == "local_ranks")


@click.command()
@click.argument("target")
@click.option("--rank", type=click.IntRange(0), default=0, help="Global rank to look at. Default 0.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (with --watch, one a line each second).")
@click.option("--watch", is_flag=True, help="Look again each second until Ctrl-C.")
@click.option(
    "--local-ranks",
    type=click.IntRange(1, 1024),
    envvar=_LOCAL_RANKS,
    help="Ranks in a pod of the target, for the port. Default: all that are up to RANK.",
)
@settings_options(only=("worker_grpc_port", "connect_seconds", "tls_cert", "tls_key", "tls_ca"))
def inspect(target: str, rank: int, as_json: bool, watch: bool, local_ranks: int | None, **flags: Any) -> int:
    """Show what a peer or a pool holds, live.

    TARGET is a Service or headless Service (every address behind the name is asked), HOST:PORT, or a comma-separated list of them;
    `{rank}` is replaced. Without a port it is the worker's base port plus the rank's place in its pod.
    """
    in_a_pod = local_ranks or rank + 1
    # The target's topology counts, not that of the pod in which this runs.
    settings = load_settings(flags, world="65536", layout="striped", first_rank="0", local_ranks="1")
    from shardpool.discovery.static import StaticDiscovery
    from shardpool.errors import NoSourceError
    from shardpool.transport.inspection import inspect_peers

    discovery = StaticDiscovery(target, rank, settings.worker_grpc_port + rank % in_a_pod)
    try:
        while True:
            listing = discovery.list()
            found = inspect_peers(listing.endpoints, settings)
            if watch and sys.stdout.isatty() and not as_json:
                click.clear()
            _show(found, listing.problem, as_json, compact=watch)
            if not watch:
                break
            threading.Event().wait(_WATCH_SECONDS)
    finally:
        discovery.close()
    if not any(peer.info for peer in found):
        reasons = "; ".join(f"{peer.endpoint.target}: {peer.problem}" for peer in found) or listing.problem
        raise NoSourceError(f"no source at {target}: {reasons or 'the name has no address'}")
    return 0


def _show(found: Sequence[Inspection], problem: str, as_json: bool, *, compact: bool) -> None:
    if as_json:
        result = {"peers": [peer.as_json() for peer in found], "problem": problem}
        click.echo(json.dumps(result, indent=None if compact else 2))
        return
    from rich.console import Console

    # A pipe has no width of its own, and cut-off digests are of no use to whoever reads it.
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(_table(found))
    for peer in found:
        if peer.info is not None:
            party = peer.info.party
            console.print(f"{peer.endpoint.target}: identity {party.mx_source_id} {party.identity_json}", markup=False)
            digests = f"catalog {party.catalog_digest.hex() or 'not known yet'}, content {peer.content_digest or 'not complete'}"
            console.print(f"{peer.endpoint.target}: {digests}", markup=False)
    if problem:
        console.print(f"the list may be incomplete: {problem}", markup=False)


def _table(found: Sequence[Inspection]) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("PEER", "STATE", "RANK", "PIECES", "BYTES", "READERS", "SENDING", "TRANSPORTS", "INSTANCE"):
        table.add_column(title, overflow="fold")
    for peer in found:
        info = peer.info
        if info is None:
            table.add_row(peer.endpoint.target, "not used", *[""] * 6, escape(peer.problem))
            continue
        table.add_row(
            peer.endpoint.target,
            info.phase.name.lower(),
            f"{info.party.rank}/{info.party.world}",
            f"{peer.held}/{info.piece_count}",
            f"{_size(peer.held_bytes)} of {_size(info.shard_size)}",
            f"{info.load.readers}/{info.load.max_readers}",
            f"{_size(info.load.egress)}/s",
            escape(", ".join(info.transports)),
            info.party.instance,
        )
    return table


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} TiB"
