"""A serving replica looks after its own bytes: one piece after another is hashed again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shardpool.log import logger
from shardpool.model.base import PieceStore
from shardpool.swarm.replica_state import ReplicaState

LOG = logger(__name__)


class Auditor:
    """Hashes a held piece each `interval` seconds, in a thread of its own, and withdraws one that is not what its digest says.

    Args:
        damaged: called with the piece's number after it was withdrawn.
    """

    def __init__(self, state: ReplicaState, store: PieceStore, interval: float, damaged: Callable[[int], None]) -> None:
        self._state = state
        self._store = store
        self._interval = interval
        self._damaged = damaged
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        if interval > 0 and store.catalog.pieces > 0:
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def _run(self) -> None:
        piece = 0
        while not self._stop.wait(self._interval):
            if not self.check(piece):
                self._damaged(piece)
            piece = (piece + 1) % self._store.catalog.pieces

    def check(self, piece: int) -> bool:
        """Whether a held piece is still what its digest says; withdraws it when not. A piece that is not held is no fault."""
        holdings = self._state.holdings
        expected = holdings.digest(piece) if holdings is not None else None
        if expected is None or self._store.digest(piece) == expected:
            return True
        self._state.withdraw(piece)
        self._store.forget(piece)
        LOG.error("piece %d is no longer what was verified: its memory or file changed under this replica", piece)
        return False
