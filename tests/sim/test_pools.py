"""What a pool costs as a whole: time, storage, uploads, in ratios of one copy. Virtual time, so the numbers do not depend on the machine."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from pool_peers import Recorder
from simulated_pool import Pool, Replica, Truth, make_catalog
from simulation.case import Case, simulate

from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.peer_table import EVERY_PEER, degree
from shardpool.transport.loopback import LoopbackTransport

SMALL = Case(replicas=8, pieces=150)
COPY = 30.0
PIECE = 1 << 20


@pytest.mark.parametrize(
    ("case", "time", "storage"),
    [
        pytest.param(SMALL, 1.15, 1.02, id="storage is fast"),
        pytest.param(replace(SMALL, storage=1.0), 1.3, 1.05, id="storage is as slow as one link"),
        pytest.param(replace(SMALL, seed_readers=1), 1.3, 1.0, id="one may read storage"),
        pytest.param(replace(SMALL, slow_disks=0.3), 1.3, 1.05, id="some read storage slowly"),
        pytest.param(replace(SMALL, dns_lag=2.0, stagger=2.0), 1.3, 1.1, id="starts and DNS differ by seconds"),
        # Links of 1, 0.63, 0.4 and 0.25 send 0.57 of what the fastest can take: 1.75 copies for it is the limit.
        pytest.param(replace(SMALL, replicas=16, speeds=4.0), 1.75, 1.05, id="links differ by four"),
    ],
)
def test_a_cold_pool_reads_storage_about_once_and_takes_about_one_copy(case: Case, time: float, storage: float) -> None:
    outcome = simulate(case)
    assert outcome.time <= time
    assert outcome.storage <= storage
    assert outcome.most <= 1.5
    assert not outcome.failed


def test_one_complete_replica_sends_each_piece_about_once() -> None:
    outcome = simulate(replace(SMALL, ready=1, storage=0.001, reader=0.001))
    assert outcome.first <= 1.3
    assert outcome.time <= 1.3
    assert outcome.storage == 0


def test_time_hardly_grows_with_the_number_of_replicas() -> None:
    few, many = (simulate(replace(SMALL, replicas=n)) for n in (4, 16))
    assert many.time <= 1.15 * few.time


def test_killed_replicas_cost_storage_little() -> None:
    outcome = simulate(replace(SMALL, replicas=10, churn=0.2))
    assert outcome.storage <= 1.35  # two of ten lost what only they had read, and read again what they lacked
    assert outcome.time <= 1.4
    assert not outcome.failed


def test_links_grow_with_the_logarithm_of_the_pool() -> None:
    assert [degree(n) for n in (0, 1, EVERY_PEER)] == [0, 1, EVERY_PEER]
    for peers in (100, 1000, 10_000):
        assert degree(peers) <= max(16, 2 * math.ceil(math.log2(peers)))


def test_a_large_pool_is_not_linked_in_full_and_still_reads_storage_about_once() -> None:
    outcome = simulate(Case(replicas=48, pieces=48))
    assert outcome.storage <= 1.1
    assert not outcome.failed
    # Handshakes, announcements and leases of 16 links each way, whatever the number of replicas.
    assert outcome.control <= 48 * 2 * 16 * 4


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("change", "storage"),
    [
        pytest.param({}, 1.05, id="all start at once"),
        pytest.param({"stagger": 3.0}, 1.15, id="within three seconds"),
        # Ten of forty-eight lose what only they had.
        pytest.param({"churn": 0.2}, 1.2, id="and some are killed"),
    ],
)
def test_lists_that_come_late_do_not_make_a_large_pool_read_storage_again(
    number: int, change: dict[str, float], storage: float
) -> None:
    outcome = simulate(Case(replicas=48, pieces=96, dns_lag=5.0, number=number, **change))  # type: ignore[arg-type]
    assert outcome.storage <= storage
    assert outcome.time <= 1.4
    assert not outcome.failed


def test_one_complete_replica_of_a_pool_that_is_not_linked_in_full_sends_each_piece_to_few() -> None:
    outcome = simulate(Case(replicas=48, pieces=96, ready=1, storage=0.001, reader=0.001))
    assert outcome.first <= 1.5
    assert outcome.time <= 1.5
    assert not outcome.failed


def test_a_replica_that_is_alone_and_listed_begins_at_once() -> None:
    outcome = simulate(Case(replicas=1, pieces=50))
    assert outcome.time <= 1.02
    assert outcome.storage == 1.0


def _receiver(*, faulty: str = "", at: float = COPY / 2) -> tuple[Replica, Pool]:
    """A receiver of two complete sources, one of which fails half way."""
    truth = Truth.without_bytes(make_catalog(150, PIECE))
    link = truth.catalog.size / COPY
    pool = Pool(5, truth, options=SwarmOptions(stall_seconds=3.0), tick=0.5)
    first, _ = (pool.add(up=link).boot(complete=True) for _ in range(2))
    receiver = pool.add(up=link, reads_seed=False).boot()
    faults = {
        "": lambda: None,
        "killed": first.kill,
        "frozen": lambda: pool.net.freeze(first.node),
        "black hole": lambda: pool.net.isolate(first.node),
        "slow": lambda: pool.net.set_speed(first.node, link / 10, link / 10),
    }
    pool.net.clock.at(at, faults[faulty])
    pool.run(10 * COPY, lambda: receiver.done)
    assert receiver.error is None
    return receiver, pool


@pytest.mark.parametrize(
    ("fault", "tax"),
    [("killed", 0.1 * COPY + 1), ("frozen", 3.0 + 1), ("black hole", 3.0 + 1), ("slow", 0.1 * COPY + 1)],
)
def test_a_source_that_fails_half_way_costs_little(fault: str, tax: float) -> None:
    healthy, _ = _receiver()
    harmed, _ = _receiver(faulty=fault)
    assert harmed.finished_at <= healthy.finished_at + tax
    assert harmed.loader is not None
    assert harmed.loader.scheduler.tally.refetched <= 2  # what its connection carried


@pytest.mark.parametrize("when", ["before its turn", "while it is sent"])
def test_a_place_whose_last_request_is_given_up_is_given_back(when: str) -> None:
    pool = Pool(1, Truth.without_bytes(make_catalog(8, PIECE)))
    source, receiver = pool.add(up=PIECE / 10).boot(complete=True), pool.add().boot(complete=True)
    transport = LoopbackTransport(pool.net, receiver.node)
    told = Recorder()
    link = transport.connect(source.endpoint, receiver.state.party(), told)
    pool.net.clock.run(1.0)
    link.request(0, [])
    if when == "while it is sent":
        pool.net.clock.run(1.5)
        assert source.node.readers
    link.abandon(0)
    pool.net.clock.run(1.6)
    assert told.next("failed")[1] == 0
    pool.net.clock.run(2.0 + 2 * pool.net.linger)
    assert not source.node.readers


def test_the_same_number_gives_the_same_run() -> None:
    one, other = (simulate(replace(SMALL, churn=0.3, dns_lag=1.0, pieces=40)) for _ in range(2))
    assert replace(one, cpu=0) == replace(other, cpu=0)
