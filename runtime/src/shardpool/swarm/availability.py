"""How many linked sources hold each piece, kept so that the rarest can be found without a scan."""

from __future__ import annotations

from collections.abc import Sequence

from shardpool.swarm.bits import members


class Availability:
    """Counts of holders, with the set of pieces of each count ("level") beside them."""

    def __init__(self, pieces: int) -> None:
        self._counts = [0] * pieces
        self._levels = [(1 << pieces) - 1]

    def count(self, piece: int) -> int:
        """How many sources hold `piece`."""
        return self._counts[piece]

    @property
    def levels(self) -> Sequence[int]:
        """Element k is the set of pieces that exactly k sources hold."""
        return self._levels

    @property
    def absent(self) -> int:
        """The set of pieces that no source holds."""
        return self._levels[0]

    def add(self, piece: int) -> None:
        """One more source holds `piece`."""
        self._move(piece, 1)

    def remove(self, piece: int) -> None:
        """One source fewer holds `piece`."""
        self._move(piece, -1)

    def add_all(self, pieces: int) -> None:
        """One more source holds each piece of the set."""
        for piece in members(pieces):
            self._move(piece, 1)

    def remove_all(self, pieces: int) -> None:
        """One source fewer holds each piece of the set."""
        for piece in members(pieces):
            self._move(piece, -1)

    def _move(self, piece: int, by: int) -> None:
        bit = 1 << piece
        levels = self._levels
        count = self._counts[piece]
        self._counts[piece] = after = count + by
        levels[count] ^= bit
        if after == len(levels):
            levels.append(bit)
        else:
            levels[after] |= bit


__all__ = ["Availability"]
