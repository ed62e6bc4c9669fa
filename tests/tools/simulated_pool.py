"""A pool of replicas in virtual time: the real scheduler and loader on the loopback network, a simulated seed and a lagging DNS."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from blake3 import blake3

from shardpool.discovery.base import Endpoint, Listing
from shardpool.errors import SeedError, ShardpoolError
from shardpool.model.catalog import Catalog, Extent, FileEntry
from shardpool.swarm.loader import Event, Loader, Observer, memory_digest
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Party, Phase
from shardpool.transport.loopback import Faults, Flow, Guard, LoopbackTransport, Network, Node

IDENTITY = "0123456789abcdef"


def make_catalog(pieces: int, piece_size: int, *, last: int | None = None, name: str = "model.bin") -> Catalog:
    """A catalog of one file; `last` is the length of the last piece."""
    size = pieces * piece_size if last is None else (pieces - 1) * piece_size + last
    return Catalog("whole", 1, 0, (FileEntry(name, size),), (Extent(0, 0, 0, size),), (), piece_size)


@dataclass(slots=True)
class Truth:
    """What the seed holds: the outline, the digests, and (when bytes are simulated) the bytes."""

    catalog: Catalog
    digests: list[bytes]
    content: bytes = b""

    @classmethod
    def with_bytes(cls, catalog: Catalog, rng: random.Random) -> Truth:
        content = rng.randbytes(catalog.size)
        starts = range(0, catalog.size, catalog.piece_size)
        return cls(catalog, [blake3(content[s : s + catalog.piece_size]).digest() for s in starts], content)

    @classmethod
    def without_bytes(cls, catalog: Catalog) -> Truth:
        return cls(catalog, [blake3(piece.to_bytes(4, "big")).digest() for piece in range(catalog.pieces)])

    def piece(self, piece: int) -> bytes:
        start = piece * self.catalog.piece_size
        return self.content[start : start + self.catalog.piece_length(piece)]


class MemoryStore:
    """A store in memory; without bytes it only remembers what was recorded. `fail_after` records it raises `error`."""

    def __init__(self, catalog: Catalog, *, with_bytes: bool, held: dict[int, bytes] | None = None) -> None:
        self.catalog = catalog
        self.recorded: dict[int, bytes] = {}
        self.held = held or {}
        self.memory = bytearray(catalog.size if with_bytes else 0)
        self._with_bytes = with_bytes
        self.error: ShardpoolError | None = None
        self.fail_after = -1

    def open(self) -> dict[int, bytes]:
        return dict(self.held)

    def destination(self, piece: int) -> list[memoryview]:
        if not self._with_bytes:
            return []
        start = self.catalog.piece_start(piece)
        return [memoryview(self.memory)[start : start + self.catalog.piece_length(piece)]]

    def contents(self, piece: int) -> list[memoryview]:
        return [view.toreadonly() for view in self.destination(piece)]

    def digest(self, piece: int) -> bytes:
        return memory_digest(self.contents(piece))

    def record(self, piece: int, digest: bytes) -> None:
        if self.error is not None and len(self.recorded) >= self.fail_after >= 0:
            raise self.error
        self.recorded[piece] = digest

    def forget(self, piece: int) -> None:
        self.recorded.pop(piece, None)

    def forget_file(self, path: str) -> list[int]:
        return []

    def regions(self) -> list:
        return []

    def writable_regions(self) -> list:
        return []

    def prefault(self) -> None:
        pass

    def seal(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(slots=True)
class Storage:
    """Where the first copy lies. `rate` in bytes per second in all, `reader_rate` for one replica; `fail`: share of reads that fail."""

    node: Node
    reader_rate: float
    latency: float
    read: int = 0
    reads: int = 0
    fail: float = 0.0
    fail_for_good: bool = False
    corrupt: frozenset[int] = frozenset()


class Replica:
    """One simulated process: its node on the network, its state, its load."""

    def __init__(self, pool: Pool, index: int, *, reads_seed: bool, up: float, down: float, disk: float) -> None:
        self.pool, self.index, self.disk = pool, index, disk
        self.endpoint = Endpoint(f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}", 6555)
        self.generation = 0
        self.reads_seed = reads_seed
        self.up, self.down = up, down
        self.started_at = self.finished_at = -1.0
        self.died_at = -1.0
        self.error: ShardpoolError | None = None
        self.node: Node
        self.state: ReplicaState
        self.loader: Loader | None = None
        self.store: MemoryStore | None = None
        self._inbox: list[Event] = []
        self._drain_due = False
        self._wake_at = float("inf")
        self._known: tuple[Endpoint, ...] | None = None
        self._reading: list[Flow] = []

    # Life

    def boot(self, *, held: dict[int, bytes] | None = None, complete: bool = False, **party: object) -> Replica:
        """The process starts, maybe anew."""
        pool = self.pool
        self.generation += 1
        name = f"{pool.number}/{self.index}/{self.generation}"
        details = {
            "instance": blake3(name.encode()).hexdigest(length=16),
            "mx_source_id": IDENTITY,
            "identity_json": "{}",
            "rank": 0,
            "world": 1,
            "layout": "whole",
            "endpoint": self.endpoint.target,
        }
        details.update(party)  # type: ignore[arg-type]
        self.state = pool.make_state(self, Party(**details))  # type: ignore[arg-type]
        self.node = Node(self.endpoint, up=self.up, down=self.down, max_readers=pool.max_readers, state=self.state)
        self.node.faults = pool.faults
        pool.net.add(self.node)
        self._inbox, self._known, self.error = [], None, None
        self.started_at, self.died_at, self.finished_at = pool.net.clock.now, -1.0, -1.0
        self.loader = None
        self._wake_at = float("inf")
        if complete:
            self._make_store(pool.truth.catalog, pool.truth.digests)
            self.state.set_outline(pool.truth.catalog)
            for piece, digest in enumerate(pool.truth.digests):
                self.state.hold(piece, digest)
            self.state.set_phase(Phase.READY)
            self.finished_at = pool.net.clock.now
            return self
        self._held = held or {}
        self._background = _Background(self, self.generation)
        self.loader = Loader(
            transport=LoopbackTransport(pool.net, self.node, pool.make_guard(self)),
            make_store=self._make_store,
            state=self.state,
            options=pool.options,
            reads_seed=self.reads_seed,
            observer=Observer(),
            background=self._background,
            rng=random.Random(f"{pool.number}/{self.index}/{self.generation}"),
            now=pool.net.clock.now,
            deadline=pool.net.clock.now + pool.deadline,
        )
        background, loader = self._background, self.loader
        self.state.set_met(lambda endpoint: background.post(loader.met(endpoint)))
        self._act()
        self._poll_dns(self.generation)
        return self

    def _make_store(self, catalog: Catalog, digests: Sequence[bytes] = ()) -> MemoryStore:
        pool = self.pool
        store = self.store = MemoryStore(catalog, with_bytes=bool(pool.truth.content), held=getattr(self, "_held", {}))
        if pool.truth.content:
            for piece in range(len(digests)):
                store.destination(piece)[0][:] = pool.truth.piece(piece)
            for piece in store.held:
                store.destination(piece)[0][:] = pool.truth.piece(piece)
        self.node.contents = store
        pool.stores_made(self, store)
        return store

    def kill(self) -> None:
        """The process dies (SIGKILL)."""
        self.died_at = self.pool.net.clock.now
        self.pool.net.kill(self.node)
        self.stop_reading()

    def stop_reading(self) -> None:
        for flow in self._reading:
            self.pool.net.stop(flow)
        self._reading.clear()

    @property
    def done(self) -> bool:
        return self.finished_at >= 0

    # Events

    def post(self, event: Event) -> None:
        self._inbox.append(event)
        if not self._drain_due:
            self._drain_due = True
            self.pool.net.clock.after(self.pool.batch, self._drain)

    def _drain(self) -> None:
        self._drain_due = False
        if not self.node.alive or self.node.frozen:
            if self.node.frozen:
                self.pool.net.clock.after(0.5, self._redrain)
            return
        now = self.pool.net.clock.now
        events, self._inbox = self._inbox, []
        for event in events:
            event(now)
        self._act()

    def _redrain(self) -> None:
        if self._inbox and not self._drain_due:
            self._drain()

    def _act(self) -> None:
        loader, clock = self.loader, self.pool.net.clock
        if loader is None:
            return
        wake = loader.act(clock.now)
        if loader.finished and not self.done:
            self.finished_at = clock.now
            self.error = loader.error
            if loader.error is None:
                self.state.set_phase(Phase.READY)
            self.stop_reading()
            self.pool.ended(self)
        if wake < self._wake_at - 1e-9 or self._wake_at <= clock.now:
            self._wake_at = wake
            if wake < float("inf"):
                clock.at(wake, self._woken)

    def _woken(self) -> None:
        clock = self.pool.net.clock
        if not self.node.alive or self.done:
            return
        if self.node.frozen:
            clock.after(0.5, self._woken)
            return
        if clock.now + 1e-9 >= self._wake_at:
            self._wake_at = float("inf")
            self._act()

    def _poll_dns(self, generation: int) -> None:
        if not self.node.alive or self.done or generation != self.generation:
            return
        self.look_up()
        self.pool.net.clock.after(self.pool.dns_interval, lambda: self._poll_dns(generation))

    def look_up(self, *, force: bool = False) -> None:
        listing = self.pool.listing(self)
        if self.loader is not None and (force or listing.endpoints != self._known or listing.problem):
            self._known = listing.endpoints
            self.post(self.loader.listed(listing))


class _Background:
    def __init__(self, replica: Replica, generation: int) -> None:
        self._replica, self._generation = replica, generation

    def post(self, event: Event) -> None:
        if self._generation == self._replica.generation:
            self._replica.post(event)

    def digest(self, contents: Sequence[memoryview], done: Callable[[float, bytes], None]) -> None:
        # Later, as a thread of a hash pool would: what it reads must not change meanwhile.
        def compute() -> None:
            found = memory_digest(contents)
            self.post(lambda now: done(now, found))

        self._replica.pool.net.clock.after(0.001, compute)

    def scan(self, done: Callable[[float, Catalog | ShardpoolError], None]) -> None:
        pool = self._replica.pool
        found: Catalog | ShardpoolError = pool.truth.catalog
        if pool.storage.fail_for_good:
            found = SeedError("the simulated seed is gone")
        pool.net.clock.after(2 * pool.storage.latency, lambda: self.post(lambda now: done(now, found)))

    def read_seed(
        self,
        catalog: Catalog,
        piece: int,
        destination: Sequence[memoryview],
        done: Callable[[float, bytes | SeedError], None],
    ) -> Callable[[], None]:
        replica = self._replica
        pool, storage = replica.pool, replica.pool.storage
        length = catalog.piece_length(piece)
        pool.reading(replica, piece, destination)

        def arrived() -> None:
            pool.net.stop(flow)
            replica._reading.remove(flow)
            storage.read += length
            storage.reads += 1
            found: bytes | SeedError
            if storage.fail_for_good or (storage.fail and pool.rng.random() < storage.fail):
                found = SeedError("the simulated seed failed", transient=not storage.fail_for_good)
            else:
                content = pool.truth.piece(piece) if pool.truth.content else b""
                if piece in storage.corrupt and content:
                    content = bytes([content[0] ^ 1]) + content[1:]
                for view in destination:
                    view[:] = content
                found = blake3(content).digest() if content else pool.truth.digests[piece]
            pool.read(replica, piece)
            self.post(lambda now: done(now, found))

        flow = Flow(storage.node, replica.node, length, arrived, cap=min(storage.reader_rate, replica.disk))
        replica._reading.append(flow)

        def begin() -> None:
            if flow in replica._reading:
                pool.net.start(flow)

        def cancel() -> None:
            if flow in replica._reading:
                replica._reading.remove(flow)
                pool.net.stop(flow)
                pool.read(replica, piece)

        pool.net.clock.after(storage.latency, begin)
        return cancel

    def resolve(self) -> None:
        replica = self._replica
        replica.pool.net.clock.after(0.002, lambda: replica.look_up(force=True) if replica.node.alive else None)


class Pool:
    """Replicas, storage, DNS. Rates in bytes per second, times in seconds; the same `number` gives the same run."""

    def __init__(
        self,
        number: int,
        truth: Truth,
        *,
        options: SwarmOptions | None = None,
        deadline: float = 3600.0,
        storage_rate: float = 1e9,
        reader_rate: float = 1e9,
        storage_latency: float = 0.01,
        dns_lag: float = 0.0,
        dns_interval: float = 1.0,
        max_readers: int = 8,
        latency: float = 0.0005,
        linger: float = 2.0,
        tick: float = 1.0,
        late: float = 0.0,
        batch: float = 0.0,
    ) -> None:
        self.number = number
        self.truth = truth
        self.rng = random.Random(f"pool/{number}")
        self.options = options or SwarmOptions()
        self.deadline = deadline
        self.dns_lag, self.dns_interval = dns_lag, dns_interval
        self.dns_down_until = -1.0
        self.max_readers = max_readers
        self.batch = batch  # seconds for which a replica lets events gather, as a busy one does
        self.faults = Faults(late=late)
        self.net = Network(
            random.Random(f"net/{number}"), latency=latency, verify=bool(truth.content), linger=linger, tick=tick
        )
        node = Node(Endpoint("storage", 1), up=storage_rate)
        self.storage = Storage(node, reader_rate, storage_latency)
        self.replicas: list[Replica] = []
        self.strangers: list[Endpoint] = []  # listed, and not of this pool
        self._unfinished = 0
        self._views: dict[tuple[int, int], tuple[Endpoint, ...]] = {}

    # Hooks for tests

    def make_state(self, replica: Replica, party: Party) -> ReplicaState:
        return ReplicaState(party, transports=("loopback",), reads_seed=replica.reads_seed)

    def make_guard(self, replica: Replica) -> Guard:
        return Guard()

    def stores_made(self, replica: Replica, store: MemoryStore) -> None:
        """A replica made its store."""

    def reading(self, replica: Replica, piece: int, destination: Sequence[memoryview]) -> None:
        """A read from the seed begins."""

    def read(self, replica: Replica, piece: int) -> None:
        """A read from the seed is over."""

    def ended(self, replica: Replica) -> None:
        """A replica's load is over."""

    # Making

    def add(
        self, *, reads_seed: bool = True, up: float = 1e8, down: float | None = None, disk: float = 1e12
    ) -> Replica:
        replica = Replica(self, len(self.replicas), reads_seed=reads_seed, up=up, down=down or up, disk=disk)
        self.replicas.append(replica)
        return replica

    def listing(self, viewer: Replica) -> Listing:
        now = self.net.clock.now
        if now < self.dns_down_until:
            return Listing((), problem="SERVFAIL")
        found = list(self.strangers)
        for replica in self.replicas:
            if replica.started_at < 0:
                continue
            # Caches differ: each viewer learns of each start and each death after a time of its own.
            mixed = (viewer.index * 7919 + replica.index * 104729 + replica.generation * 31 + self.number) % 1009
            lag = self.dns_lag * mixed / 1009
            born, died = replica.started_at + lag, replica.died_at
            if now >= born and (died < 0 or now < died + lag):
                found.append(replica.endpoint)
        return Listing(tuple(sorted(found, key=lambda e: (e.host, e.port))))

    def run(self, until: float, over: Callable[[], bool] | None = None) -> None:
        """Let time pass until every living replica is done, or until a time."""

        def all_done() -> bool:
            return all(r.done or not r.node.alive for r in self.replicas if r.started_at >= 0)

        last = [0]

        def check() -> bool:
            # Looking at every replica after every event would cost more than the events.
            last[0] += 1
            return last[0] % 64 == 0 and (over or all_done)()

        self.net.clock.run(until, check)


__all__ = ["IDENTITY", "MemoryStore", "Pool", "Replica", "Storage", "Truth", "field", "make_catalog"]
