"""Waiting for a condition, with a deadline. Nothing else in the suite sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PAUSE_SECONDS = 0.2


def eventually(what: str, probe: Callable[[], T | None], *, seconds: float = 60.0) -> T:
    """Ask `probe` until it returns something true, and return that; used where there is no event to wait for.

    An OSError of the probe counts as "not yet": pods and port-forwards come and go. AssertionError after `seconds`, with the last answer.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            last: object = (answer := probe())
        except OSError as error:
            answer, last = None, error
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}; last seen: {last!r}")
        time.sleep(PAUSE_SECONDS)
