"""The small parts: sets of pieces, counts of holders, transfers and their memory, rounds of dialling, summaries, reads of pieces."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpool.discovery.base import Endpoint
from shardpool.errors import SeedError
from shardpool.model.catalog import Catalog, Extent, FileEntry
from shardpool.retry import Backoff
from shardpool.settings import Settings
from shardpool.swarm import bits
from shardpool.swarm.actions import SEED
from shardpool.swarm.availability import Availability
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.peer_table import PeerTable
from shardpool.swarm.seed_reader import read_piece
from shardpool.swarm.summary import LoadSummary
from shardpool.swarm.transfer import Transfers
from shardpool.swarm.workers import Workers

PIECES = st.sets(st.integers(0, 300))


@given(PIECES)
def test_a_set_of_bits_holds_what_was_put_in(pieces: set[int]) -> None:
    found = bits.bit_set(pieces)
    assert list(bits.members(found)) == sorted(pieces)
    assert bits.size(found) == len(pieces)


@given(PIECES.filter(bool), st.integers(0, 400))
def test_a_pick_is_the_first_at_or_after_its_start_or_the_first_at_all(pieces: set[int], start: int) -> None:
    expected = min((p for p in pieces if p >= start), default=min(pieces))
    assert bits.pick(bits.bit_set(pieces), start) == expected


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 30)))))
def test_levels_are_the_counts_of_holders(changes: list[tuple[bool, set[int]]]) -> None:
    counted, counts = Availability(31), [0] * 31
    for adding, pieces in changes:
        usable = {p for p in pieces if adding or counts[p]}
        (counted.add_all if adding else counted.remove_all)(bits.bit_set(usable))
        for piece in usable:
            counts[piece] += 1 if adding else -1
    assert [counted.count(piece) for piece in range(31)] == counts
    for level, pieces in enumerate(counted.levels):
        assert list(bits.members(pieces)) == [p for p in range(31) if counts[p] == level]
    assert counted.absent == counted.levels[0]


def test_a_place_in_the_store_has_one_owner() -> None:
    transfers = Transfers()
    first = transfers.begin(1, 5, 0.0)
    second = transfers.begin(2, 5, 0.0)
    assert (first.scratch, second.scratch) == (False, True)
    transfers.give_up(first)
    assert transfers.begin(3, 5, 0.0).scratch, "given up is not settled"
    transfers.settle(1, 5)
    assert not transfers.begin(4, 5, 0.0).scratch


def test_active_transfers_are_those_from_peers_that_may_still_bring_something() -> None:
    transfers = Transfers()
    transfers.give_up(transfers.begin(1, 1, 0.0))
    transfers.begin(2, 2, 0.0)
    transfers.begin(SEED, 3, 0.0)
    assert (transfers.active, transfers.reading) == (1, 1 << 3)
    transfers.settle(1, 1)
    transfers.settle(2, 2)
    transfers.settle(SEED, 3)
    assert (transfers.active, transfers.reading, len(transfers)) == (0, 0, 0)
    assert transfers.settle(2, 2) is None


def _table() -> PeerTable:
    return PeerTable("me", Backoff(1.0, 2.0, 8.0), random.Random(1))


def _fail_all(table: PeerTable) -> int:
    tried = 0
    while found := table.dial(0, 100):
        for candidate in found:
            tried += 1
            table.failed(candidate, 0, "refused")
    return tried


def test_pauses_between_rounds_grow_and_shrink_with_success() -> None:
    table = _table()
    table.listed([Endpoint("a", 1), Endpoint("b", 1)], "")
    now, pauses = 0.0, []
    for _ in range(4):
        assert _fail_all(table) == 2
        assert not table.next_round(now, lacking=True)
        assert table.round_at is not None
        pauses.append(table.round_at - now)
        now = table.round_at
        assert table.next_round(now, lacking=True)
    assert pauses == sorted(pauses)
    assert 0.75 <= pauses[0] <= 1.25
    (candidate,) = table.dial(0, 1)
    table.linked(candidate, 7)
    table.prospered()
    _fail_all(table)
    table.next_round(now, lacking=True)
    assert table.round_at is not None
    assert table.round_at - now <= 1.25


def test_no_round_begins_while_enough_peers_are_linked() -> None:
    table = _table()
    table.listed([Endpoint("a", 1)], "")
    _fail_all(table)
    assert not table.next_round(1e9, lacking=False)
    assert table.round_at is None


def test_an_endpoint_that_is_listed_no_more_is_forgotten_once_it_fails() -> None:
    table = _table()
    table.listed([Endpoint("a", 1)], "")
    (candidate,) = table.dial(0, 9)
    table.linked(candidate, 1)
    table.listed([], "")
    assert len(table) == 1, "it is in use"
    table.failed(candidate, 1, "reset")
    assert len(table) == 0


def test_the_summary_is_one_line_with_bytes_by_origin_and_reasons() -> None:
    summary = LoadSummary(
        transport="stream",
        bytes_from={"peer": 3_000_000_000, "seed": 500_000, "resume": 0},
        seconds=3.0,
        pieces=1000,
        refetched=2,
        peers_used=("a:1", "b:1"),
        rejected={"c:1": "identity differs"},
        fallbacks={"peers are busy": 4},
    )
    line = summary.line()
    assert line == (
        "3 GB in 3.0 s (1 GB/s): 3 GB from peers, 500 kB from the seed; 2 peers over stream; 2 pieces refetched; "
        "4 pieces read from the seed since peers are busy; not used: c:1 (identity differs)"
    )
    assert summary.as_dict()["bytes_from"]["peer"] == 3_000_000_000


class Files:
    """A seed of two files."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content

    def describe(self) -> str:
        return "files"

    def files(self) -> list:
        return []

    def read_into(self, path: str, offset: int, buffer: memoryview) -> None:
        found = self.content[path][offset : offset + buffer.nbytes]
        if len(found) < buffer.nbytes:
            raise SeedError(f"{path} is short")
        buffer[:] = found

    def close(self) -> None:
        pass


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 17), st.integers(1, 9))
def test_a_piece_is_read_across_files_into_memory_cut_anywhere(one: int, two: int, piece_size: int, cut: int) -> None:
    content = {"a": bytes(range(one)), "b": bytes(range(100, 100 + two))}
    files = (FileEntry("a", one), FileEntry("b", two))
    catalog = Catalog("whole", 1, 0, files, (Extent(0, 0, 0, one), Extent(one, 1, 0, two)), (), piece_size)
    everything = content["a"] + content["b"]
    for piece in range(catalog.pieces):
        length = catalog.piece_length(piece)
        memory = memoryview(bytearray(length))
        parts = [memory[start : start + cut] for start in range(0, length, cut)]
        read_piece(Files(content), catalog, piece, parts)
        start = catalog.piece_start(piece)
        assert bytes(memory) == everything[start : start + length]


