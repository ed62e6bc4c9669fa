"""What the receiver of one ReadPieces call wants, read ahead so that a cancellation is seen while a piece is being sent."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

from shardpool.wire import pool

MOST_AHEAD = 1024
"""Pieces that may be asked for before they are sent; a receiver that asks for more is let go."""


@dataclass(slots=True)
class Wanted:
    """A piece to send, from `offset`; `first`: if no other reader was sent it.

    `cancelled` turns true when it is not wanted any more; it is answered in its turn all the same.
    """

    piece: int
    offset: int
    lease_id: str
    instance: str
    first: bool = False
    cancelled: bool = False


class Reads:
    """The requests of one call, in order. A thread of `readers` reads them; it ends when the call does."""

    def __init__(self, requests: Iterator[pool.ReadRequest], readers: Executor) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Wanted] = deque()
        self._current: Wanted | None = None
        self._finished = False
        self.ended = False
        self.overrun = False
        readers.submit(self._read, requests)

    def next(self, timeout: float | None) -> Wanted | None:
        """The next piece to send; None when there will be none, or after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._finished or self.ended, timeout)
            self._current = self._waiting.popleft() if self._waiting and not self.ended else None
            return self._current

    def end(self) -> None:
        """The call is over."""
        with self._changed:
            self.ended = True
            self._waiting.clear()
            self._changed.notify_all()

    def _read(self, requests: Iterator[pool.ReadRequest]) -> None:
        try:
            for request in requests:
                with self._changed:
                    if request.cancel:
                        self._cancel(request.piece)
                    elif len(self._waiting) + len(request.following) >= MOST_AHEAD:
                        self.overrun = True
                        break
                    else:
                        call = (request.lease_id, request.instance, request.first)
                        self._waiting.append(Wanted(request.piece, request.offset, *call))
                        self._waiting.extend(Wanted(piece, 0, *call) for piece in request.following)
                    self._changed.notify_all()
        except (
            Exception
        ):  # grpcio raises a bare Exception when the call was reset or a message is not one: nobody listens any more
            self.end()
        finally:
            with self._changed:
                self._finished = True
                self._changed.notify_all()

    def _cancel(self, piece: int) -> None:
        for wanted in (self._current, *self._waiting):
            if wanted is not None and wanted.piece == piece:
                wanted.cancelled = True
