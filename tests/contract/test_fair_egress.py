"""A source's cap holds for all of its readers together, and can be changed while they read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
from pool_peers import Conversation, Source, make_shard

from shardpool.source.egress import TokenBucket

Start = Callable[..., Source]
Connect = Callable[..., Conversation]
READERS = 3
BYTES_PER_MEGABIT = 1e6 / 8


class _Turn(threading.Condition):
    """Whoever is first in line waits in no time, and lets virtual time pass; the others wait for their turn."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        if timeout > 2:  # for the end of a lease: not the first
            return super().wait(timeout)
        self.now += timeout
        return False


class VirtualBucket(TokenBucket):
    """A cap in virtual time, which passes only while somebody waits for leave to send."""

    def __init__(self, rate: float) -> None:
        turn = _Turn()
        super().__init__(rate, lambda: turn.now)
        self._turn = turn

    @property
    def now(self) -> float:
        return self._clock()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> list[VirtualBucket]:
    """The bucket of the source that is started next."""
    made: list[VirtualBucket] = []

    def make(rate: float) -> VirtualBucket:
        made.append(VirtualBucket(rate))
        return made[-1]

    monkeypatch.setattr("shardpool.source.server.TokenBucket", make)
    return made


def test_the_cap_holds_for_all_readers_together_and_changes_while_they_are_linked(
    start_source: Start, connect: Connect, bucket: list[VirtualBucket]
) -> None:
    shard = make_shard(pieces=12, piece_size=1 << 18)
    source = start_source(shard, egress_limit_mbps=8)
    talks = [connect(source.endpoint) for _ in range(READERS)]
    for talk in talks:
        talk.told.next("opened")

    def rate_of(pieces: Sequence[int]) -> float:
        """Bytes that all readers received per virtual second, when each asks for these pieces."""
        began, received = bucket[0].now, 0
        for talk in talks:
            for piece in pieces:
                talk.link.request(piece, shard.destination(piece)[1])
        for talk in talks:
            for _ in pieces:
                kind, piece, _ = talk.told.next("landed", "failed")
                assert kind == "landed"
                received += shard.catalog.piece_length(piece)
        return received / (bucket[0].now - began)

    for megabits, pieces in ((8, range(4)), (2, range(4, 8)), (32, range(8, 12))):
        source.server.set_egress_limit(megabits)
        assert rate_of(pieces) == pytest.approx(megabits * BYTES_PER_MEGABIT, rel=0.05)
    assert source.server.meter.total == READERS * shard.catalog.size
