"""The retry helper: bounded by attempts, deadline and patience."""

from __future__ import annotations

import threading
import time

import pytest

from shardpool.retry import Backoff, retry

QUICK = Backoff(first=0.001, longest=0.002)


class _Flaky:
    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise OSError(self.calls)
        return "done"


def _soon() -> float:
    return time.monotonic() + 30


def test_it_calls_until_the_call_returns() -> None:
    call = _Flaky(3)
    assert retry(call, on=(OSError,), deadline=_soon(), backoff=QUICK) == "done"
    assert call.calls == 4


def test_the_last_error_comes_out_when_the_attempts_are_used_up() -> None:
    call = _Flaky(9)
    with pytest.raises(OSError, match="3"):
        retry(call, on=(OSError,), deadline=_soon(), backoff=QUICK, attempts=3)


def test_another_error_passes_through_at_once() -> None:
    call = _Flaky(9)
    with pytest.raises(OSError, match="1"):
        retry(call, on=(ValueError,), deadline=_soon(), backoff=QUICK)


def test_a_condition_on_the_error_can_refuse_another_attempt() -> None:
    call = _Flaky(9)
    with pytest.raises(OSError, match="1"):
        retry(call, on=(OSError,), deadline=_soon(), backoff=QUICK, when=lambda error: False)


def test_no_attempt_starts_after_the_deadline() -> None:
    call = _Flaky(9)
    with pytest.raises(OSError, match="1"):
        retry(call, on=(OSError,), deadline=time.monotonic() - 1, backoff=QUICK)


def test_a_stop_ends_the_wait() -> None:
    stop = threading.Event()
    stop.set()
    call = _Flaky(9)
    with pytest.raises(OSError, match="1"):
        retry(call, on=(OSError,), deadline=_soon(), backoff=Backoff(first=20), stop=stop)


def test_delays_grow_to_their_longest_and_keep_within_the_jitter() -> None:
    delays = Backoff(first=1, factor=2, longest=4, jitter=0.25).delays()
    for middle in (1, 2, 4, 4, 4):
        assert middle * 0.75 <= next(delays) <= middle * 1.25
