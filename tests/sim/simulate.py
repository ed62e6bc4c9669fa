"""Simulate pools of many replicas: time, storage reads, uploads and control traffic, and how each grows.

    python tests/sim/simulate.py                     the table of standard cases
    python tests/sim/simulate.py -n 4,16 --ready 1   one case, options below
    python tests/sim/simulate.py --large             1,000 replicas, and smaller pools to see the growth (minutes)

Everything is a ratio: time over that of one copy over one replica's link, bytes over one copy. The runs use the scheduler and the
loader as they are, on the loopback network in virtual time; the same arguments give the same numbers.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from simulated_pool import Pool, Truth, make_catalog

from shardpool.swarm.options import SwarmOptions

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
    number: int = 1


@dataclass(frozen=True)
class Outcome:
    """Ratios. `time` is that of the last replica after its own start (for those that were not killed)."""

    time: float
    median: float
    storage: float
    first: float
    most: float
    control: float
    refetched: int
    failed: int
    cpu: float


def simulate(case: Case) -> Outcome:
    began = time.process_time()
    link = case.pieces * PIECE / case.copy
    truth = Truth.without_bytes(make_catalog(case.pieces, PIECE))
    options = SwarmOptions(seed_readers=case.seed_readers)
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
        refetched=sum(r.loader.scheduler.tally.refetched for r in fillers if r.loader),
        failed=sum(1 for r in fillers if r.error is not None),
        cpu=time.process_time() - began,
    )


STANDARD = {
    "cold": Case(),
    "cold, slow storage (1 link)": Case(storage=1.0),
    "cold, one storage reader": Case(seed_readers=1),
    "cold, DNS lags 5 s, starts within 5 s": Case(dns_lag=5.0, stagger=5.0),
    "cold, 10 % killed": Case(churn=0.1),
    "cold, 20 % slow disks": Case(slow_disks=0.2),
    "cold, links 4:1": Case(speeds=4.0),
    "from one complete replica": Case(ready=1, storage=0.001, reader=0.001),
}


# Small pieces of a copy would only cost time here: 100 of them show the same shape as 1,000, a little worse.
LARGE = {
    **{f"cold, {n}": Case(replicas=n, pieces=100) for n in (16, 64, 250, 1000)},
    "cold, 10 % killed, DNS lags 5 s": Case(replicas=1000, pieces=100, churn=0.1, dns_lag=5.0),
    "from one complete replica": Case(replicas=1000, pieces=100, ready=1, storage=0.001, reader=0.001),
}


def line(name: str, case: Case, outcome: Outcome) -> str:
    return (
        f"{name:40s} N={case.replicas:<5d} time {outcome.time:5.2f} (median {outcome.median:4.2f})  storage {outcome.storage:5.3f}  "
        f"first's upload {outcome.first:5.2f}  most {outcome.most:5.2f}  control/replica {outcome.control:7.0f}  "
        f"refetched {outcome.refetched:5d}  failed {outcome.failed}  [{outcome.cpu:.1f} s CPU]"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", default="", help="numbers of replicas, as 2,4,16")
    for name, kind in Case.__annotations__.items():
        if name != "replicas":
            plain = {"int": int, "float": float, "str": str, "bool": lambda text: text == "true"}[kind]
            parser.add_argument(f"--{name.replace('_', '-')}", type=plain, default=None)
    parser.add_argument("--large", action="store_true", help="1,000 replicas")
    options = vars(parser.parse_args())
    if options.pop("large"):
        for name, case in LARGE.items():
            print(line(name, case, simulate(case)), flush=True)
        return
    sizes = [int(n) for n in options.pop("n").split(",") if n]
    changes = {name: value for name, value in options.items() if value is not None}
    cases = {"as asked": Case()} if changes or sizes else STANDARD
    for name, case in cases.items():
        for n in sizes or [4, 16]:
            asked = replace(case, replicas=n, **changes)
            print(line(name, asked, simulate(asked)), flush=True)


if __name__ == "__main__":
    main()
