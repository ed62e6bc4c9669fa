"""A bound on calls that each hold a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shardpool.errors import PeerBusyError

_RETRY_AFTER = 2.0


class Slots:
    """`count` calls of `what` at once; a further one is refused, never queued."""

    def __init__(self, count: int, what: str) -> None:
        self._free = threading.BoundedSemaphore(count)
        self._count = count
        self._what = what

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a slot. Raises PeerBusyError when none is free."""
        if not self._free.acquire(blocking=False):
            raise PeerBusyError(f"{self._count} {self._what} are served at once", retry_after=_RETRY_AFTER)
        try:
            yield
        finally:
            self._free.release()
