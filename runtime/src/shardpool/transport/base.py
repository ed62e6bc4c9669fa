"""How bytes move: the interfaces between the driver of a load and whatever carries control calls and pieces.

Nothing here blocks its caller. What becomes of a request is told to the `Listener`, from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shardpool.discovery.base import Endpoint
from shardpool.errors import ShardpoolError, TransportError
from shardpool.swarm.state import Party, PeerInfo, PeerUpdate


class Listener(Protocol):
    """Who is told. Calls must return quickly (put the event in a queue). After `closed`, a link tells nothing more."""

    def opened(self, link: Link, info: PeerInfo) -> None:
        """The peer answered the handshake and belongs to this pool."""

    def updated(self, link: Link, update: PeerUpdate) -> None:
        """The peer announced something."""

    def outline(self, link: Link, encoded: bytes) -> None:
        """The peer's encoded outline arrived, as yet unchecked."""

    def progress(self, link: Link, piece: int, received: int) -> None:
        """`received` more bytes of a requested piece arrived."""

    def landed(self, link: Link, piece: int, digest: bytes | None) -> None:
        """All bytes of a piece are in its destination, and nothing of this link writes there any more.

        `digest` is the BLAKE3 of the bytes as this process wrote them, where the transport computed it on the way, else None.
        """

    def failed(self, link: Link, piece: int, error: TransportError) -> None:
        """A requested piece will not land, and nothing of this link writes to its destination any more."""

    def closed(self, link: Link, error: ShardpoolError | None) -> None:
        """The link ended; every requested piece was settled by `landed` or `failed` before. None: closed by this side."""


class Link(Protocol):
    """A conversation with one peer process."""

    endpoint: Endpoint

    def request_outline(self) -> None:
        """Ask for the outline; answered by `outline`, or the link closes."""

    def request(self, piece: int, destination: Sequence[memoryview], *, first: bool = False) -> None:
        """Ask for a piece. The destination (writable, in all exactly the piece's length) belongs to the link until it settles the piece.

        `first`: not if the peer has sent it to somebody else; it may then fail with PieceLentError.
        """

    def abandon(self, piece: int) -> None:
        """Give a requested piece up. It is settled by `failed` with AbandonedError as soon as no write can follow."""

    def close(self) -> None:
        """End the conversation; requested pieces are settled, then `closed` is told."""


class Transport(Protocol):
    """Opens links. `name` is what metrics and summaries show."""

    name: str

    def connect(self, endpoint: Endpoint, caller: Party, listener: Listener) -> Link:
        """Start a conversation; `opened` or `closed` follows within the connect deadline."""

    def close(self) -> None:
        """Close every link and wait (bounded) until they are settled."""
