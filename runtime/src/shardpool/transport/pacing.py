"""How much a receiver asks for at once, and how fast it may: pure arithmetic, told the time."""

from __future__ import annotations

from shardpool.model.catalog import KIB, MIB

SMALLEST_SLICE = 256 * KIB
FIRST_SLICE = MIB
LARGEST_SLICE = 16 * MIB
LARGEST_WINDOW = 256 * MIB
SLICE_SECONDS = 0.05
WINDOW_SECONDS = 0.25
_SMOOTHING = 0.3


class Pace:
    """Sizes slices and the bytes under way by the rate that is seen, and holds a reader to the rate that its lease allows.

    Slices are what progress is counted by: at 50 ms each, a slow link still shows progress often and a fast one is not held up. A
    quarter of a second under way fills any link without making an abandoned transfer costly.

    Args:
        rate_limit: bytes per second that the source lets this reader take; 0 is none.
        now: a `time.monotonic()` value.
    """

    def __init__(self, rate_limit: int, now: float) -> None:
        self._limit = rate_limit
        self._rate = 0.0  # bytes per second, smoothed
        self._seen = now
        self._bytes = 0
        self._allowance = float(SMALLEST_SLICE)
        self._refilled = now

    def set_limit(self, rate_limit: int, now: float) -> None:
        """Change what the lease allows."""
        self._refill(now)
        self._limit = rate_limit

    @property
    def slice_size(self) -> int:
        """Bytes of the next slice, 256 KiB to 16 MiB."""
        rate = min(self._rate, self._limit) if self._limit else self._rate
        wanted = int(rate * SLICE_SECONDS) if self._rate else FIRST_SLICE
        if self._limit:
            wanted = min(wanted, int(self._limit * WINDOW_SECONDS))
        return max(SMALLEST_SLICE, min(wanted, LARGEST_SLICE))

    @property
    def window(self) -> int:
        """Bytes that may be under way: at least four slices, at most 256 MiB."""
        return min(max(int(self._rate * WINDOW_SECONDS), 4 * self.slice_size), LARGEST_WINDOW)

    def idle(self, now: float) -> None:
        """Nothing was under way until `now`: the time before it says nothing about the link."""
        self._seen, self._bytes = now, 0

    def landed(self, length: int, now: float) -> None:
        """`length` bytes arrived."""
        self._bytes += length
        elapsed = now - self._seen
        if elapsed >= SLICE_SECONDS:
            sample = self._bytes / elapsed
            self._rate = sample if not self._rate else self._rate + _SMOOTHING * (sample - self._rate)
            self._seen, self._bytes = now, 0

    def wait(self, length: int, now: float) -> float:
        """Seconds until `length` bytes may be asked for; 0 is now."""
        if not self._limit:
            return 0.0
        self._refill(now)
        # A slice may be larger than what is saved up at most; it then only has to wait for a full purse.
        missing = min(length, self._most_saved()) - self._allowance
        return max(0.0, missing / self._limit)

    def take(self, length: int, now: float) -> None:
        """`length` bytes were asked for. The purse may go below nothing, and is paid back before the next."""
        if self._limit:
            self._refill(now)
            self._allowance -= length

    def _most_saved(self) -> float:
        return max(float(SMALLEST_SLICE), self._limit * SLICE_SECONDS)

    def _refill(self, now: float) -> None:
        if self._limit:
            self._allowance = min(self._allowance + (now - self._refilled) * self._limit, self._most_saved())
        self._refilled = now
