"""Runs one load on real time: a thread with a queue, threads for what blocks, and one that watches the pool's listing."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence

from shardpool.discovery.base import Discovery, Listing
from shardpool.errors import AbandonedError, SeedError, ShardpoolError
from shardpool.log import logger
from shardpool.model.base import PieceStore
from shardpool.model.catalog import Catalog
from shardpool.model.checkpoint import scan
from shardpool.model.layout import shard_catalog
from shardpool.seed.base import Seed
from shardpool.swarm.loader import Event, Loader, Observer, memory_digest
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.seed_reader import SeedRead, read_piece
from shardpool.swarm.state import Party
from shardpool.swarm.summary import LoadSummary
from shardpool.swarm.workers import Workers
from shardpool.transport.base import Transport

LOG = logger(__name__)
HASH_THREADS = 2
_WATCH_SECONDS = 0.5  # one wait for a change of the listing; also how soon the watching thread notices the end
_SETTLE_SECONDS = 5.0  # for links and reads to let go of the memory once the load is over


class Driver:
    """Loads one rank's shard from peers and the seed into a store. Used once.

    Args:
        transport: opens links to peers; stays open.
        discovery: lists them; stays open.
        seed: where bytes come from first; None leaves only peers.
        make_store: called once, with the catalog, when the outline is known; the driver opens the store and never closes it.
        state: this replica's own state; pieces, claims and the outline are announced through it.
        options: bounds and habits.
        catalog: the outline where it is known beforehand, as after a restart; else it comes from a peer or the seed.
        observer: who is told how it goes.
        rng: for tests that want the same choices twice.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        discovery: Discovery,
        seed: Seed | None,
        make_store: Callable[[Catalog], PieceStore],
        state: ReplicaState,
        options: SwarmOptions,
        catalog: Catalog | None = None,
        observer: Observer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._transport = transport
        self._make_store = make_store
        self._state = state
        self._options = options
        self._observer = observer or Observer()
        self._rng = rng or random.Random()
        self._seed = seed
        self._catalog = catalog
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._background = _Threads(self._inbox, discovery, seed, state.party, options.seed_concurrency)
        self._loader: Loader | None = None
        self._stopping: ShardpoolError | None = None

    def run(self, deadline: float) -> LoadSummary:
        """Load until every byte is verified; blocks. `deadline` is a `time.monotonic()` value.

        Raises:
            NoSourceError, DeadlineExceededError, MismatchError, IntegrityError, StoreError: the load failed. Nothing writes to the
                store any more, unless the error's text says so.
            AbandonedError: `stop` was called.
        """
        now = time.monotonic()
        loader = self._loader = Loader(
            transport=self._transport,
            make_store=self._make_store,
            state=self._state,
            options=self._options,
            reads_seed=self._seed is not None,
            observer=self._observer,
            background=self._background,
            rng=self._rng,
            now=now,
            deadline=deadline,
            catalog=self._catalog,
        )
        self._background.start(loader)
        self._state.set_met(lambda endpoint: self._inbox.put(loader.met(endpoint)))
        try:
            self._pump(loader, lambda: loader.finished, float("inf"))
            # Memory that an abandoned transfer could still write to must not be shown to anybody.
            self._pump(loader, lambda: loader.settled, time.monotonic() + _SETTLE_SECONDS)
        finally:
            self._state.set_met(None)
            self._background.close()
        if not loader.settled:
            LOG.warning("transfers that were given up have not let go of their memory in %g s", _SETTLE_SECONDS)
        if loader.error is not None:
            raise loader.error
        return loader.summary()

    def stop(self) -> None:
        """End the load early; `run` raises AbandonedError. From any thread; nothing happens when it is over."""
        error = AbandonedError("the load was stopped")
        self._stopping = error
        self._inbox.put(lambda now: self._loader.stop(error) if self._loader else None)

    def summary(self) -> LoadSummary:
        """What was done so far; also after an error."""
        return self._loader.summary() if self._loader else LoadSummary(transport=self._transport.name)

    def _pump(self, loader: Loader, over: Callable[[], bool], until: float) -> None:
        """Handle events in batches, and carry out what follows from them."""
        inbox = self._inbox
        wake = loader.act(time.monotonic())
        while not over():
            now = time.monotonic()
            left = min(wake, until) - now
            if now >= until:
                return
            try:
                event = inbox.get(timeout=max(left, 0.0)) if left > 0 else inbox.get_nowait()
            except queue.Empty:
                event = None
            now = time.monotonic()
            while event is not None:
                event(now)
                try:
                    event = inbox.get_nowait()
                except queue.Empty:
                    event = None
            wake = loader.act(time.monotonic())


