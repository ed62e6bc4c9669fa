"""What a checkpoint is read from, and what the rest of shardpool needs of the place where a shard's bytes lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from shardpool.model.catalog import Catalog


class Region(NamedTuple):
    """A run of the shard's bytes, [start, start + length), lies at `address` of this process."""

    start: int
    length: int
    address: int


class PublishedFile(Protocol):
    """A file as its publisher lists it: what `shardpool.seed.base.SeedFile` is."""

    @property
    def path(self) -> str:
        """Relative, POSIX."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def sha256(self) -> str:
        """64 hex digits, or empty where it is not stated."""


class Published(Protocol):
    """What reading a checkpoint needs of a seed."""

    def describe(self) -> str:
        """One phrase for errors."""

    def files(self) -> Sequence[PublishedFile]:
        """Every file."""

    def read_into(self, path: str, offset: int, buffer: memoryview) -> None:
        """Fill the whole buffer from `offset` of a file. Thread-safe."""


class PieceStore(Protocol):
    """The bytes of one shard, by piece. `ShardStore` keeps them in the model directory. Thread-safe between `open` and `close`.

    Every call may raise StoreError: it names the path and what is needed.
    """

    catalog: Catalog

    def open(self) -> dict[int, bytes]:
        """Make room for the shard and return the pieces that are there already, verified, with their digests (32 bytes)."""

    def destination(self, piece: int) -> list[memoryview]:
        """Writable memory for a piece, in all exactly its length. What lands there is part of the file at once."""

    def contents(self, piece: int) -> list[memoryview]:
        """The bytes of a piece, read-only, without a copy."""

    def digest(self, piece: int) -> bytes:
        """BLAKE3 of what is there now. Releases the interpreter lock while it works."""

    def record(self, piece: int, digest: bytes) -> None:
        """Remember, also beyond the death of this process, that a piece is verified."""

    def forget(self, piece: int) -> None:
        """Take `record` back."""

    def forget_file(self, path: str) -> list[int]:
        """Take `record` back for every piece that holds bytes of a file; which they were."""

    def regions(self) -> Sequence[Region]:
        """Read-only memory of the whole shard, for serving. Addresses hold until `close`, through `seal`."""

    def writable_regions(self) -> Sequence[Region]:
        """Writable memory of the whole shard, for receiving. Addresses hold until `seal`."""

    def prefault(self) -> None:
        """Start touching destinations ahead of their bytes, in a thread that `seal` or `close` ends."""

    def seal(self) -> None:
        """Give up writing: no destination any more. Idempotent."""

    def close(self) -> None:
        """End the thread, unmap, unlock. Memory that somebody still looks at stays mapped until they let go. Idempotent."""
