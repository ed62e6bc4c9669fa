"""Which pieces a complete replica has sent, so that each goes to one receiver before any goes to two.

Where many receivers have one complete source, they cannot all know of each other, and each would take what its own neighbours lack: the
source would send the same pieces again and again, while others wait for their first copy. So a receiver that passes pieces on says when one
seems to be on offer nowhere else. The source refuses it if another receiver was sent it, and says which others were: the receiver takes one
that was not, and gets the refused ones from the pool. A source that is asked without those words sends whatever it holds.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class FirstCopies:
    """The pieces that one source has lent, and to whom. Thread-safe; sets of pieces are bits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[Hashable, int] = {}
        self._lent = 0

    @property
    def lent(self) -> int:
        """The pieces that some receiver was sent, or is being sent."""
        return self._lent

    def lend(self, piece: int, reader: Hashable) -> bool:
        """Whether `reader` is the one to bring `piece` into the pool."""
        bit = 1 << piece
        with self._lock:
            own = self._readers.get(reader, 0)
            if self._lent & bit:
                return bool(own & bit)
            self._readers[reader] = own | bit
            self._lent |= bit
            return True

    def broke_off(self, piece: int, reader: Hashable) -> None:
        """The reader did not get the whole piece."""
        with self._lock:
            own = self._readers.get(reader, 0) & 1 << piece
            if own:
                self._readers[reader] ^= own
                self._lent ^= own

    @contextmanager
    def while_there(self, reader: Hashable) -> Iterator[None]:
        """What the reader is sent counts as lent until it leaves."""
        try:
            yield
        finally:
            self.forget(reader)

    def forget(self, reader: Hashable) -> None:
        """The reader is gone, or has all it wants: nobody may wait for what it was sent."""
        with self._lock:
            self._lent ^= self._readers.pop(reader, 0)


__all__ = ["FirstCopies"]
