"""Carries out what the scheduler decides, without a thread or a clock of its own.

The loader owns links and scratch memory, writes to the store, and announces through the replica's state. It is told the time, and what
blocks is left to its `Background`. `driver` gives it threads and the monotonic clock; the simulation gives it virtual time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from blake3 import blake3

from shardpool.discovery.base import Endpoint, Listing
from shardpool.errors import (
    CatalogError,
    SeedError,
    ShardpoolError,
    TransportError,
)
from shardpool.log import logger
from shardpool.model.base import PieceStore
from shardpool.model.catalog import Catalog
from shardpool.swarm import actions as act
from shardpool.swarm.actions import Action
from shardpool.swarm.bits import members
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.scheduler import Scheduler
from shardpool.swarm.state import PeerInfo, PeerUpdate
from shardpool.swarm.summary import LoadSummary
from shardpool.transport.base import Link, Transport

LOG = logger(__name__)
Event = Callable[[float], None]


class Background(Protocol):
    """What a loader leaves to others. Every `done` is posted as an event, never called at once."""

    def post(self, event: Event) -> None:
        """Have `event(now)` called by whoever runs the loader. From any thread."""

    def digest(self, contents: Sequence[memoryview], done: Callable[[float, bytes], None]) -> None:
        """Compute the BLAKE3 of some memory."""

    def scan(self, done: Callable[[float, Catalog | ShardpoolError], None]) -> None:
        """Make the catalog from the seed."""

    def read_seed(
        self,
        catalog: Catalog,
        piece: int,
        destination: Sequence[memoryview],
        done: Callable[[float, bytes | SeedError], None],
    ) -> Callable[[], None]:
        """Fill `destination` with a piece from the seed, and tell the digest of its bytes.

        What is returned gives the read up: once it returns, nothing is written to `destination` any more.
        """

    def resolve(self) -> None:
        """List the pool; answered through `Loader.listed`."""


class Observer:
    """Who is told how a load goes; override what is of interest. Called by the loader's thread: return quickly."""

    def outlined(self, catalog: Catalog, resumed: int) -> None:
        """The outline is known; `resumed` bytes were found in the store."""

    def held(self, piece: int, length: int, origin: str) -> None:
        """A piece of `length` bytes is verified and in place; `origin` is `peer` or `seed`."""


def memory_digest(contents: Sequence[memoryview]) -> bytes:
    """BLAKE3 of some memory, without holding the interpreter lock for long runs."""
    hasher = blake3()
    for view in contents:
        hasher.update(view)
    return hasher.digest()