def test_workers_run_at_most_so_many_jobs_at_once_and_end() -> None:
    workers, gate, running, most = Workers("test", 2), threading.Event(), [], []
    lock = threading.Lock()
    both = threading.Barrier(3, timeout=10)

    def job() -> None:
        with lock:
            running.append(1)
            most.append(len(running))
        if len(most) <= 2:
            both.wait()
        gate.wait(10)
        with lock:
            running.pop()

    for _ in range(5):
        workers.submit(job)
    both.wait()
    gate.set()
    assert workers.close(10)
    assert len(most) == 5
    assert max(most) == 2


def test_a_stuck_job_does_not_hold_the_owner_longer_than_it_wants_to_wait() -> None:
    workers, gate = Workers("stuck", 1), threading.Event()
    workers.submit(lambda: gate.wait(30) and None)
    assert not workers.close(0.05)
    gate.set()
    assert workers.close(10)


@pytest.mark.parametrize(
    ("environment", "settle"),
    [({}, 0.0), ({"SHARDPOOL_PEERS": "a:1"}, 3.0), ({"SHARDPOOL_DISCOVERY": "none", "SHARDPOOL_PEERS": "a:1"}, 0.0)],
)
def test_nobody_is_waited_for_where_nobody_can_come(environment: dict[str, str], settle: float) -> None:
    assert SwarmOptions.of(Settings.load(environment)).settle_seconds == settle
