"""A random pool with random faults from one number, and the promises that must hold in it whatever happens."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from blake3 import blake3
from simulated_pool import MemoryStore, Pool, Replica, Truth, make_catalog

from shardpool.discovery.base import Endpoint
from shardpool.errors import ShardpoolError
from shardpool.model.holdings import Holdings
from shardpool.swarm.digests import content_digest
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Party, Phase
from shardpool.transport.loopback import Faults, Guard, LoopbackLink, Node

DEADLINE = 300.0


class Owners(Guard):
    """Who owns which memory of one replica. Two owners at once, or an owner of what is shown to peers, is a broken promise."""

    def __init__(self, broken: list[str], replica: Replica) -> None:
        self._broken, self._replica = broken, replica
        self._owned: dict[tuple[object, int], list[tuple[int, int]]] = {}

    def take(self, link: object, piece: int, destination: Sequence[memoryview]) -> None:
        ranges = []
        for view in destination:
            if view.nbytes:
                first = ctypes.addressof(ctypes.c_char.from_buffer(view))
                ranges.append((first, first + view.nbytes))
        for (_, other), taken in self._owned.items():
            for first, end in taken:
                if any(first < e and f < end for f, e in ranges):
                    self._broken.append(
                        f"replica {self._replica.index}: memory of piece {other} is asked for twice ({piece})"
                    )
        holdings = self._replica.state.holdings
        store = self._replica.store
        if holdings is not None and piece in holdings and store is not None:
            place = store.destination(piece)
            if place and place[0].nbytes:
                first = ctypes.addressof(ctypes.c_char.from_buffer(place[0]))
                if any(first < e and f < first + place[0].nbytes for f, e in ranges):
                    self._broken.append(
                        f"replica {self._replica.index}: piece {piece} is fetched over its announced bytes"
                    )
        self._owned[link, piece] = ranges

    def release(self, link: object, piece: int) -> None:
        self._owned.pop((link, piece), None)


class WatchedState(ReplicaState):
    """Notes every announcement that is not backed by the store's bytes."""

    def __init__(self, pool: WatchedPool, replica: Replica, party: Party) -> None:
        super().__init__(party, transports=("loopback",), reads_seed=replica.reads_seed)
        self._pool, self._replica = pool, replica

    def hold(self, piece: int, digest: bytes) -> None:
        store = self._replica.store
        assert store is not None
        if store.digest(piece) != digest:
            self._pool.broken.append(f"replica {self._replica.index} announced piece {piece} before it was verified")
        super().hold(piece, digest)


class WatchedPool(Pool):
    """A pool that keeps a list of broken promises."""

    def __init__(self, number: int, truth: Truth, **options: object) -> None:
        super().__init__(number, truth, **options)  # type: ignore[arg-type]
        self.broken: list[str] = []
        self.guards: dict[Replica, Owners] = {}

    def make_state(self, replica: Replica, party: Party) -> ReplicaState:
        return WatchedState(self, replica, party)

    def make_guard(self, replica: Replica) -> Guard:
        guard = self.guards[replica] = Owners(self.broken, replica)
        return guard

    def reading(self, replica: Replica, piece: int, destination: Sequence[memoryview]) -> None:
        self.guards[replica].take("seed", piece, destination)

    def read(self, replica: Replica, piece: int) -> None:
        self.guards[replica].release("seed", piece)


@dataclass
class Schedule:
    """A pool that runs by its number. `notes` say what was planned; `steady` are honest complete replicas without faults."""

    number: int
    pool: WatchedPool
    notes: list[str] = field(default_factory=list)
    steady: list[Replica] = field(default_factory=list)
    liars: list[Replica] = field(default_factory=list)
    pinned: bool = False
    disturbed: set[int] = field(default_factory=set)  # replicas whose own process or link was harmed
    slow: bool = False  # a slow receiver may keep its place at a source for longer than the others' deadline


def lie(replica: Replica, rng: random.Random) -> None:
    """A complete replica whose bytes are wrong, and whose announcements match them."""
    store, state = replica.store, replica.state
    assert store is not None
    catalog = replica.pool.truth.catalog
    state._holdings = Holdings(catalog.pieces, catalog.digest)
    for piece in range(catalog.pieces):
        place = store.destination(piece)[0]
        if rng.random() < 0.5:
            place[0] ^= 1
        state.hold(piece, blake3(place).digest())


