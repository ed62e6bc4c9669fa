"""Transfers under way, and who owns the memory of each piece.

A piece's place in the store belongs to one transfer from the moment it is asked for until it is settled, even when it was given up long
ago; any other transfer of that piece meanwhile lands in scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Transfer:
    """One request for a piece to a link, or to the seed. `given_up` transfers are only waited for because of their memory."""

    source: int
    piece: int
    scratch: bool
    asked: float
    last_progress: float
    received: int = 0
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Parked:
    """A verified piece in the scratch memory of a settled transfer, waiting for its place to become free."""

    source: int
    digest: bytes


class Transfers:
    """Every unsettled transfer, by piece."""

    def __init__(self) -> None:
        self._by_piece: dict[int, list[Transfer]] = {}
        self.parked: dict[int, Parked] = {}
        self.active = 0  # unsettled, not given up, from peers
        self.reading = 0  # pieces being read from the seed, as bits
        self.bringing = 0  # scarce pieces asked of their only source, as bits

    def begin(self, source: int, piece: int, now: float) -> Transfer:
        """A transfer starts; whether it must use scratch memory follows from what else is unsettled."""
        others = self._by_piece.setdefault(piece, [])
        scratch = piece in self.parked or any(not other.scratch for other in others)
        transfer = Transfer(source, piece, scratch, now, now)
        others.append(transfer)
        if source >= 0:
            self.active += 1
        else:
            self.reading |= 1 << piece
        return transfer

    def get(self, source: int, piece: int) -> Transfer | None:
        """The unsettled transfer of a piece from a source."""
        for transfer in self._by_piece.get(piece, ()):
            if transfer.source == source:
                return transfer
        return None

    def settle(self, source: int, piece: int) -> Transfer | None:
        """Nothing of this transfer writes any more; None if it was not known."""
        transfer = self.get(source, piece)
        if transfer is None:
            return None
        others = self._by_piece[piece]
        others.remove(transfer)
        if not others:
            del self._by_piece[piece]
        if source < 0:
            self.reading &= ~(1 << piece)
        elif not transfer.given_up:
            self.active -= 1
        if self.bringing and not self.live(piece):
            self.bringing &= ~(1 << piece)
        return transfer

    def give_up(self, transfer: Transfer) -> None:
        """Wait for nothing but the memory of this transfer."""
        if not transfer.given_up:
            transfer.given_up = True
            if transfer.source >= 0:
                self.active -= 1
            if self.bringing and not self.live(transfer.piece):
                self.bringing &= ~(1 << transfer.piece)

    def of(self, piece: int) -> list[Transfer]:
        """Unsettled transfers of a piece."""
        return self._by_piece.get(piece, [])

    def live(self, piece: int) -> list[Transfer]:
        """Transfers of a piece that may still bring it."""
        return [t for t in self._by_piece.get(piece, ()) if not t.given_up]

    def place_free(self, piece: int) -> bool:
        """No unsettled transfer owns the piece's place in the store."""
        return all(t.scratch for t in self._by_piece.get(piece, ()))

    def __iter__(self) -> Iterator[Transfer]:
        for transfers in self._by_piece.values():
            yield from transfers

    def __len__(self) -> int:
        return sum(map(len, self._by_piece.values()))


__all__ = ["Parked", "Transfer", "Transfers"]
