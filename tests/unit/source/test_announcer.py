"""When watchers are told, and what."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from simulated_pool import make_catalog

from shardpool.source.announcer import Announcer, Bell
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Party, Phase
from shardpool.wire import pool

PIECES = 8
LONG = 10.0  # far beyond what anything here waits for
SILENT = 0.2  # several rounds
DIGEST = b"\x01" * 32


@pytest.fixture
def state() -> ReplicaState:
    state = ReplicaState(
        Party(instance="0" * 32, mx_source_id="0" * 16, identity_json="{}", rank=0, world=1, layout="whole")
    )
    state.set_outline(make_catalog(PIECES, 1024))
    return state


@contextmanager
def announcing(state: ReplicaState, watchers: int) -> Iterator[tuple[Announcer, list[Bell]]]:
    """An announcer with bells that are silent."""
    stopping = threading.Event()
    announcer = Announcer(state, stopping)
    with ExitStack() as stack:
        bells = [stack.enter_context(announcer.watch()) for _ in range(watchers)]
        for bell in bells:
            while bell.wait(SILENT):
                pass
        yield announcer, bells
        stopping.set()
        announcer.close()


def read(encoded: bytes) -> pool.StateUpdate:
    return pool.StateUpdate.FromString(encoded)


def test_a_piece_is_told_to_every_watcher(state: ReplicaState) -> None:
    with announcing(state, 5) as (announcer, bells):
        state.hold(3, DIGEST)
        assert all(bell.wait(LONG) for bell in bells)
        told = announcer.since(0, frozenset())
        assert list(read(told.encoded).pieces) == [3]
        assert told.generation == 1


def test_claims_and_phases_are_told_to_all_at_once(state: ReplicaState) -> None:
    with announcing(state, 5) as (announcer, bells):
        state.set_claims(frozenset({1}))
        assert all(bell.wait(LONG) for bell in bells)
        state.set_phase(Phase.READY)
        assert all(bell.wait(LONG) for bell in bells)
        assert list(read(announcer.since(0, frozenset()).encoded).claims) == [1]


def test_a_change_that_says_nothing_rings_for_nobody(state: ReplicaState) -> None:
    with announcing(state, 1) as (_, [bell]):
        state.wake()
        state.hold(0, DIGEST)
        assert bell.wait(LONG)
        state.wake()
        assert not bell.wait(SILENT)


def test_rings_that_were_not_heard_count_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.wait(LONG)
    assert not bell.wait(0.0)


def test_who_knows_the_same_gets_the_same_bytes(state: ReplicaState) -> None:
    with announcing(state, 2) as (announcer, _):
        state.hold(0, DIGEST)
        assert announcer.since(0, None) is announcer.since(0, None)
        assert read(announcer.since(1, None).encoded).generation == 1


def test_claims_are_said_only_to_those_who_do_not_know_them(state: ReplicaState) -> None:
    with announcing(state, 1) as (announcer, _):
        state.set_claims(frozenset({2, 5}))
        assert not read(announcer.since(0, frozenset({2, 5})).encoded).claims_changed
        assert list(read(announcer.since(0, None).encoded).claims) == [2, 5]


def test_its_end_lets_every_watcher_go(state: ReplicaState) -> None:
    stopping = threading.Event()
    announcer = Announcer(state, stopping)
    with announcer.watch() as bell:
        assert bell.wait(LONG)
        announcer.close()
        assert bell.wait(LONG)