def make_schedule(number: int) -> Schedule:
    """Plan a run. Every choice comes from `number`."""
    rng = random.Random(f"schedule/{number}")
    pieces, piece_size = rng.randint(1, 40), rng.randint(32, 200)
    catalog = make_catalog(pieces, piece_size, last=rng.randint(1, piece_size))
    truth = Truth.with_bytes(catalog, rng)
    copy = rng.uniform(4, 20)
    link = max(catalog.size, 2000) / copy  # less than some bytes a second could not be told from a stall
    pinned = rng.random() < 0.3
    options = SwarmOptions(
        stall_seconds=3.0,
        wait_for_peers_seconds=20.0,
        seed_concurrency=rng.randint(1, 4),
        seed_readers=rng.choice([0, 0, 0, 1, 2]),
        content_digest=content_digest(catalog.digest, truth.digests) if pinned else b"",
    )
    pool = WatchedPool(
        number,
        truth,
        options=options,
        deadline=DEADLINE,
        storage_rate=link * rng.choice([0.5, 2, 20]),
        reader_rate=link * rng.choice([0.3, 1, 4]),
        dns_lag=rng.choice([0, 0, 1, 4]),
        max_readers=rng.choice([1, 2, 8]),
        latency=rng.choice([0.0005, 0.02]),
        late=rng.choice([0, 0, 1.0]),
    )
    plan = Schedule(number, pool, pinned=pinned)
    seeds = rng.choice(["all", "all", "some", "none"])
    complete = rng.randint(1, 2) if seeds == "none" else rng.choice([0, 0, 1])
    fillers = rng.randint(1, 5)
    for index in range(complete + fillers):
        reads = seeds == "all" or (seeds == "some" and rng.random() < 0.5)
        pool.add(reads_seed=reads, up=link * rng.choice([0.3, 1, 1]), disk=link * rng.choice([0.2, 10]))
        if index < complete:
            pool.replicas[-1].boot(complete=True)
        else:
            start = rng.choice([0.0, 0.0, rng.uniform(0, copy)])
            pool.net.clock.at(start, lambda replica=pool.replicas[-1]: replica.boot())  # type: ignore[misc]
    plan.notes.append(
        f"{complete} complete, {fillers} filling, seed for {seeds}, {pieces} pieces, one copy in {copy:.1f} s, pinned {pinned}"
    )
    plan.steady = list(pool.replicas[:complete])
    _strangers(plan, rng)
    for _ in range(rng.randint(0, 4)):
        _fault(plan, rng, copy)
    return plan


def _strangers(plan: Schedule, rng: random.Random) -> None:
    pool = plan.pool
    for index in range(rng.choice([0, 0, 1, 3])):
        endpoint = Endpoint(f"10.9.9.{index}", 6555)
        kind = rng.choice(["closed", "silent", "other identity", "garbage"])
        plan.notes.append(f"{endpoint.target} is listed: {kind}")
        pool.strangers.append(endpoint)
        if kind == "closed":
            continue
        state = None
        if kind == "other identity":
            party = Party("f" * 31 + str(index), "f" * 16, '{"model_name":"other"}', 0, 1, "whole", endpoint.target)
            state = ReplicaState(party)
        node = Node(endpoint, state=state, frozen=kind == "silent")
        pool.net.add(node)


