"""All peers of a rank, ready or not, from the DNS name of a headless Service."""

from __future__ import annotations

from shardpool.discovery.dns import Resolver
from shardpool.discovery.pattern import fill, split
from shardpool.discovery.resolving import ResolvingDiscovery, Target


class HeadlessDiscovery(ResolvingDiscovery):
    """Every A and AAAA record of the name is a peer (or this replica itself, which the handshake tells).

    Args:
        pattern: DNS name; `{rank}` is replaced, a port may be given.
        rank: global rank.
        port: what a process of the rank binds, where the pattern gives none.
        resolver: asks DNS.
    """

    def __init__(self, pattern: str, rank: int, port: int, *, resolver: Resolver | None = None) -> None:
        setting = "SHARDPOOL_PEERS_PATTERN"
        host, given = split(fill(pattern, setting, rank=rank), setting)
        super().__init__([Target(host, given or port)], resolver=resolver)
