"""Reads pieces, rather than files, from a seed."""

from __future__ import annotations

from collections.abc import Sequence

from shardpool.model.catalog import Catalog
from shardpool.seed.base import Seed


def read_piece(seed: Seed, catalog: Catalog, piece: int, destination: Sequence[memoryview]) -> None:
    """Fill `destination` (in all exactly the piece's length) with a piece's bytes. Blocks. Raises SeedError."""
    views = [view.cast("B") for view in destination if view.nbytes]
    index, used = 0, 0
    for span in catalog.spans(catalog.piece_start(piece), catalog.piece_length(piece)):
        path, offset, left = catalog.files[span.file].path, span.offset, span.length
        while left:
            part = views[index][used : used + left]
            seed.read_into(path, offset, part)
            offset, left, used = offset + part.nbytes, left - part.nbytes, used + part.nbytes
            if used == views[index].nbytes:
                index, used = index + 1, 0


__all__ = ["read_piece"]
