"""A shard's contents: files, extents, tensors, pieces. The same for every replica of one identity."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from blake3 import blake3

from shardpool.errors import CatalogError
from shardpool.model.limits import DEFAULT_LIMITS, Limits
from shardpool.model.tensors import Tensor, TensorTable

__all__ = [
    "DIGEST_SIZE",
    "KIB",
    "LARGEST_PIECE",
    "MIB",
    "SMALLEST_PIECE",
    "Catalog",
    "Extent",
    "FileEntry",
    "Limits",
    "Span",
    "Tensor",
    "piece_size_for",
]

KIB = 1024
MIB = 1024 * KIB
SMALLEST_PIECE = 256 * KIB
LARGEST_PIECE = 16 * MIB
DIGEST_SIZE = 32


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of the model: its relative POSIX path and its size in bytes (of the whole file, also where a shard holds a part)."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of a file's bytes that the shard holds: `length` bytes from `offset` of file number `file` lie at `start` in the shard."""

    start: int
    file: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Span:
    """A run of bytes inside one file."""

    file: int
    offset: int
    length: int


def piece_size_for(shard_size: int) -> int:
    """The power of two nearest to a thousandth of the shard, from 256 KiB to 16 MiB (DESIGN.md, "piece")."""
    target = shard_size / 1000
    size = SMALLEST_PIECE
    while size < LARGEST_PIECE and target - size > size * 2 - target:
        size *= 2
    return size


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """The outline of a shard.

    Two catalogs are equal when they encode to the same bytes, which is what `digest` compares.

    Attributes:
        layout: `whole`, `striped` or `sharded`.
        world: number of parts of a replica.
        rank: which part this is.
        files: the files that the shard holds bytes of (and empty ones), sorted by path.
        extents: runs of file bytes in the order of file and offset, without gaps in the shard.
        tensors: any sequence; kept as a `TensorTable`, in the order of their bytes.
        piece_size: bytes of a piece (the last one is shorter); 0 stands for `piece_size_for(size)`.
        size: bytes of the shard.
    """

    layout: str
    world: int
    rank: int
    files: tuple[FileEntry, ...]
    extents: tuple[Extent, ...]
    tensors: Sequence[Tensor] = ()
    piece_size: int = 0
    size: int = field(init=False)
    _starts: list[int] = field(init=False, repr=False)
    _cache: dict[str, bytes] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        size = 0
        for extent in self.extents:
            if extent.start != size or extent.length < 1 or not 0 <= extent.file < len(self.files):
                raise CatalogError(f"extent {extent} does not follow its predecessor, which ends at {size}")
            size += extent.length
        set_field(self, "size", size)
        set_field(self, "_starts", [extent.start for extent in self.extents])
        if self.piece_size == 0:
            set_field(self, "piece_size", piece_size_for(size))
        if self.piece_size < 1:
            raise CatalogError(f"a piece of {self.piece_size} bytes")
        if not isinstance(self.tensors, TensorTable):
            runs = [(extent.file, extent.offset, extent.offset + extent.length) for extent in self.extents]
            set_field(self, "tensors", TensorTable.of(self.tensors, runs))

    @property
    def table(self) -> TensorTable:
        """The tensors in columns."""
        if not isinstance(self.tensors, TensorTable):
            raise TypeError("tensors are kept in columns")
        return self.tensors

    @property
    def pieces(self) -> int:
        """Number of pieces; a shard without bytes has none."""
        return -(-self.size // self.piece_size)

    @property
    def digest(self) -> bytes:
        """BLAKE3 (32 bytes) of the encoded outline: what peers compare."""
        if "digest" not in self._cache:
            self._cache["digest"] = blake3(self.encode()).digest()
        return self._cache["digest"]

    def piece_start(self, piece: int) -> int:
        """Where in the shard a piece begins. Raises IndexError for a piece that is not there."""
        if not 0 <= piece < self.pieces:
            raise IndexError(f"piece {piece} of {self.pieces}")
        return piece * self.piece_size

    def piece_length(self, piece: int) -> int:
        """Bytes of a piece. Raises IndexError for a piece that is not there."""
        return min(self.piece_size, self.size - self.piece_start(piece))

    def spans(self, start: int, length: int) -> list[Span]:
        """Where in the files `length` bytes from `start` of the shard lie, in order.

        Raises IndexError when they are not all inside the shard.
        """
        if start < 0 or length < 0 or start + length > self.size:
            raise IndexError(f"bytes {start} to {start + length} of a shard of {self.size}")
        spans: list[Span] = []
        index = bisect_right(self._starts, start) - 1
        while length > 0:
            extent = self.extents[index]
            inside = start - extent.start
            taken = min(length, extent.length - inside)
            spans.append(Span(extent.file, extent.offset + inside, taken))
            start, length, index = start + taken, length - taken, index + 1
        return spans

    def piece_spans(self, piece: int) -> list[Span]:
        """Where in the files a piece lies, in order."""
        return self.spans(self.piece_start(piece), self.piece_length(piece))

    def encode(self) -> bytes:
        """The one encoding of this content: little-endian columns, see `model/encoding.py`."""
        if "encoded" not in self._cache:
            from shardpool.model.encoding import encode  # (the encoding needs this class)

            self._cache["encoded"] = encode(self)
        return self._cache["encoded"]

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, limits: Limits = DEFAULT_LIMITS) -> Catalog:
        """The catalog that a peer sent, fully checked. Raises CatalogError before anything large is allocated."""
        from shardpool.model.encoding import decode

        return decode(data, limits)

    def remember_encoding(self, encoded: bytes) -> None:
        """Spare `encode` the work where the (checked) encoding is at hand."""
        self._cache["encoded"] = encoded

    def __eq__(self, other: object) -> bool:
        return self.encode() == other.encode() if isinstance(other, Catalog) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)
