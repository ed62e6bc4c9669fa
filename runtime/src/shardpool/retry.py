"""The one retry helper: bounded, jittered, on a monotonic clock, ended early by an event."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays between attempts: `first` seconds, times `factor` each time, at most `longest`, each +- `jitter` (a share)."""

    first: float = 0.1
    factor: float = 2.0
    longest: float = 5.0
    jitter: float = 0.25

    def delays(self, rng: random.Random | None = None) -> Iterator[float]:
        """Yield delays in seconds, for ever."""
        rng = rng or random.Random()
        delay = self.first
        while True:
            yield delay * (1 + self.jitter * (2 * rng.random() - 1))
            delay = min(delay * self.factor, self.longest)


def retry(
    call: Callable[[], Result],
    *,
    on: tuple[type[Exception], ...],
    deadline: float,
    backoff: Backoff | None = None,
    attempts: int | None = None,
    stop: threading.Event | None = None,
    when: Callable[[Exception], bool] = lambda error: True,
) -> Result:
    """Call until it returns, and raise its last error when attempts, the deadline or patience (`stop`) are used up.

    Args:
        call: what to do.
        on: the errors that are worth another attempt; any other passes through at once.
        deadline: a `time.monotonic()` value after which no further attempt starts.
        backoff: the delays between attempts.
        attempts: at most so many calls; None means as many as the deadline allows.
        stop: setting it ends the wait between attempts.
        when: a further condition on an error of `on`.
    """
    stop = stop or threading.Event()
    for made, delay in enumerate((backoff or Backoff()).delays(), start=1):
        try:
            return call()
        except on as error:
            left = deadline - time.monotonic()
            if not when(error) or (attempts is not None and made >= attempts) or left <= delay or stop.wait(delay):
                raise
    raise AssertionError("delays() never ends")
