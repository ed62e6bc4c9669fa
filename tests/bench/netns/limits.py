"""What no way of sending can beat, and what the contenders' own rules allow, on links of one rate."""

from __future__ import annotations

import math


def copy_seconds(size: int, rate: float) -> float:
    """One copy at `rate` megabits a second, nothing but payload."""
    return size * 8 / (rate * 1e6)


def swarm_limit(receivers: int, pieces: int) -> float:
    """Copies' time until the last of `receivers` has all of `pieces`, when each link carries one piece each way at a time.

    The least is M + floor(log2 N) rounds of one piece for M pieces from one source to N receivers (Mundinger, Weber, Weiss:
    Optimal scheduling of peer-to-peer file dissemination, Journal of Scheduling 11, 2008).
    """
    return 1 + math.floor(math.log2(receivers)) / pieces


def star_limit(receivers: int) -> float:
    """Copies' time when every byte crosses the first source's link once a receiver."""
    return float(receivers)


def whole_limit(receivers: int) -> float:
    """Copies' time when only complete copies serve and each has one reader at a time: the number of complete ones doubles."""
    return float(math.ceil(math.log2(receivers + 1)))
