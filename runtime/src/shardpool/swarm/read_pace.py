"""How many pieces are read from the seed at once.

A replica that is alone reads as many as it may. Replicas that start together share the seed: where it is their bottleneck, every read more
only makes all of them take longer, and the first pieces come into the pool late. So each begins with its part of what one may read at
once, and adds a read after reads that were no slower for the last one added, as congestion control does with packets.
"""

from __future__ import annotations

_SLOWED = 0.6  # of the best rate of a read: below it, there are too many of them
_FADING = 0.9  # a best rate counts for less with every read: the seed may have become slower for other reasons
_CAREFUL = 4  # all add their first one at the same time, and each sees late what that did
_MOST_PATIENT = 16


class ReadPace:
    """The bound of one replica. `most` is the largest number of reads at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bound = 0
        self._changed = 0.0
        self._best = 0.0  # bytes per second of one read
        self._good = 0  # reads in a row that were not slowed
        self._needed = _CAREFUL  # of them, before one is added

    def bound(self, sharers: int) -> int:
        """Reads at once while `sharers` other replicas may read as well."""
        if not sharers:
            return self._most
        if not self._bound:
            self._bound = max(1, self._most // (1 + sharers))
        return self._bound

    def measured(self, now: float, asked: float, length: int) -> None:
        """A read of `length` bytes that was begun at `asked` is over."""
        if not self._bound or asked < self._changed:
            return  # it was slowed by as many reads as there are no more
        rate = length / max(now - asked, 1e-9)
        slowed = rate < _SLOWED * self._best
        self._best = max(rate, _FADING * self._best)
        self._good = 0 if slowed else self._good + 1
        if slowed and self._bound > 1:
            self._change(now, -1)
            self._needed = min(2 * self._needed, _MOST_PATIENT)
        elif self._good >= self._needed and self._bound < self._most:
            self._change(now, 1)

    def _change(self, now: float, by: int) -> None:
        self._bound += by
        self._changed = now
        self._good = 0


__all__ = ["ReadPace"]
