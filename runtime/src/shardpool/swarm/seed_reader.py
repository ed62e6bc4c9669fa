"""Reads pieces, rather than files, from a seed."""

from __future__ import annotations

import threading
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


class SeedRead:
    """One read under way, which may be given up: a seed can hang for as long as it likes, and a piece's memory cannot wait for that.

    The bytes come into memory of the reading thread, and are copied to their destination at once or not at all.
    """

    def __init__(self, destination: Sequence[memoryview]) -> None:
        self._destination = destination
        self._lock = threading.Lock()
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Nobody waits for the bytes any more."""
        return self._cancelled

    def cancel(self) -> None:
        """Give the read up; when this returns, nothing is written to the destination any more."""
        with self._lock:
            self._cancelled = True

    def deliver(self, content: memoryview) -> bool:
        """Copy the bytes to their destination, unless the read was given up."""
        used = 0
        with self._lock:
            if self._cancelled:
                return False
            for view in self._destination:
                view[:] = content[used : used + view.nbytes]
                used += view.nbytes
            return True


__all__ = ["SeedRead", "read_piece"]