class Loader:
    """One load of one rank. All methods but the link listeners' are called by one thread.

    Args:
        transport: opens links.
        make_store: makes the store once the outline is known.
        state: where pieces, claims and the outline are announced.
        options: bounds and habits.
        reads_seed: `Background.scan` and `read_seed` can be used.
        observer: who is told.
        background: what blocks.
        rng: the only source of chance.
        now, deadline: when the load begins, and when it must be over.
        catalog: the outline where it is known beforehand, as after a restart.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        make_store: Callable[[Catalog], PieceStore],
        state: ReplicaState,
        options: SwarmOptions,
        reads_seed: bool,
        observer: Observer,
        background: Background,
        rng: random.Random,
        now: float,
        deadline: float,
        catalog: Catalog | None = None,
    ) -> None:
        self.scheduler = Scheduler(state.party(), options, reads_seed=reads_seed, now=now, deadline=deadline, rng=rng)
        self.finished = False
        self.error: ShardpoolError | None = None
        self._transport = transport
        self._make_store = make_store
        self._state = state
        self._observer = observer
        self._background = background
        self._started = self._ended = now
        self._store: PieceStore | None = None
        self._catalog: Catalog | None = None
        self._links: dict[int, Link] = {}
        self._scratch: dict[tuple[int, int], memoryview] = {}  # (source, piece)
        self._reads: dict[int, tuple[object, Callable[[], None]]] = {}  # by piece: the read, and how to give it up
        self._told_unlisted = False
        self._progress: dict[tuple[int, int], int] = {}
        self._do: dict[type, Callable[[float, Action], None]] = {
            act.Resolve: lambda now, action: self._background.resolve(),
            act.Connect: self._connect,
            act.Close: self._close,
            act.Scan: self._scan,
            act.RequestOutline: self._request_outline,
            act.Request: self._request,
            act.Abandon: self._abandon,
            act.ReadSeed: self._read_seed,
            act.Keep: self._keep,
            act.Discard: self._discard,
            act.Withdraw: self._withdraw,
            act.Claim: self._claim,
            act.Finish: self._finish,
        }
        if catalog is not None:
            self._adopt(catalog, now)

    # What its runner calls

    def listed(self, listing: Listing) -> Event:
        """The event that the pool was listed."""
        return lambda now: self.scheduler.listed(now, listing.endpoints, listing.problem, listing.final)

    def met(self, endpoint: Endpoint) -> Event:
        """The event that a peer called which can be dialled here."""
        return lambda now: self.scheduler.met(now, endpoint)

    def act(self, now: float) -> float:
        """Carry out what is due; returns when to be called again at the latest."""
        scheduler = self.scheduler
        if self._progress:
            # Counted where it happens, told here: one event for each chunk would cost more than the chunk.
            counted, self._progress = self._progress, {}
            for (number, piece), received in counted.items():
                scheduler.progress(now, number, piece, received)
        while True:
            due = scheduler.actions(now)
            try:
                for action in due:
                    self._do[type(action)](now, action)
            except ShardpoolError as error:
                if self.finished:
                    break
                scheduler.fail(error)
                continue
            if not scheduler.finished or self.finished:
                break
        if scheduler.unlisted and not self._told_unlisted:
            self._told_unlisted = True
            LOG.warning(
                "no list of the pool has this replica (%s) yet; it goes on with the peers that it knows, and may read from the seed what "
                "others read too: check that the Service is headless, publishes addresses that are not ready, and selects this pod",
                self._state.party().endpoint,
            )
        return scheduler.wake_at

    def stop(self, error: ShardpoolError) -> None:
        """End the load with an error."""
        self.scheduler.fail(error)

    @property
    def settled(self) -> bool:
        """No link and no read from the seed can write to any memory of this load."""
        return not self._links and not self._reads

    def summary(self) -> LoadSummary:
        """What was done so far."""
        tally = self.scheduler.tally
        return LoadSummary(
            transport=self._transport.name,
            bytes_from=dict(tally.bytes_from),
            seconds=self._ended - self._started,
            pieces=self._catalog.pieces if self._catalog else 0,
            refetched=tally.refetched,
            peers_used=tuple(sorted(tally.peers_used)),
            rejected=dict(tally.rejected),
            rejections=dict(tally.rejections),
            fallbacks=dict(tally.fallbacks),
        )

    # Events from links, on the loader's thread

    def _landed(self, number: int, piece: int, digest: bytes | None, now: float) -> None:
        if digest is None:
            contents = self._memory(number, piece)
            if contents is None:
                return
            self._background.digest(contents, lambda then, found: self.scheduler.landed(then, number, piece, found))
        else:
            self.scheduler.landed(now, number, piece, digest)

    def _closed(self, number: int, error: ShardpoolError | None, now: float) -> None:
        self._links.pop(number, None)
        self.scheduler.closed(now, number, error)

    def _outline(self, number: int, encoded: bytes, info: PeerInfo, now: float) -> None:
        if self._catalog is not None or self.finished:
            return
        party = self._state.party()
        try:
            catalog = Catalog.decode(encoded)
        except CatalogError as error:
            self.scheduler.outline_refused(now, number, error)
            return
        ours, theirs = (party.layout, party.world, party.rank), (catalog.layout, catalog.world, catalog.rank)
        if ours != theirs:
            why = f"its outline is of {theirs}, not of {ours} (layout, world, rank)"
            self.scheduler.outline_refused(now, number, CatalogError(why))
        elif info.party.catalog_digest and catalog.digest != info.party.catalog_digest:
            self.scheduler.outline_refused(now, number, CatalogError("its outline is not the one that it announced"))
        else:
            self._adopt(catalog, now)

    def _scan(self, now: float, action: Action) -> None:
        self._background.scan(self._scanned)

    def _scanned(self, now: float, found: Catalog | ShardpoolError) -> None:
        if self.finished:
            return
        if isinstance(found, Catalog):
            if self._catalog is None:
                self._adopt(found, now)
        elif isinstance(found, SeedError):
            LOG.warning("the seed cannot be read, peers are the only source: %s", found)
            self.scheduler.seed_lost(now, found)
        else:
            self.scheduler.fail(found)

    def _adopt(self, catalog: Catalog, now: float) -> None:
        self._catalog = catalog
        try:
            store = self._make_store(catalog)
            held = store.open()
        except ShardpoolError as error:
            self.scheduler.fail(error)
            return
        self._store = store
        self._state.set_outline(catalog)
        for piece, digest in held.items():
            self._state.hold(piece, digest)
        resumed = sum(map(catalog.piece_length, held))
        self._observer.outlined(catalog, resumed)
        self.scheduler.planned(
            now, pieces=catalog.pieces, length=catalog.piece_length, digest=catalog.digest, held=held, resumed=resumed
        )

    # Actions

    def _connect(self, now: float, action: Action) -> None:
        assert isinstance(action, act.Connect)
        try:
            listener = _LinkListener(self, action.link)
            self._links[action.link] = self._transport.connect(action.endpoint, self._state.party(), listener)
        except TransportError as error:
            self._background.post(partial(self._closed, action.link, error))

    def _close(self, now: float, action: Action) -> None:
        assert isinstance(action, act.Close)
        link = self._links.get(action.link)
        if link is not None:
            link.close()

    def _request_outline(self, now: float, action: Action) -> None:
        assert isinstance(action, act.RequestOutline)
        link = self._links.get(action.link)
        if link is not None:
            link.request_outline()

    def _request(self, now: float, action: Action) -> None:
        assert isinstance(action, act.Request)
        link = self._links.get(action.link)
        if link is None:
            # It closed before the scheduler heard of it: `closed` is on its way and settles this.
            return
        link.request(action.piece, self._claim_memory(action.link, action.piece, action.scratch), first=action.first)

    def _abandon(self, now: float, action: Action) -> None:
        assert isinstance(action, act.Abandon)
        if action.link == act.SEED:
            self._cancel(action.piece)
            return
        link = self._links.get(action.link)
        if link is not None:
            link.abandon(action.piece)

    def _cancel(self, piece: int) -> None:
        read = self._reads.pop(piece, None)
        if read is not None:
            read[1]()

    def _read_seed(self, now: float, action: Action) -> None:
        assert isinstance(action, act.ReadSeed)
        assert self._catalog is not None
        piece = action.piece
        destination = self._claim_memory(act.SEED, piece, action.scratch)
        ticket = object()  # tells this read from an earlier one of the same piece that was given up

        def done(then: float, found: bytes | SeedError) -> None:
            known, _ = self._reads.get(piece, (None, None))
            if known is not ticket:
                return
            del self._reads[piece]
            if isinstance(found, bytes):
                self.scheduler.seed_landed(then, piece, found)
            else:
                self.scheduler.seed_failed(then, piece, found, transient=found.transient)

        self._reads[piece] = (ticket, self._background.read_seed(self._catalog, piece, destination, done))

    def _keep(self, now: float, action: Action) -> None:
        assert isinstance(action, act.Keep)
        assert self._store is not None
        assert self._catalog is not None
        piece = action.piece
        if action.scratch:
            source, used = self._scratch.pop((action.source, piece)), 0
            for view in self._store.destination(piece):
                view[:] = source[used : used + view.nbytes]
                used += view.nbytes
        self._store.record(piece, action.digest)
        self._state.hold(piece, action.digest)
        self._observer.held(piece, self._catalog.piece_length(piece), "seed" if action.source == act.SEED else "peer")

    def _discard(self, now: float, action: Action) -> None:
        assert isinstance(action, act.Discard)
        self._scratch.pop((action.source, action.piece), None)

    def _withdraw(self, now: float, action: Action) -> None:
        assert isinstance(action, act.Withdraw)
        assert self._store is not None
        self._state.withdraw(action.piece)
        self._store.forget(action.piece)

    def _claim(self, now: float, action: Action) -> None:
        assert isinstance(action, act.Claim)
        self._state.set_claims(frozenset(members(action.pieces)))

    def _finish(self, now: float, action: Action) -> None:
        assert isinstance(action, act.Finish)
        self.finished, self.error, self._ended = True, action.error, now
        self._state.set_claims(frozenset())
        for piece in list(self._reads):
            self._cancel(piece)
        for link in list(self._links.values()):
            link.close()

    # Memory

    def _claim_memory(self, source: int, piece: int, scratch: bool) -> Sequence[memoryview]:
        """Memory for a transfer. The scheduler sees to it that a piece's place has one owner at a time."""
        assert self._store is not None
        assert self._catalog is not None
        if not scratch:
            return self._store.destination(piece)
        memory = self._scratch[source, piece] = memoryview(bytearray(self._catalog.piece_length(piece)))
        return [memory]

    def _memory(self, source: int, piece: int) -> Sequence[memoryview] | None:
        memory = self._scratch.get((source, piece))
        if memory is not None:
            return [memory]
        return self._store.destination(piece) if self._store is not None else None

    def count_progress(self, number: int, piece: int, received: int) -> None:
        """Bytes arrived; from any thread. A count lost to a race only delays what the next one tells."""
        progress = self._progress
        progress[number, piece] = progress.get((number, piece), 0) + received


