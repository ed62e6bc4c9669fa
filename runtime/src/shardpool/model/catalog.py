"""A shard's contents: files, extents, tensors, pieces. The same for every replica of one identity."""

from __future__ import annotations

from dataclasses import dataclass

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
class Tensor:
    """A tensor, or the part of it that the shard holds: `length` bytes from `offset` of file number `file`.

    `dtype` is the safetensors name, such as `BF16`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
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