def _fault(plan: Schedule, rng: random.Random, copy: float) -> None:
    pool = plan.pool
    victim = rng.choice(pool.replicas)
    when = rng.uniform(0.05, 1.5) * copy
    kind = rng.choice(
        [
            "kill",
            "restart",
            "freeze",
            "thaw",
            "isolate",
            "heal",
            "slow",
            "corrupt",
            "lose",
            "reset",
            "refuse",
            "lie",
            "dns",
            "storage-flaky",
            "storage-gone",
            "replace",
        ]
    )
    plan.notes.append(f"at {when:.2f} s: {kind} {victim.index}")
    net = pool.net

    def unsteady() -> None:
        plan.disturbed.add(victim.index)
        if victim in plan.steady:
            plan.steady.remove(victim)

    def started(call):  # faults of a process that does not run yet happen to nobody
        return lambda: call() if victim.started_at >= 0 and victim.node.alive else None

    if kind in ("kill", "restart", "replace"):
        unsteady()
        net.clock.at(when, started(victim.kill))
        if kind != "kill":
            keeps = rng.random() < 0.5

            def again() -> None:
                if victim.started_at >= 0 and not victim.node.alive:
                    held = dict(victim.store.recorded) if keeps and victim.store else {}
                    if kind == "replace":
                        victim.endpoint = Endpoint(f"10.8.{victim.index}.{rng.randrange(256)}", 6555)
                    truthful = {p: d for p, d in held.items() if d == pool.truth.digests[p]}
                    victim.boot(held=truthful)

            net.clock.at(when + rng.uniform(0.1, 10), again)
    elif kind in ("freeze", "thaw", "isolate", "heal"):
        unsteady()
        stop = net.freeze if kind in ("freeze", "thaw") else net.isolate
        net.clock.at(when, started(lambda: stop(victim.node)))
        if kind in ("thaw", "heal"):
            net.clock.at(when + rng.uniform(0.5, 12), started(lambda: net.thaw(victim.node)))
    elif kind == "slow":
        unsteady()  # ten times slower may be too slow for the deadline
        plan.slow = True
        net.clock.at(when, started(lambda: net.set_speed(victim.node, victim.up / 10, victim.down / 10)))
    elif kind in ("corrupt", "lose", "reset", "refuse"):
        # Whoever harms its receivers may be dropped by them: it does not count as a source that must do.
        if victim in plan.steady:
            plan.steady.remove(victim)
        faults = Faults(late=pool.faults.late, **{kind: rng.choice([0.1, 0.5, 1.0])})
        net.clock.at(when if rng.random() < 0.5 else 0.0, started(lambda: setattr(victim.node, "faults", faults)))
    elif kind == "lie":
        if victim in plan.steady:
            plan.steady.remove(victim)
            plan.liars.append(victim)
            lie(victim, rng)
    elif kind == "dns":
        net.clock.at(
            when * rng.choice([0, 1]), lambda: setattr(pool, "dns_down_until", net.clock.now + rng.uniform(1, 15))
        )
    elif kind == "storage-flaky":
        pool.storage.fail = rng.choice([0.05, 0.3])
    elif kind == "storage-gone":
        net.clock.at(when, lambda: setattr(pool.storage, "fail_for_good", True))


def run_schedule(plan: Schedule) -> None:
    """Run to the end, and add to `pool.broken` what does not hold then."""
    pool, truth = plan.pool, plan.pool.truth
    pool.net.clock.run(DEADLINE + 60)
    broken = pool.broken
    for replica in pool.replicas:
        if replica.started_at < 0 or not replica.node.alive or replica.node.frozen or replica.loader is None:
            continue
        name = f"replica {replica.index}"
        took = replica.finished_at - replica.started_at
        if not replica.done:
            if pool.net.clock.now > replica.started_at + DEADLINE + 15:
                broken.append(f"{name} is still loading {pool.net.clock.now - replica.started_at:.0f} s after it began")
            continue
        if took > DEADLINE + 15:
            broken.append(f"{name} ended {took - DEADLINE:.1f} s after its deadline")
        if replica.error is not None:
            if not isinstance(replica.error, ShardpoolError):
                broken.append(f"{name} ended with {replica.error!r}, which is no typed error")
            if "\n" in str(replica.error):
                broken.append(f"{name}: its error is more than one line")
            if _must_succeed(plan, replica):
                broken.append(f"{name} failed though it had a source: {replica.error}")
            continue
        _check_bytes(plan, replica, truth, broken)
        if replica.node.reachable and not replica.loader.settled:
            broken.append(f"{name} is done and has not let go of its links")


def _must_succeed(plan: Schedule, replica: Replica) -> bool:
    pool = plan.pool
    if replica.index in plan.disturbed or plan.liars or (plan.slow and pool.max_readers < len(pool.replicas)):
        return False
    storage_works = not pool.storage.fail_for_good and pool.storage.fail < 0.2
    return bool(plan.steady) or (replica.reads_seed and storage_works)


def _check_bytes(plan: Schedule, replica: Replica, truth: Truth, broken: list[str]) -> None:
    store, holdings = replica.store, replica.state.holdings
    assert isinstance(store, MemoryStore)
    assert holdings is not None
    name = f"replica {replica.index}"
    if not holdings.complete:
        broken.append(f"{name} calls itself complete and lacks pieces")
        return
    for piece in range(truth.catalog.pieces):
        if store.digest(piece) != holdings.digest(piece) or store.recorded.get(
            piece, store.held.get(piece)
        ) != holdings.digest(piece):
            broken.append(f"{name}: piece {piece} is not what was announced")
            return
    # Without a pin, a lie that nobody contradicts cannot be told from the truth.
    if (plan.pinned or not plan.liars) and bytes(store.memory) != truth.content:
        broken.append(f"{name} is complete with other bytes than the seed's")


__all__ = ["DEADLINE", "LoopbackLink", "Phase", "Schedule", "make_schedule", "run_schedule"]
