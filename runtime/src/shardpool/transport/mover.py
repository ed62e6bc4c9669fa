"""How the bytes of pieces move once a link has agreed with a source and holds its lease.

A link (`grpc_link.py`) owns the conversation: handshake, announcements, outline, lease. A *mover* (`stream.py`, `nixl.py`) carries
pieces under that lease. One mover serves every link of a process; it makes one *reader* for each lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shardpool.errors import TransportError
from shardpool.swarm.state import PeerInfo

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True, slots=True)
class OfferedRegion:
    """A run of the shard, `length` bytes from `start`, lies at `address` of the source's process, on `device`."""

    start: int
    length: int
    address: int
    device: int = 0


@dataclass(frozen=True, slots=True)
class NixlOffer:
    """What a source says of its NIXL agent. Regions are sorted, disjoint and inside the shard; `metadata` matched its digest."""

    agent_name: str
    metadata: bytes
    regions: tuple[OfferedRegion, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to read, by the process `instance` and by no other.

    `seconds` is how long it lasts from its acquisition unless renewed (the link renews it); `rate_limit` in bytes per second, 0 is none.
    """

    lease_id: str
    instance: str
    seconds: float
    rate_limit: int = 0
    nixl: NixlOffer | None = None


class PieceSink(Protocol):
    """Who is told what became of pieces: the link. Calls return quickly and may come from any thread, never under a reader's lock."""

    def progress(self, piece: int, received: int) -> None:
        """`received` more bytes of a requested piece arrived."""

    def landed(self, piece: int, digest: bytes | None) -> None:
        """All bytes of a piece are in its destination and nothing writes there any more; `digest` as in `transport.base`."""

    def failed(self, piece: int, error: TransportError) -> None:
        """The piece will not land, and nothing writes to its destination any more."""

    def broken(self, error: TransportError) -> None:
        """The reader can carry nothing more. Every piece was settled before; further requests settle as failed at once."""


class PieceReader(Protocol):
    """Reads pieces from one source under one lease. No call blocks, but for `close`."""

    def request(self, piece: int, destination: Sequence[memoryview], *, first: bool = False) -> None:
        """Read a piece; the link has checked that the destination is exactly the piece's length and not under way.

        `first`: not if another receiver was sent it, where the source can tell; it then fails with PieceLentError.
        """

    def abandon(self, piece: int) -> None:
        """Give a piece up: settled by `failed` with AbandonedError once no write can follow. A settled piece is no error."""

    def set_rate_limit(self, rate_limit: int) -> None:
        """From now on take at most so many bytes per second (0 is no limit), where the source cannot see to it itself."""

    def close(self) -> None:
        """Settle everything with AbandonedError, free what is held, join threads (bounded). `broken` does not follow. May be repeated."""


class PieceMover(Protocol):
    """Makes readers. `name` is `stream` or `nixl`: what a source lists among its transports and what a lease asks for."""

    name: str

    def open(self, channel: grpc.Channel, info: PeerInfo, grant: Grant, sink: PieceSink) -> PieceReader:
        """Begin to read from the source that gave `grant`.

        `channel` is the link's connection to it, `info` its checked answer to the handshake with the outline known.
        Called on the link's own thread, so it may take a while (at most the connect deadline). Raises TransportError.
        """

    def close(self) -> None:
        """Free what is shared by readers; every reader was closed before."""
