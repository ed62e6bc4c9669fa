"""What a rank sends: a cap that holds within 5 % and changes at run time, and a measure of what is sent now."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from shardpool.wire.chunk import CHUNK_SIZE

SMALLEST_SEND = 16 * 1024
_BURST_SECONDS = 0.1
_WINDOW_SECONDS = 2.0
_STEP_SECONDS = 0.1


class TokenBucket:
    """Leave to send, first come, first served. `rate` is in bytes per second, 0 is no limit.

    A taker may go into debt with one send, so that the mean is exact whatever the sizes are; at most 100 ms are saved up.
    """

    def __init__(self, rate: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turn = threading.Condition()
        self._queue: deque[object] = deque()
        self._rate = rate
        self._balance = 0.0
        self._at = clock()

    @property
    def rate(self) -> float:
        """Bytes per second, 0 is no limit."""
        return self._rate

    def set_rate(self, rate: float) -> None:
        """Change the cap; whoever waits is reckoned anew."""
        if rate < 0:
            raise ValueError(f"a rate of {rate} bytes per second")
        with self._turn:
            self._refill()
            self._rate = rate
            self._balance = min(self._balance, rate * _BURST_SECONDS)
            self._turn.notify_all()

    def send_size(self) -> int:
        """How much to send at once: a whole chunk, or a twentieth of a second's worth under a low cap."""
        return CHUNK_SIZE if not self._rate else max(SMALLEST_SEND, min(CHUNK_SIZE, int(self._rate / 20)))

    def take(self, size: int, timeout: float, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait for leave to send `size` bytes; False when `timeout` seconds passed or `stopped()` came true (see `wake`)."""
        if not self._rate:
            return not stopped()
        ticket, deadline = object(), self._clock() + timeout
        with self._turn:
            self._queue.append(ticket)
            try:
                while not stopped():
                    self._refill()
                    if not self._rate:
                        return True
                    first = self._queue[0] is ticket
                    if first and self._balance >= 0:
                        self._balance -= size
                        return True
                    left = deadline - self._clock()
                    if left <= 0:
                        return False
                    self._turn.wait(min(left, max(-self._balance / self._rate, 0.001)) if first else left)
                return False
            finally:
                self._queue.remove(ticket)
                self._turn.notify_all()

    def wake(self) -> None:
        """Let takers look at their `stopped()` again."""
        with self._turn:
            self._turn.notify_all()

    def _refill(self) -> None:
        now = self._clock()
        self._balance = min(self._balance + (now - self._at) * self._rate, self._rate * _BURST_SECONDS)
        self._at = now


class EgressMeter:
    """Counts what was sent, in all and over the last two seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._total = 0
        self._steps: deque[tuple[float, int]] = deque()

    @property
    def total(self) -> int:
        """Bytes sent so far."""
        return self._total

    def add(self, size: int) -> None:
        """Count `size` bytes sent now."""
        now = self._clock()
        with self._lock:
            self._total += size
            if self._steps and now - self._steps[-1][0] < _STEP_SECONDS:
                start, sent = self._steps[-1]
                self._steps[-1] = (start, sent + size)
            else:
                self._steps.append((now, size))
            self._forget(now)

    def rate(self) -> int:
        """Bytes per second over the last two seconds."""
        with self._lock:
            self._forget(self._clock())
            return int(sum(sent for _, sent in self._steps) / _WINDOW_SECONDS)

    def _forget(self, now: float) -> None:
        while self._steps and now - self._steps[0][0] > _WINDOW_SECONDS:
            self._steps.popleft()
