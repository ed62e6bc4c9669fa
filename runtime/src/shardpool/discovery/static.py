"""Peers from a list in the settings: laptops, benchmarks, machines without Kubernetes."""

from __future__ import annotations

from shardpool.discovery.dns import Resolver
from shardpool.discovery.pattern import fill, split
from shardpool.discovery.resolving import ResolvingDiscovery, Target
from shardpool.errors import ConfigurationError


class StaticDiscovery(ResolvingDiscovery):
    """The peers of `HOST:PORT,...`; names are resolved, and resolved again while somebody watches.

    Args:
        peers: comma-separated; `{rank}` and `{port}` are replaced, and an entry without a port gets `port`.
        rank: global rank.
        port: what a process of the rank binds.
        resolver: asks DNS.
    """

    def __init__(self, peers: str, rank: int, port: int, *, resolver: Resolver | None = None) -> None:
        setting = "SHARDPOOL_PEERS"
        entries = [entry.strip() for entry in peers.split(",") if entry.strip()]
        if not entries:
            raise ConfigurationError(f"{setting} names no peer", hint="write HOST:PORT,HOST:PORT")
        targets = []
        for entry in entries:
            host, given = split(fill(entry, setting, rank=rank, port=port), setting)
            targets.append(Target(host, given or port))
        super().__init__(targets, resolver=resolver)
