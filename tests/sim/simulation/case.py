"""One simulated deployment, and what it cost."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from dataclasses import dataclass

from simulated_pool import Pool, Truth, make_catalog

from shardpool.swarm.options import SwarmOptions
from simulation.traffic import KINDS, counted

PIECE = 1 << 20


@dataclass(frozen=True)
class Case:
    """One simulated deployment. `copy` is the time of one copy over one link, in seconds."""

    replicas: int = 16
    pieces: int = 1000
    copy: float = 60.0
    ready: int = 0
    storage: float = 0.0  # storage's bandwidth in links; 0: not the bottleneck
    reader: float = 1.0  # one replica's bandwidth from storage, in links
    seed_readers: int = 0
    speeds: float = 1.0  # the slowest link is so many times slower than the fastest
    slow_disks: float = 0.0  # share of replicas whose storage reads are ten times slower
    dns_lag: float = 0.0
    stagger: float = 0.0  # replicas start within so many seconds
    churn: float = 0.0  # share of replicas killed during the load
    restart: bool = True
    kill_ready: float = 0.0  # when the first complete replica is killed, in copies
    stop: str = "kill"  # what happens to it: kill, freeze, isolate, slow
    window: int = 0  # pieces under way at once; 0 here and below: the scheduler's own
    sources: int = 0  # sources read from at once
    seed_concurrency: int = 0  # reads from storage at once
    number: int = 1  # seed of everything that is left to chance


@dataclass(frozen=True)
class Outcome:
    """Ratios to one copy, and messages per replica.

    Args:
        time: that of the last replica after its own start (of those that were not killed), over one copy over its link.
        median: the same of the replica in the middle.
        storage: bytes read from storage.
        first: bytes that the first replica sent; the complete one where there is one.
        most: bytes that the replica sent that sent most.
        control: control messages sent and received.
        requests: pieces asked for.
        handshakes: of the control messages, those of opening links.
        pieces: announcements of pieces.
        claims: announcements of claims alone.
        loads: announcements of nothing but load or phase.
        refetched: pieces fetched again, in all.
        failed: replicas whose load failed.
        cpu: seconds that the simulation took.
    """

    time: float
    median: float
    storage: float
    first: float
    most: float
    control: float
    requests: float
    handshakes: float
    pieces: float
    claims: float
    loads: float
    refetched: int
    failed: int
    cpu: float


def simulate(case: Case) -> Outcome:
    """Run a case; the same case gives the same outcome."""
    with counted() as counts:
        return _simulate(case, counts)


def _simulate(case: Case, counts: Counter[str]) -> Outcome:
    began = time.process_time()
    link = case.pieces * PIECE / case.copy
    truth = Truth.without_bytes(make_catalog(case.pieces, PIECE))
    asked = {name: getattr(case, name) for name in ("window", "sources", "seed_concurrency") if getattr(case, name)}
    options = SwarmOptions(seed_readers=case.seed_readers, **asked)
    pool = Pool(
        case.number,
        truth,
        options=options,
        deadline=1000 * case.copy,
        storage_rate=link * (case.storage or 10 * case.replicas),
        reader_rate=link * case.reader,
        dns_lag=case.dns_lag,
        dns_interval=1.0 if case.replicas <= 100 else 2.5,
        tick=3.0,
        batch=0.0 if case.replicas <= 32 else case.copy / case.pieces / 20,
    )
    rng = pool.rng
    for _ in range(case.ready):
        pool.add(up=link).boot(complete=True)
    for index in range(case.replicas):
        speed = link / (case.speeds ** (index % 4 / 3))
        disk = link * case.reader / 10 if rng.random() < case.slow_disks else 1e15
        replica = pool.add(up=speed, disk=disk)
        delay = case.stagger * rng.random()
        pool.net.clock.at(delay, lambda replica=replica: replica.boot())  # type: ignore[misc]
    fillers = pool.replicas[case.ready :]
    doomed = rng.sample(fillers, round(case.churn * len(fillers)))
    for replica in doomed:
        when = case.copy * (0.05 + 0.9 * rng.random())

        def strike(replica=replica) -> None:
            if replica.done or replica.started_at < 0:
                return
            replica.kill()
            if case.restart:
                pool.net.clock.after(2.0, replica.boot)

        pool.net.clock.at(when, strike)
    if case.kill_ready:
        victim = pool.replicas[0]
        act = {
            "kill": victim.kill,
            "freeze": lambda: pool.net.freeze(victim.node),
            "isolate": lambda: pool.net.isolate(victim.node),
            "slow": lambda: pool.net.set_speed(victim.node, link / 10, link / 10),
        }[case.stop]
        pool.net.clock.at(case.kill_ready * case.copy, act)
    pool.net.clock.run(case.stagger + 0.001)
    pool.run(
        50 * case.copy,
        lambda: (
            all(r.done or not r.node.alive for r in fillers)
            and pool.net.clock.now > case.copy * (1 if case.churn else 0)
        ),
    )
    size = truth.catalog.size
    steady = [r for r in fillers if r not in doomed and r.node.reachable]
    times = [(r.finished_at - r.started_at) / case.copy * (r.up / link) if r.done else math.inf for r in steady]
    return Outcome(
        time=max(times),
        median=statistics.median(times),
        storage=pool.storage.read / size,
        first=pool.replicas[0].node.sent / size,
        most=max(r.node.sent for r in pool.replicas) / size,
        control=statistics.mean(r.node.messages for r in fillers),
        requests=statistics.mean(r.node.requests for r in fillers),
        **{kind: counts[kind] / len(fillers) for kind in KINDS},
        refetched=sum(r.loader.scheduler.tally.refetched for r in fillers if r.loader),
        failed=sum(1 for r in fillers if r.error is not None),
        cpu=time.process_time() - began,
    )


__all__ = ["Case", "Outcome", "simulate"]
