"""ReplicaState: what peers learn of a replica, and that nobody who waits misses a change."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Load, Party, Phase

PARTY = Party(instance="a" * 32, mx_source_id="0" * 16, identity_json="{}", rank=0, world=1, layout="whole")
DIGEST = b"d" * 32


@dataclass(frozen=True)
class Outline:
    pieces: int = 4
    piece_size: int = 8
    size: int = 30
    digest: bytes = b"o" * 32

    def encode(self) -> bytes:
        return b"outline"


def test_before_the_outline_the_counts_are_zero() -> None:
    info = ReplicaState(PARTY, reads_seed=True).info()
    assert (info.piece_count, info.shard_size, info.outline_size, info.generation) == (0, 0, 0, 0)
    assert info.party.catalog_digest == b""
    assert info.reads_seed


def test_the_outline_shows_in_party_and_info() -> None:
    state = ReplicaState(PARTY)
    holdings = state.set_outline(Outline())
    state.hold(2, DIGEST)
    info = state.info()
    assert info.party.catalog_digest == Outline.digest == holdings.outline_digest
    assert (info.piece_count, info.piece_size, info.shard_size, info.outline_size) == (4, 8, 30, 7)
    assert info.generation == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.hold(0, DIGEST),
        lambda state: state.withdraw(1),
        lambda state: state.set_phase(Phase.READY),
        lambda state: state.set_claims(frozenset({3})),
        lambda state: state.set_transports(("stream",)),
        lambda state: state.wake(),
    ],
)
def test_each_change_wakes_a_waiter(change: object) -> None:
    state = ReplicaState(PARTY)
    state.set_outline(Outline())
    state.hold(1, DIGEST)
    version, woken = state.version, []
    waiter = threading.Thread(target=lambda: woken.append(state.wait(version, 10)))
    waiter.start()
    change(state)  # type: ignore[operator]
    waiter.join(10)
    assert woken == [True]


def test_setting_what_is_set_already_is_no_change() -> None:
    state = ReplicaState(PARTY)
    version = state.version
    state.set_phase(Phase.FILLING)
    state.set_claims(frozenset())
    assert state.version == version
    assert not state.wait(version, 0)


def test_load_is_asked_for_each_time() -> None:
    state = ReplicaState(PARTY)
    loads = iter([Load(readers=1), Load(readers=2)])
    state.set_load(lambda: next(loads))
    assert [state.info().load.readers, state.info().load.readers] == [1, 2]


def test_a_second_outline_and_a_piece_before_the_first_are_refused() -> None:
    state = ReplicaState(PARTY)
    with pytest.raises(ValueError, match="not known yet"):
        state.hold(0, DIGEST)
    state.set_outline(Outline())
    with pytest.raises(ValueError, match="known already"):
        state.set_outline(Outline())
