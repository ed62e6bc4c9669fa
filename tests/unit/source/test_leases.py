"""Leases end by themselves, by release, or never begin."""

from __future__ import annotations

import threading

import pytest

from shardpool.errors import LeaseError, PeerBusyError
from shardpool.source.drain import drain
from shardpool.source.leases import DrainingError, Leases
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Party, Phase


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_lease_that_is_not_renewed_ends_after_its_time(clock: Clock) -> None:
    leases = Leases(30, 2, clock)
    lease = leases.acquire("a")
    generation = leases.begin_read(lease.id).generation
    clock.now += 29
    assert leases.covers(lease, generation)
    leases.renew(lease.id)
    clock.now += 29
    assert leases.covers(lease, generation)
    clock.now += 1
    assert not leases.covers(lease, generation)
    assert len(leases) == 0
    with pytest.raises(LeaseError):
        leases.renew(lease.id)


def test_a_lease_is_released_once(clock: Clock) -> None:
    leases = Leases(30, 2, clock)
    lease = leases.acquire("a")
    leases.release(lease.id)
    assert not leases.covers(lease, 0)
    with pytest.raises(LeaseError):
        leases.release(lease.id)


def test_only_the_newest_read_of_a_lease_goes_on(clock: Clock) -> None:
    leases = Leases(30, 2, clock)
    lease = leases.acquire("a")
    first = leases.begin_read(lease.id).generation
    second = leases.begin_read(lease.id).generation
    assert not leases.covers(lease, first)
    assert leases.covers(lease, second)


def test_a_dead_holders_place_is_free_after_its_time(clock: Clock) -> None:
    leases = Leases(30, 1, clock)
    leases.acquire("dead")
    with pytest.raises(PeerBusyError):
        leases.acquire("alive")
    clock.now += 30
    assert leases.acquire("alive").holder == "alive"


def test_a_crowd_is_told_to_come_back_later_than_one_caller(clock: Clock) -> None:
    leases = Leases(30, 2, clock)
    for name in "ab":
        leases.acquire(name)
    delays = []
    for number in range(40):
        with pytest.raises(PeerBusyError) as caught:
            leases.acquire(f"late-{number}")
        delays.append(caught.value.retry_after)
    assert delays == sorted(delays)
    assert delays[0] < 1 < delays[-1] <= 5
    clock.now += 10
    with pytest.raises(PeerBusyError) as caught:
        leases.acquire("late")
    assert caught.value.retry_after == delays[0], "a crowd of long ago still counts"


def test_draining_waits_for_releases_and_gives_no_new_lease() -> None:
    leases = Leases(30, 2)
    state = ReplicaState(Party("0" * 32, "0" * 16, "{}", 0, 1, "whole"))
    lease = leases.acquire("a")
    seen: list[Phase] = []

    def release() -> None:
        version = 0
        while state.phase is not Phase.DRAINING:
            state.wait(version, 10)
            version = state.version
        seen.append(state.phase)
        leases.renew(lease.id)
        leases.release(lease.id)

    thread = threading.Thread(target=release)
    thread.start()
    assert drain(state, [leases], 20)
    thread.join(10)
    assert seen == [Phase.DRAINING]
    with pytest.raises(DrainingError):
        leases.acquire("b")


def test_what_is_left_after_the_grace_is_revoked() -> None:
    leases = Leases(30, 2)
    state = ReplicaState(Party("0" * 32, "0" * 16, "{}", 0, 1, "whole"))
    lease = leases.acquire("a")
    assert not drain(state, [leases, Leases(30, 1)], 0.01)
    assert not leases.covers(lease, 0)
    assert len(leases) == 0
