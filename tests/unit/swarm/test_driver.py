"""The driver in real time: threads, a transport that answers from other threads, real checkpoints as seeds."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from blake3 import blake3
from make_checkpoint import make_checkpoint
from scheduler_desk import endpoint
from simulated_pool import MemoryStore, Truth, make_catalog

from shardpool.discovery.base import Endpoint, Listing
from shardpool.errors import (
    AbandonedError,
    CheckpointError,
    DeadlineExceededError,
    NoSourceError,
    SeedError,
    StoreError,
)
from shardpool.model.catalog import Catalog
from shardpool.seed.base import SeedFile
from shardpool.seed.directory import DirectorySeed
from shardpool.swarm.driver import Driver, Observer
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Party, PeerInfo, PeerUpdate, Phase
from shardpool.transport.base import Link, Listener

SOON = 30.0  # seconds; a test that needs them has failed
PARTY = Party("0" * 32, "f" * 16, "{}", 0, 1, "whole", "10.0.0.0:1")


class Peer:
    """What a peer serves. `harm(piece, content)` may change the bytes; `tells` whether the transport computes digests."""

    def __init__(self, truth: Truth, *, harm: Callable[[int, bytes], bytes] | None = None, tells: bool = True) -> None:
        self.truth, self.tells = truth, tells
        self.harm = harm or (lambda piece, content: content)
        self.outline = truth.catalog.encode()
        self.silent = False


class ThreadedLink:
    def __init__(self, target: Endpoint, peer: Peer, listener: Listener) -> None:
        self.endpoint = target
        self._peer, self._listener = peer, listener
        self._lock = threading.Lock()
        self._open: dict[int, None] = {}
        self._over = False

    def spawn(self, call: Callable[[], None]) -> None:
        threading.Thread(target=call, daemon=True).start()

    def begin(self) -> None:
        catalog = self._peer.truth.catalog
        number = int(self.endpoint.host.rpartition(".")[2])
        party = Party(f"{number:032x}", "f" * 16, "{}", 0, 1, "whole", self.endpoint.target, catalog.digest)
        size = len(self._peer.outline)
        info = PeerInfo(
            party, Phase.READY, catalog.pieces, catalog.piece_size, catalog.size, size, ("t",), catalog.pieces
        )
        self._listener.opened(self, info)
        added = tuple(enumerate(self._peer.truth.digests))
        self._listener.updated(self, PeerUpdate(catalog.pieces, Phase.READY, added))

    def request_outline(self) -> None:
        self.spawn(lambda: self._listener.outline(self, self._peer.outline))

    def request(self, piece: int, destination: Sequence[memoryview], *, first: bool = False) -> None:
        with self._lock:
            self._open[piece] = None
        if not self._peer.silent:
            self.spawn(lambda: self._serve(piece, destination))

    def _serve(self, piece: int, destination: Sequence[memoryview]) -> None:
        with self._lock:
            if piece not in self._open:
                return
            content = self._peer.harm(piece, self._peer.truth.piece(piece))
            used = 0
            for view in destination:
                view[:] = content[used : used + view.nbytes]
                used += view.nbytes
            del self._open[piece]
        self._listener.progress(self, piece, len(content))
        self._listener.landed(self, piece, blake3(content).digest() if self._peer.tells else None)

    def abandon(self, piece: int) -> None:
        with self._lock:
            if piece not in self._open:
                return
            del self._open[piece]
        self._listener.failed(self, piece, AbandonedError("given up"))

    def close(self) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
        for piece in list(self._open):
            self.abandon(piece)
        self._listener.closed(self, None)


class ThreadedTransport:
    name = "threads"

    def __init__(self, peers: dict[Endpoint, Peer]) -> None:
        self.peers = peers

    def connect(self, target: Endpoint, caller: Party, listener: Listener) -> Link:
        link = ThreadedLink(target, self.peers[target], listener)
        link.spawn(link.begin)
        return link

    def close(self) -> None:
        pass


class Listed:
    def __init__(self, *endpoints: Endpoint) -> None:
        self.listing = Listing(tuple(sorted(endpoints)))

    def list(self) -> Listing:
        return self.listing

    def watch(self, known: Listing, timeout: float) -> Listing | None:
        threading.Event().wait(timeout)
        return None


class Load:
    """A driver with what it needs."""

    def __init__(self, *peers: Peer, seed: object = None, **options: object) -> None:
        known = {endpoint(number): peer for number, peer in enumerate(peers, start=1)}
        self.state = ReplicaState(PARTY, transports=("t",), reads_seed=seed is not None)
        self.store: MemoryStore | None = None
        self.store_error: StoreError | None = None
        self.seen: list[tuple[int, str]] = []
        facts = {
            "first_look_seconds": 0.2,
            "settle_seconds": 0.2,
            "wait_for_peers_seconds": 1.0,
            "stall_seconds": 1.0,
            **options,
        }
        self.driver = Driver(
            transport=ThreadedTransport(known),  # type: ignore[arg-type]
            discovery=Listed(*known),  # type: ignore[arg-type]
            seed=seed,  # type: ignore[arg-type]
            make_store=self.make_store,
            state=self.state,
            options=SwarmOptions(**facts),  # type: ignore[arg-type]
            observer=self,  # type: ignore[arg-type]
            rng=random.Random(1),
        )

    def make_store(self, catalog: Catalog) -> MemoryStore:
        self.store = MemoryStore(catalog, with_bytes=True)
        self.store.error, self.store.fail_after = self.store_error, 3
        return self.store

    def outlined(self, catalog: Catalog, resumed: int) -> None:
        assert resumed == 0

    def held(self, piece: int, length: int, origin: str) -> None:
        self.seen.append((piece, origin))

    def run(self, seconds: float = SOON) -> str:
        return self.driver.run(time.monotonic() + seconds).line()


@pytest.fixture
def truth() -> Truth:
    return Truth.with_bytes(make_catalog(50, 1000, last=17), random.Random(2))


@pytest.mark.parametrize("tells", [True, False], ids=["the transport tells digests", "the driver computes them"])
def test_a_load_from_peers_without_a_seed(truth: Truth, tells: bool) -> None:
    load = Load(Peer(truth, tells=tells), Peer(truth, tells=tells))
    line = load.run()
    assert load.store is not None
    assert bytes(load.store.memory) == truth.content
    assert load.state.catalog == truth.catalog
    assert sorted(load.seen) == [(piece, "peer") for piece in range(50)]
    assert "from peers" in line
    assert "2 peers over threads" in line
    assert load.state.claims == frozenset()


def test_a_load_from_the_seed_alone(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "model", size=3 << 20, files=2)
    load = Load(seed=DirectorySeed(str(model)))
    summary = load.driver.run(time.monotonic() + SOON)
    catalog = load.state.catalog
    assert catalog is not None
    assert load.store is not None
    for extent in catalog.extents:
        content = (model / catalog.files[extent.file].path).read_bytes()[extent.offset : extent.offset + extent.length]
        assert load.store.memory[extent.start : extent.start + extent.length] == content
    assert summary.bytes_from["seed"] == catalog.size
    assert load.state.holdings is not None
    assert load.state.holdings.complete


def test_a_replica_that_no_list_has_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(seed=DirectorySeed(str(make_checkpoint(tmp_path / "model", size=1 << 20))))
    with caplog.at_level(logging.WARNING, "shardpool"):
        load.run()
    told = [
        record.getMessage()
        for record in caplog.records
        if "no list of the pool has this replica" in record.getMessage()
    ]
    assert len(told) == 1
    assert PARTY.endpoint in told[0]


def test_a_sender_of_wrong_bytes_is_dropped_and_its_pieces_come_from_elsewhere(truth: Truth) -> None:
    load = Load(Peer(truth, harm=lambda piece, content: bytes([content[0] ^ 1]) + content[1:]), Peer(truth))
    line = load.run()
    assert load.store is not None
    assert bytes(load.store.memory) == truth.content
    assert "dropped after 2 strikes" in line


def test_a_hostile_outline_is_refused_before_a_store_is_made(truth: Truth) -> None:
    peer = Peer(truth)
    peer.outline = b"\xff" * 100
    load = Load(peer)
    with pytest.raises(NoSourceError):
        load.run()
    assert load.store is None


def test_a_store_that_fails_ends_the_load_with_its_error(truth: Truth) -> None:
    load = Load(Peer(truth))
    load.store_error = StoreError("/models: no space left", hint="free 50 kB")
    with pytest.raises(StoreError, match="no space left"):
        load.run()


def test_stop_ends_the_load(truth: Truth) -> None:
    peer = Peer(truth)
    peer.silent = True
    load = Load(peer, stall_seconds=1000.0)
    threading.Timer(0.3, load.driver.stop).start()
    with pytest.raises(AbandonedError):
        load.run()


def test_stop_before_the_load_begins_ends_it_as_well(truth: Truth) -> None:
    load = Load(Peer(truth))
    load.driver.stop()
    with pytest.raises(AbandonedError):
        load.run()


def test_a_silent_source_does_not_keep_the_load_beyond_its_deadline(truth: Truth) -> None:
    peer = Peer(truth)
    peer.silent = True
    load = Load(peer, stall_seconds=1000.0)
    with pytest.raises(DeadlineExceededError):
        load.run(0.5)


class HungSeed:
    """A seed whose reads hang once `hangs` is set, until `end` is."""

    def __init__(self, model: Path) -> None:
        self._files = DirectorySeed(str(model))
        self.end = threading.Event()
        self.hangs = False

    def describe(self) -> str:
        return "a seed that hangs"

    def files(self) -> Sequence[SeedFile]:
        return self._files.files()

    def read_into(self, path: str, offset: int, buffer: memoryview) -> None:
        if self.hangs:
            self.end.wait(SOON)
        self._files.read_into(path, offset, buffer)

    def close(self) -> None:
        self.end.set()


def test_a_seed_that_hangs_holds_up_neither_the_end_nor_the_memory(tmp_path: Path) -> None:
    seed = HungSeed(make_checkpoint(tmp_path / "model", size=3 << 20))
    load = Load(seed=seed)
    make_store = load.make_store

    def hang_from_now_on(catalog: Catalog) -> MemoryStore:
        seed.hangs = True
        return make_store(catalog)

    load.driver._make_store = hang_from_now_on
    with pytest.raises(DeadlineExceededError):
        load.run(1.0)
    assert load.store is not None
    load.store.memory[:] = b"\x01" * len(load.store.memory)
    seed.end.set()
    for thread in threading.enumerate():
        if thread.name.startswith("seed-"):
            thread.join(SOON)
    assert load.store.memory.count(1) == len(load.store.memory), "a read that was given up wrote to its destination"


def test_a_broken_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 7)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        Load(seed=DirectorySeed(str(tmp_path))).run()


def test_a_seed_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises((NoSourceError, SeedError), match="nowhere"):
        Load(seed=DirectorySeed(str(tmp_path / "nowhere"))).run()


def test_the_observer_does_nothing_unless_told_to() -> None:
    quiet = Observer()
    quiet.outlined(make_catalog(1, 1), 0)
    quiet.held(0, 1, "peer")
