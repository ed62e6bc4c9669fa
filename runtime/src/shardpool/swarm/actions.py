"""What the scheduler asks its driver to do. Links are known by the number that `Connect` gives them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from shardpool.discovery.base import Endpoint
from shardpool.errors import ShardpoolError


class Resolve(NamedTuple):
    """List the pool's endpoints anew; answered by `Scheduler.listed`."""


class Connect(NamedTuple):
    """Open a link and call it `link`; answered by `opened` or `closed`."""

    link: int
    endpoint: Endpoint


class Close(NamedTuple):
    """End a link; answered by `failed` for what it still carries, then `closed`."""

    link: int


class Scan(NamedTuple):
    """Make the outline from the seed's headers, no peer having one; answered by `planned` or `seed_lost`."""


class RequestOutline(NamedTuple):
    """Ask a link for the outline; answered by `planned` or `outline_refused`."""

    link: int


class Request(NamedTuple):
    """Ask a link for a piece, into its place in the store or, where another transfer owns that place, into scratch memory.

    `first`: it seems to be on offer there only, and is wanted only if nobody else was sent it.
    """

    link: int
    piece: int
    scratch: bool
    first: bool


class Abandon(NamedTuple):
    """Give up a piece asked of a link; answered by `failed` (or `landed`) once nothing can write any more.

    With `SEED` for a link it is a read from the seed, and settled when this is carried out: no answer follows.
    """

    link: int
    piece: int


class ReadSeed(NamedTuple):
    """Read a piece from the seed; answered by `seed_landed` or `seed_failed`."""

    piece: int
    scratch: bool


class Keep(NamedTuple):
    """A piece is verified: `source` (a link, or `SEED`) brought it. From scratch memory it is copied to its place first.

    The driver records it in the store and announces it.
    """

    piece: int
    digest: bytes
    source: int
    scratch: bool


class Discard(NamedTuple):
    """A transfer's scratch memory is of no use any more."""

    piece: int
    source: int


class Withdraw(NamedTuple):
    """A held piece turned out to be wrong: announce that, and forget it."""

    piece: int


class Claim(NamedTuple):
    """Announce the set of pieces (as bits) that this replica is bringing into the pool: from the seed, or from their only source."""

    pieces: int


class Finish(NamedTuple):
    """The load is over: complete (None), or failed with an error."""

    error: ShardpoolError | None


Action: TypeAlias = (
    Resolve
    | Connect
    | Close
    | Scan
    | RequestOutline
    | Request
    | Abandon
    | ReadSeed
    | Keep
    | Discard
    | Withdraw
    | Claim
    | Finish
)
SEED = -1  # the seed, where a link's number is expected

__all__ = [
    "SEED",
    "Abandon",
    "Action",
    "Claim",
    "Close",
    "Connect",
    "Discard",
    "Finish",
    "Keep",
    "ReadSeed",
    "Request",
    "RequestOutline",
    "Resolve",
    "Scan",
    "Withdraw",
]