class _LinkListener:
    """Puts what one link tells into the loader's queue. Calls come from any thread."""

    def __init__(self, loader: Loader, number: int) -> None:
        self._loader, self._number = loader, number
        self._post = loader._background.post
        self._info: PeerInfo | None = None

    def opened(self, link: Link, info: PeerInfo) -> None:
        self._info = info
        self._post(lambda now: self._loader.scheduler.opened(now, self._number, info))

    def updated(self, link: Link, update: PeerUpdate) -> None:
        self._post(lambda now: self._loader.scheduler.updated(now, self._number, update))

    def outline(self, link: Link, encoded: bytes) -> None:
        if self._info is not None:
            self._post(partial(self._loader._outline, self._number, encoded, self._info))

    def progress(self, link: Link, piece: int, received: int) -> None:
        self._loader.count_progress(self._number, piece, received)

    def landed(self, link: Link, piece: int, digest: bytes | None) -> None:
        self._post(partial(self._loader._landed, self._number, piece, digest))

    def failed(self, link: Link, piece: int, error: TransportError) -> None:
        self._post(lambda now: self._loader.scheduler.failed(now, self._number, piece, error))

    def closed(self, link: Link, error: ShardpoolError | None) -> None:
        self._post(partial(self._loader._closed, self._number, error))


__all__ = ["Background", "Event", "Loader", "Observer", "memory_digest"]
