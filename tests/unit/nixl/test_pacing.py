"""Slices and windows follow the rate that is seen; a limit holds over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpool.transport.pacing import FIRST_SLICE, LARGEST_SLICE, LARGEST_WINDOW, SMALLEST_SLICE, Pace


def _feed(pace: Pace, rate: int, seconds: float, now: float = 0.0) -> float:
    for _ in range(int(seconds / 0.01)):
        now += 0.01
        pace.landed(int(rate * 0.01), now)
    return now


def test_a_fast_link_gets_large_slices_and_a_slow_one_small() -> None:
    fast, slow, new = Pace(0, 0.0), Pace(0, 0.0), Pace(0, 0.0)
    _feed(fast, 10_000_000_000, 2)
    _feed(slow, 1_000_000, 2)
    assert (slow.slice_size, new.slice_size, fast.slice_size) == (SMALLEST_SLICE, FIRST_SLICE, LARGEST_SLICE)
    assert slow.window == 4 * SMALLEST_SLICE
    assert fast.window == LARGEST_WINDOW


def test_an_idle_time_is_no_slow_link() -> None:
    pace = Pace(0, 0.0)
    now = _feed(pace, 1_000_000_000, 2)
    before = pace.slice_size
    pace.idle(now + 3600)
    pace.landed(1_000_000, now + 3600.001)
    assert pace.slice_size == before


@given(
    st.integers(min_value=1_000, max_value=10**9),
    st.lists(st.floats(min_value=0.0001, max_value=0.5), min_size=1, max_size=200),
)
def test_what_is_taken_stays_under_the_limit(limit: int, steps: list[float]) -> None:
    pace, now, taken = Pace(limit, 0.0), 0.0, 0
    for step in steps:
        now += step
        length = pace.slice_size
        while pace.wait(length, now) <= 0:
            pace.take(length, now)
            taken += length
    assert taken <= limit * now + 2 * max(SMALLEST_SLICE, limit * 0.25)


@given(st.integers(min_value=1_000, max_value=10**9))
def test_whoever_waits_as_told_may_take(limit: int) -> None:
    pace = Pace(limit, 0.0)
    pace.take(LARGEST_SLICE, 0.0)
    wait = pace.wait(LARGEST_SLICE, 0.0)
    assert wait > 0
    assert pace.wait(LARGEST_SLICE, wait) == pytest.approx(0.0, abs=1e-6)


def test_a_lifted_limit_holds_nobody() -> None:
    pace = Pace(1_000, 0.0)
    pace.take(LARGEST_SLICE, 0.0)
    pace.set_limit(0, 0.0)
    assert pace.wait(LARGEST_SLICE, 0.0) == 0
