"""Fill a buffer from a source that may break off: go on from where it broke, a bounded number of times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from shardpool.errors import SeedError
from shardpool.retry import Backoff, retry

SLICE = 1 << 20
"""Bytes read at once: between slices a read notices that the seed was closed."""

ATTEMPTS = 6
PATIENCE_SECONDS = 120.0
BACKOFF = Backoff(first=0.2, factor=2.0, longest=5.0)

Fetch = Callable[[int, memoryview], Iterator[int]]
"""Reads from an offset into a buffer, yielding the size of each part as it lands. Raises SeedError."""


def fill(buffer: memoryview, offset: int, fetch: Fetch, *, where: str, stop: threading.Event) -> None:
    """Fill the whole buffer from `offset`, repeating `fetch` for the rest after a transient SeedError.

    Args:
        buffer: writable bytes.
        offset: of the buffer's first byte in the file.
        fetch: one attempt at the bytes that are still missing.
        where: names the file, for errors.
        stop: set when the seed is closed.

    Raises:
        SeedError: as the last attempt raised it, or because the seed was closed.
    """
    done = 0

    def attempt() -> None:
        nonlocal done
        for count in fetch(offset + done, buffer[done:]):
            done += count
            require_open(stop, where)
        if done < len(buffer):
            raise SeedError(f"{where} broke off after {done} of {len(buffer)} bytes", transient=True)

    if len(buffer):
        repeat(attempt, stop=stop, where=where)


def repeat(call: Callable[[], None], *, stop: threading.Event, where: str) -> None:
    """Call again after a transient SeedError: `ATTEMPTS` times at most, none of which starts after `PATIENCE_SECONDS`."""

    def guarded() -> None:
        require_open(stop, where)
        call()

    retry(
        guarded,
        on=(SeedError,),
        when=lambda error: isinstance(error, SeedError) and error.transient and not stop.is_set(),
        deadline=time.monotonic() + PATIENCE_SECONDS,
        attempts=ATTEMPTS,
        backoff=BACKOFF,
        stop=stop,
    )


def require_open(stop: threading.Event, where: str) -> None:
    """Raise SeedError once the seed was closed."""
    if stop.is_set():
        raise SeedError(f"{where}: the seed was closed")
