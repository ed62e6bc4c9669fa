"""Counts what the links of a simulated network say to each other, by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from shardpool.discovery.base import Endpoint
from shardpool.swarm.state import Party, PeerInfo, PeerUpdate
from shardpool.transport.base import Link, Listener
from shardpool.transport.loopback import LoopbackLink, LoopbackTransport

KINDS = ("handshakes", "pieces", "claims", "loads")


class _Ear:
    """A listener that counts, and passes everything on. Each message counts twice: sent and received."""

    def __init__(self, listener: Listener, counts: Counter[str]) -> None:
        self._listener, self._counts = listener, counts
        self._opened = False
        self.progress, self.landed = listener.progress, listener.landed
        self.failed, self.closed = listener.failed, listener.closed

    def opened(self, link: Link, info: PeerInfo) -> None:
        if not self._opened:  # told again once the peer has an outline, without a message
            self._opened = True
            self._counts["handshakes"] += 1
        self._listener.opened(link, info)

    def outline(self, link: Link, encoded: bytes) -> None:
        self._counts["handshakes"] += 2
        self._listener.outline(link, encoded)

    def updated(self, link: Link, update: PeerUpdate) -> None:
        kind = "pieces" if update.added or update.withdrawn else "claims" if update.claims is not None else "loads"
        self._counts[kind] += 2
        self._listener.updated(link, update)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the messages of all links that are opened meanwhile, by `KINDS`."""
    counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    connect = LoopbackTransport.connect

    def listening(transport: LoopbackTransport, endpoint: Endpoint, caller: Party, listener: Listener) -> LoopbackLink:
        counts["handshakes"] += 1
        return connect(transport, endpoint, caller, _Ear(listener, counts))

    with mock.patch.object(LoopbackTransport, "connect", listening):
        yield counts


__all__ = ["KINDS", "counted"]
