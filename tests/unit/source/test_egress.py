"""The cap on what is sent: exact in the mean, first come first served, changed at run time."""

from __future__ import annotations

import threading

import pytest

from shardpool.source.egress import SMALLEST_SEND, EgressMeter, TokenBucket
from shardpool.wire.chunk import CHUNK_SIZE

MIB = 1024 * 1024


class Clock:
    """Time that passes only while somebody waits for it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _simulated(bucket: TokenBucket, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(timeout: float | None = None) -> bool:
        assert timeout is not None
        clock.now += timeout
        return False

    monkeypatch.setattr(bucket._turn, "wait", wait)


@pytest.mark.parametrize("rate", [100_000, 12_500_000, 125_000_000, 1_250_000_000])
def test_the_mean_is_within_five_percent_of_the_cap(rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    bucket = TokenBucket(rate, clock)
    _simulated(bucket, clock, monkeypatch)
    sent = 0
    while clock.now < 10:
        size = bucket.send_size()
        assert bucket.take(size, 60)
        sent += size
    assert 0.95 * rate <= sent / clock.now <= 1.05 * rate


def test_a_new_cap_holds_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    bucket = TokenBucket(1e6, clock)
    _simulated(bucket, clock, monkeypatch)
    while clock.now < 5:
        bucket.take(bucket.send_size(), 60)
    bucket.set_rate(1e8)
    start, sent = clock.now, 0
    while clock.now < start + 5:
        size = bucket.send_size()
        bucket.take(size, 60)
        sent += size
    assert 0.95e8 <= sent / (clock.now - start) <= 1.05e8


def _granted(bucket: TokenBucket, clock: Clock, seconds: float) -> list[tuple[float, int]]:
    """Take all there is for so long: when each leave to send came, and for how much."""
    until, granted = clock.now + seconds, []
    while clock.now < until:
        size = bucket.send_size()
        assert bucket.take(size, 60)
        granted.append((clock.now, size))
    return granted


def test_over_any_second_the_cap_holds_within_five_percent_also_after_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    bucket = TokenBucket(10e6, clock)
    _simulated(bucket, clock, monkeypatch)
    for rate in (10e6, 2.5e6, 40e6, 1e6, 4e6):
        bucket.set_rate(rate)
        granted = _granted(bucket, clock, 4)
        for seconds in (1.0, 1.7, 2.5):
            for start, _ in granted:
                if start + seconds <= granted[-1][0]:
                    sent = sum(size for at, size in granted if start <= at < start + seconds)
                    assert sent / seconds == pytest.approx(rate, rel=0.051), f"from {start:.3f} s, over {seconds} s"


@pytest.mark.parametrize("new", [50.0, 1000.0])
def test_whoever_waits_is_reckoned_anew_when_the_cap_changes(new: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    bucket = TokenBucket(100, clock)
    assert bucket.take(1000, 0)  # a debt of ten seconds
    waits: list[float] = []

    def wait(timeout: float | None = None) -> bool:
        assert timeout is not None
        waits.append(timeout)
        clock.now += timeout if len(waits) > 1 else 2
        if len(waits) == 1:
            bucket.set_rate(new)  # two seconds paid off 200 of the 1000 bytes
        return False

    monkeypatch.setattr(bucket._turn, "wait", wait)
    assert bucket.take(1, 600)
    assert waits[0] == pytest.approx(10)
    assert clock.now == pytest.approx(2 + 800 / new, abs=0.002)  # no wait is shorter than a millisecond


def test_an_idle_source_saves_up_no_more_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    bucket = TokenBucket(10 * MIB, clock)
    _simulated(bucket, clock, monkeypatch)
    clock.now = 3600
    sent = 0
    while clock.now < 3601:
        bucket.take(64 * 1024, 60)
        sent += 64 * 1024
    assert sent <= 1.15 * 10 * MIB


def test_without_a_cap_nobody_waits() -> None:
    bucket = TokenBucket()
    assert bucket.send_size() == CHUNK_SIZE
    assert all(bucket.take(CHUNK_SIZE, 0) for _ in range(1000))


def test_a_low_cap_is_sent_in_small_steps() -> None:
    assert TokenBucket(125_000).send_size() == SMALLEST_SEND
    assert TokenBucket(12_500_000).send_size() == 625_000


def test_whoever_waits_is_let_go_by_a_lifted_cap() -> None:
    bucket = TokenBucket(1)
    assert bucket.take(1000, 0)
    granted: list[bool] = []
    thread = threading.Thread(target=lambda: granted.append(bucket.take(1, 600)))
    thread.start()
    bucket.set_rate(0)
    thread.join(20)
    assert granted == [True]


def test_whoever_waits_is_let_go_when_its_call_ends() -> None:
    bucket = TokenBucket(1)
    bucket.take(1000, 0)
    ended = threading.Event()
    granted: list[bool] = []
    thread = threading.Thread(target=lambda: granted.append(bucket.take(1, 600, ended.is_set)))
    thread.start()
    ended.set()
    bucket.wake()
    thread.join(20)
    assert granted == [False]


def test_waiting_has_an_end() -> None:
    bucket = TokenBucket(1)
    bucket.take(1000, 0)
    assert not bucket.take(1, 0.01)


def test_a_negative_cap_is_refused() -> None:
    with pytest.raises(ValueError, match="rate"):
        TokenBucket().set_rate(-1)


def test_the_meter_counts_all_and_forgets_the_rate() -> None:
    clock = Clock()
    meter = EgressMeter(clock)
    for _ in range(40):
        meter.add(1000)
        clock.now += 0.05
    assert meter.total == 40_000
    assert 18_000 <= meter.rate() <= 22_000
    clock.now += 10
    assert meter.rate() == 0
    assert meter.total == 40_000
