"""Which pieces of a shard are verified, in the order they came: what a replica may announce and serve."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from blake3 import blake3


class Holdings:
    """A thread-safe, append-only record of verified pieces and their digests.

    The number of records is the *generation*; whoever knows a generation can ask for what came after it.
    """

    def __init__(self, piece_count: int, outline_digest: bytes) -> None:
        self.piece_count = piece_count
        self.outline_digest = outline_digest
        self._digests: dict[int, bytes] = {}
        self._log: list[tuple[int, bytes]] = []  # an empty digest records a withdrawal
        self._changed = threading.Condition()

    def add(self, piece: int, digest: bytes) -> None:
        """Record that `piece` is verified against `digest` (32 bytes). Adding a held piece again changes nothing."""
        if not 0 <= piece < self.piece_count or len(digest) != 32:
            raise ValueError(f"piece {piece} of {self.piece_count} with a digest of {len(digest)} bytes")
        with self._changed:
            if piece not in self._digests:
                self._digests[piece] = digest
                self._log.append((piece, digest))
                self._changed.notify_all()

    def withdraw(self, piece: int) -> None:
        """Record that `piece` is no longer what its digest says."""
        with self._changed:
            if self._digests.pop(piece, None) is not None:
                self._log.append((piece, b""))
                self._changed.notify_all()

    def digest(self, piece: int) -> bytes | None:
        """The digest of a held piece, else None."""
        return self._digests.get(piece)

    def __contains__(self, piece: int) -> bool:
        return piece in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def complete(self) -> bool:
        """Every piece is held."""
        return len(self._digests) == self.piece_count

    @property
    def generation(self) -> int:
        """Number of records so far."""
        return len(self._log)

    def since(self, generation: int, limit: int = 4096) -> tuple[int, Sequence[tuple[int, bytes]]]:
        """At most `limit` records after `generation` and the generation that they lead to; an empty digest is a withdrawal."""
        records = self._log[generation : generation + limit]
        return generation + len(records), records

    def wait(self, generation: int, timeout: float) -> bool:
        """Wait until there is a record after `generation`, or for `timeout` seconds; whether there is one."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._log) > generation, timeout)

    def wake(self) -> None:
        """Let every waiter look again (used when something else that it announces has changed)."""
        with self._changed:
            self._changed.notify_all()

    def content_digest(self) -> bytes:
        """BLAKE3 over the outline's digest and all piece digests in order. Raises ValueError while pieces are missing."""
        if not self.complete:
            raise ValueError(f"{self.piece_count - len(self)} of {self.piece_count} pieces are missing")
        hasher = blake3(self.outline_digest)
        for piece in range(self.piece_count):
            hasher.update(self._digests[piece])
        return hasher.digest()