class _Threads:
    """The background of a loader in real time."""

    def __init__(
        self,
        inbox: queue.SimpleQueue[Event],
        discovery: Discovery,
        seed: Seed | None,
        party: Callable[[], Party],
        seed_concurrency: int,
    ) -> None:
        self._inbox = inbox
        self._discovery = discovery
        self._seed = seed
        self._party = party
        self._hashing = Workers("digest", HASH_THREADS)
        self._reading = Workers("seed", seed_concurrency)
        self._local = threading.local()
        self._wanted = threading.Event()
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None

    def start(self, loader: Loader) -> None:
        """Begin to watch the pool's listing."""
        self._watcher = threading.Thread(target=self._watch, args=(loader,), name="listing", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """End the threads. The one that watches ends with its current wait, a stuck read from the seed with its connection."""
        self._over.set()
        self._wanted.set()
        self._hashing.close(1.0)
        self._reading.close(0.1)

    def post(self, event: Event) -> None:
        self._inbox.put(event)

    def digest(self, contents: Sequence[memoryview], done: Callable[[float, bytes], None]) -> None:
        def job() -> None:
            found = memory_digest(contents)
            self._inbox.put(lambda now: done(now, found))

        self._hashing.submit(job)

    def scan(self, done: Callable[[float, Catalog | ShardpoolError], None]) -> None:
        def job() -> None:
            assert self._seed is not None
            found: Catalog | ShardpoolError
            try:
                party = self._party()
                found = shard_catalog(scan(self._seed), party.layout, party.world, party.rank)
            except ShardpoolError as error:
                found = error
            except OSError as error:
                found = SeedError(f"{self._seed.describe()}: {error}")
            self._inbox.put(lambda now: done(now, found))

        self._reading.submit(job)

    def read_seed(
        self,
        catalog: Catalog,
        piece: int,
        destination: Sequence[memoryview],
        done: Callable[[float, bytes | SeedError], None],
    ) -> Callable[[], None]:
        read = SeedRead(destination)

        def job() -> None:
            assert self._seed is not None
            if read.cancelled:
                return
            found: bytes | SeedError
            content = self._own_memory(catalog.piece_length(piece))
            try:
                read_piece(self._seed, catalog, piece, [content])
                found = memory_digest([content])
            except SeedError as error:
                found = error
            except OSError as error:
                found = SeedError(f"{self._seed.describe()}: {error}", transient=True)
            if isinstance(found, SeedError) or read.deliver(content):
                self._inbox.put(lambda now: done(now, found))

        self._reading.submit(job)
        return read.cancel

    def _own_memory(self, length: int) -> memoryview:
        """Memory of the calling thread, used again for each read."""
        memory: memoryview | None = getattr(self._local, "memory", None)
        if memory is None or memory.nbytes < length:
            memory = self._local.memory = memoryview(bytearray(length))
        return memory[:length]

    def resolve(self) -> None:
        self._wanted.set()

    def _watch(self, loader: Loader) -> None:
        known: Listing | None = None
        while not self._over.is_set():
            try:
                if known is None or self._wanted.is_set():
                    self._wanted.clear()
                    found: Listing | None = self._discovery.list()
                else:
                    found = self._discovery.watch(known, _WATCH_SECONDS)
            except (ShardpoolError, OSError) as error:
                found = Listing((), problem=str(error))
                self._over.wait(_WATCH_SECONDS)
            if found is not None:
                known = found
                self._inbox.put(loader.listed(found))


__all__ = ["Driver", "LoadSummary", "Observer"]
