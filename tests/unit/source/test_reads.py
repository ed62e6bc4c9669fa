"""The requests of one call, read ahead."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardpool.source.reads import MOST_AHEAD, Reads
from shardpool.wire import pool


@pytest.fixture
def readers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def _ask(piece: int, cancel: bool = False) -> pool.ReadRequest:
    return pool.ReadRequest(piece=piece, cancel=cancel)


def test_pieces_come_in_the_order_they_were_asked_for(readers: ThreadPoolExecutor) -> None:
    reads = Reads(iter([_ask(3), _ask(1), _ask(2)]), readers)
    asked = [reads.next(10) for _ in range(3)]
    assert [wanted.piece for wanted in asked if wanted] == [3, 1, 2]
    assert reads.next(10) is None
    assert not reads.ended


def test_several_pieces_may_come_in_one_request(readers: ThreadPoolExecutor) -> None:
    reads = Reads(iter([pool.ReadRequest(piece=3, following=[1, 2]), _ask(9)]), readers)
    asked = [reads.next(10) for _ in range(4)]
    assert [wanted.piece for wanted in asked if wanted] == [3, 1, 2, 9]


def test_a_cancellation_reaches_the_piece_being_sent_and_those_that_wait(readers: ThreadPoolExecutor) -> None:
    requests: queue.SimpleQueue[pool.ReadRequest | None] = queue.SimpleQueue()
    reads = Reads(iter(requests.get, None), readers)
    requests.put(_ask(1))
    current = reads.next(10)
    assert current is not None
    for request in (_ask(2), _ask(1, cancel=True), _ask(2, cancel=True), _ask(2), None):
        requests.put(request)
    second, third = reads.next(10), reads.next(10)
    readers.shutdown(wait=True)
    assert second is not None
    assert third is not None
    assert (current.cancelled, second.cancelled, third.cancelled) == (True, True, False)


def test_a_receiver_that_asks_without_end_is_cut_off(readers: ThreadPoolExecutor) -> None:
    reads = Reads(iter([_ask(0)] * (MOST_AHEAD + 5)), readers)
    readers.shutdown(wait=True)
    assert reads.overrun
    count = 0
    while reads.next(0) is not None:
        count += 1
    assert count == MOST_AHEAD


def test_a_broken_call_ends_the_reads(readers: ThreadPoolExecutor) -> None:
    def broken() -> Iterator[pool.ReadRequest]:
        yield _ask(1)
        raise RuntimeError("reset")

    reads = Reads(broken(), readers)
    readers.shutdown(wait=True)
    assert reads.ended
    assert reads.next(10) is None


def test_waiting_for_a_request_has_an_end(readers: ThreadPoolExecutor) -> None:
    requests: queue.SimpleQueue[pool.ReadRequest | None] = queue.SimpleQueue()
    reads = Reads(iter(requests.get, None), readers)
    assert reads.next(0.01) is None
    requests.put(None)
