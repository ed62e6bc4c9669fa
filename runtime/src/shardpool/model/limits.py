"""What a catalog from a peer, or a checkpoint's headers, may hold at most. Checked before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

TIB = 1 << 40


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on a model. The defaults pass every published model (the largest are near 2 TB and 200,000 tensors).

    Attributes:
        total_bytes: bytes of all files together, and of a shard.
        files: number of files.
        extents: number of runs of file bytes in a shard.
        tensors: number of tensors in a shard.
        dimensions: dimensions of a tensor.
        pieces: number of pieces of a shard.
        path_bytes: bytes of a file's path in UTF-8.
        name_bytes: bytes of a tensor's name in UTF-8.
        encoded_bytes: bytes of an encoded catalog.
        header_bytes: bytes of all headers of a checkpoint.
    """

    total_bytes: int = 8 * TIB
    files: int = 65_536
    extents: int = 131_072
    tensors: int = 2_000_000
    dimensions: int = 32
    pieces: int = 1 << 20
    path_bytes: int = 1024
    name_bytes: int = 4096
    encoded_bytes: int = 256 << 20
    header_bytes: int = 512 << 20


DEFAULT_LIMITS = Limits()
