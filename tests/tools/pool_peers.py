"""A real source on loopback, real links to it, and a listener that remembers what it is told."""

from __future__ import annotations

import dataclasses
import queue
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from shardpool.discovery.base import Endpoint
from shardpool.errors import ShardpoolError, TransportError
from shardpool.model.catalog import Catalog, Extent, FileEntry
from shardpool.settings import Settings
from shardpool.source.server import PoolServer
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Party, PeerInfo, PeerUpdate, Phase
from shardpool.transport.base import Link
from shardpool.transport.grpc_link import GrpcLink, GrpcTransport

PATIENCE = 20.0
"""Seconds until a test gives an expected event up; nothing waits that long unless it fails."""
SOURCE_ID = "0123456789abcdef"
IDENTITY = '{"model_name":"org/model","revision":"' + "a" * 40 + '"}'


def make_party(**changes: Any) -> Party:
    """A process of the test pool, by default with an instance of its own."""
    party = Party(
        instance=random.randbytes(16).hex(),
        mx_source_id=SOURCE_ID,
        identity_json=IDENTITY,
        rank=0,
        world=1,
        layout="whole",
        endpoint="receiver",
    )
    return dataclasses.replace(party, **changes)


@dataclass
class Shard:
    """Bytes in two files, cut into pieces, with the store's `contents`."""

    data: bytes
    piece_size: int
    cut: int
    catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        sizes = (self.cut, len(self.data) - self.cut)
        self.catalog = Catalog(
            "whole",
            1,
            0,
            (FileEntry("a.bin", sizes[0]), FileEntry("b.bin", sizes[1])),
            (Extent(0, 0, 0, sizes[0]), Extent(sizes[0], 1, 0, sizes[1])),
            (),
            self.piece_size,
        )

    def piece(self, number: int) -> bytes:
        """The bytes of a piece."""
        start = self.catalog.piece_start(number)
        return self.data[start : start + self.catalog.piece_length(number)]

    def digest(self, number: int) -> bytes:
        """BLAKE3 of a piece."""
        return blake3(self.piece(number)).digest()

    def contents(self, piece: int) -> Sequence[memoryview]:
        """As `ShardStore.contents`: one view a file."""
        start = self.catalog.piece_start(piece)
        end = start + self.catalog.piece_length(piece)
        runs = [(start, min(end, self.cut)), (max(start, self.cut), end)]
        return [memoryview(self.data)[low:high] for low, high in runs if low < high]

    def destination(self, piece: int) -> tuple[bytearray, list[memoryview]]:
        """Room for a piece, split where the files are."""
        room = bytearray(self.catalog.piece_length(piece))
        views, position = [], 0
        for run in self.contents(piece):
            views.append(memoryview(room)[position : position + run.nbytes])
            position += run.nbytes
        return room, views


def make_shard(pieces: int = 8, piece_size: int = 1 << 18, short: int = 1000) -> Shard:
    """Random bytes; the last piece is `short` bytes shorter, and a file ends inside the second piece."""
    data = random.Random(7).randbytes(pieces * piece_size - short)
    return Shard(data, piece_size, min(piece_size + piece_size // 3, len(data) - 1))


class Source:
    """A PoolServer on a free port of loopback."""

    def __init__(
        self, shard: Shard | None, *, held: Sequence[int] | None = None, party: Party | None = None, **options: Any
    ) -> None:
        bind = options.pop("bind_host", "127.0.0.1")
        port = options.pop("port", 0)
        nixl = options.pop("nixl", None)
        self.settings = Settings(bind_host=bind, **options)
        transports = ("nixl", "stream") if nixl else ("stream",)
        self.state = ReplicaState(party or make_party(endpoint="source"), transports=transports)
        self.shard = shard
        self.server = PoolServer(self.settings, self.state, shard, port=port, nixl=nixl)
        if shard is not None:
            self.state.set_outline(shard.catalog)
            for piece in range(shard.catalog.pieces) if held is None else held:
                self.state.hold(piece, shard.digest(piece))
            if held is None:
                self.state.set_phase(Phase.READY)
        self.server.start()
        self.endpoint = Endpoint("::1" if bind == "::1" else "127.0.0.1", self.server.port)


class Recorder:
    """A Listener that remembers, in order."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.seen: list[tuple[Any, ...]] = []
        self.received = 0
        self.first_byte = threading.Event()

    def opened(self, link: Link, info: PeerInfo) -> None:
        self._events.put(("opened", info))

    def updated(self, link: Link, update: PeerUpdate) -> None:
        self._events.put(("updated", update))

    def outline(self, link: Link, encoded: bytes) -> None:
        self._events.put(("outline", encoded))

    def progress(self, link: Link, piece: int, received: int) -> None:
        if not self.received:
            self.first_byte.set()
        self.received += received

    def landed(self, link: Link, piece: int, digest: bytes | None) -> None:
        self._events.put(("landed", piece, digest))

    def failed(self, link: Link, piece: int, error: TransportError) -> None:
        self._events.put(("failed", piece, error))

    def closed(self, link: Link, error: ShardpoolError | None) -> None:
        self._events.put(("closed", error))

    def next(self, *kinds: str, patience: float = PATIENCE) -> tuple[Any, ...]:
        """The next event of one of these kinds; others are passed over (and kept in `seen`)."""
        deadline = time.monotonic() + patience
        while True:
            try:
                event = self._events.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise AssertionError(f"none of {kinds} came; what came: {self.seen}") from None
            self.seen.append(event)
            if not kinds or event[0] in kinds:
                return event

    def rest(self) -> list[tuple[Any, ...]]:
        """What was told and not looked at yet."""
        events = []
        while not self._events.empty():
            events.append(self._events.get())
        return events


@dataclass
class Conversation:
    """A link, its listener, and the transport behind it."""

    link: GrpcLink
    told: Recorder
    transport: GrpcTransport
