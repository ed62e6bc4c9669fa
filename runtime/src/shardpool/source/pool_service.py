"""`shardpool.v1.PoolService`: who this replica is, what it holds, and the bytes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import grpc
from blake3 import blake3

from shardpool.errors import LeaseError, MismatchError
from shardpool.log import logger
from shardpool.source.announcer import LOOK_AGAIN_SECONDS, Announcer
from shardpool.source.answers import CallError, Handler, service_handler
from shardpool.source.callers import caller_endpoint
from shardpool.source.egress import EgressMeter, TokenBucket
from shardpool.source.leases import DrainingError, Lease, Leases
from shardpool.source.reads import Reads, Wanted
from shardpool.source.slots import Slots
from shardpool.swarm.first_copies import FirstCopies
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Load, Phase
from shardpool.transport.mover import NixlOffer
from shardpool.wire import pool
from shardpool.wire.chunk import CHUNK_SIZE, encode_chunk, encode_refusal
from shardpool.wire.conversions import (
    difference,
    read_party,
    write_info,
)
from shardpool.wire.descriptors import methods

SERVICE = "shardpool.v1.PoolService"
FIRST_REQUEST_SECONDS = 10.0
"""A reader that has opened its call and asks for nothing is let go after this."""
_LOG = logger(__name__)
_Code = grpc.StatusCode


class PieceContents(Protocol):
    """The verified pieces of a shard, as its store holds them."""

    def contents(self, piece: int) -> Sequence[memoryview]:
        """The bytes of a piece, in order."""


class PoolService:
    """Answers peers from the replica's state and its store.

    Args:
        state: who this replica is and what it holds.
        contents: where the bytes of pieces are; None is for replicas that never hold any.
        leases: who may read now.
        egress: the cap on what is sent.
        meter: counts what is sent.
        nixl: offers the shard's memory to a reader over NIXL; None without NIXL.
        watchers: bounds the calls that hold a thread for long.
        stopping: set when the server is about to stop.
    """

    def __init__(
        self,
        state: ReplicaState,
        *,
        contents: Callable[[], PieceContents | None],
        leases: Leases,
        egress: TokenBucket,
        meter: EgressMeter,
        nixl: Callable[[], NixlOffer | None],
        watchers: Slots,
        stopping: threading.Event,
    ) -> None:
        self._state = state
        self._contents = contents
        self._leases = leases
        self._egress = egress
        self._meter = meter
        self._nixl = nixl
        self._watchers = watchers
        self._stopping = stopping
        self._announcer = Announcer(state, stopping)
        self._first_copies = FirstCopies()
        # A read under an ended lease may hang on for a while in a dead connection; it must not keep new ones out.
        self._reads = Slots(4 * leases.capacity, "reads")
        self._readers = ThreadPoolExecutor(4 * leases.capacity, thread_name_prefix="read-requests")

    def handler(self) -> grpc.GenericRpcHandler:
        """What a gRPC server is given."""
        calls: dict[str, Handler] = {
            "GetState": self.get_state,
            "WatchState": self.watch_state,
            "GetOutline": self.get_outline,
            "AcquireLease": self.acquire_lease,
            "RenewLease": self.renew_lease,
            "ReleaseLease": self.release_lease,
            "ReadPieces": self.read_pieces,
        }
        return service_handler(SERVICE, methods(pool.DESCRIPTOR, "PoolService"), calls)

    def get_state(self, request: pool.StateRequest, _: grpc.ServicerContext) -> pool.StateResponse:
        """Who this is, whoever asks."""
        return write_info(self._state.info())

    def watch_state(self, request: pool.WatchRequest, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Announcements until either side ends. The first one has the whole set of claims; then silence while nothing changes."""
        watcher = self._agree(request.caller, request.instance)
        caller = caller_endpoint(request.caller.endpoint, context.peer())
        if caller is not None:
            self._state.meet(caller)
        with self._watchers.take(), self._announcer.watch() as bell, self._first_copies.while_there(watcher):
            ended = threading.Event()

            def end() -> None:
                ended.set()
                bell.ring()

            if not context.add_callback(end):
                return
            generation, told = request.generation, None
            known = self._state.holdings.generation if self._state.holdings is not None else 0
            if generation > known:
                raise CallError(_Code.INVALID_ARGUMENT, f"generation {generation} of {known}")
            while not (ended.is_set() or self._stopping.is_set()):
                found = self._announcer.since(generation, told.claims if told is not None else None)
                if found.news or found.facts != told:
                    generation, told = found.generation, found.facts
                    yield found.encoded
                if not found.more:
                    bell.wait(LOOK_AGAIN_SECONDS)

    def get_outline(self, request: pool.OutlineRequest, _: grpc.ServicerContext) -> Iterator[pool.OutlineChunk]:
        """The encoded outline in chunks."""
        self._agree(request.caller, request.instance)
        outline = self._state.outline
        if not outline:
            raise CallError(_Code.FAILED_PRECONDITION, "the outline is not known yet")
        with self._watchers.take():
            for start in range(0, len(outline), CHUNK_SIZE):
                yield pool.OutlineChunk(data=outline[start : start + CHUNK_SIZE])

    def acquire_lease(self, request: pool.LeaseRequest, _: grpc.ServicerContext) -> pool.LeaseResponse:
        """Admission to read."""
        caller = self._agree(request.caller, request.instance)
        if request.transport not in self._state.transports:
            offered = ", ".join(self._state.transports)
            raise CallError(_Code.INVALID_ARGUMENT, f"transport {request.transport[:32]!r} is not offered: {offered}")
        if self._state.holdings is None:
            raise CallError(_Code.FAILED_PRECONDITION, "the outline is not known yet, so no piece is held")
        if self._state.phase is Phase.DRAINING:
            raise DrainingError("the source is draining", hint="read from another peer")
        lease = self._leases.acquire(caller, request.transport)
        try:
            offer = self._nixl() if request.transport == "nixl" else None
        except Exception:
            self._leases.release(lease.id)
            raise
        self._state.wake()
        return pool.LeaseResponse(
            lease_id=lease.id,
            ttl_ms=int(self._leases.seconds * 1000),
            instance=request.instance,
            rate_limit=self._share(),
            nixl=_write_offer(offer) if offer else None,
        )

    def renew_lease(self, request: pool.RenewRequest, _: grpc.ServicerContext) -> pool.RenewResponse:
        """The reader is still there."""
        self._check_instance(request.instance)
        self._leases.renew(request.lease_id)
        return pool.RenewResponse(ttl_ms=int(self._leases.seconds * 1000), rate_limit=self._share())

    def release_lease(self, request: pool.ReleaseRequest, _: grpc.ServicerContext) -> pool.ReleaseResponse:
        """The reader is done."""
        self._check_instance(request.instance)
        self._leases.release(request.lease_id)
        self._egress.wake()
        self._state.wake()
        return pool.ReleaseResponse()

    def read_pieces(self, requests: Iterator[pool.ReadRequest], context: grpc.ServicerContext) -> Iterator[bytes]:
        """The stream transport's source."""
        with self._reads.take():
            reads = Reads(requests, self._readers)

            def end() -> None:
                reads.end()
                self._egress.wake()

            if not context.add_callback(end):
                return
            first = reads.next(FIRST_REQUEST_SECONDS)
            if first is None:
                raise CallError(_Code.DEADLINE_EXCEEDED, f"no piece was asked for in {FIRST_REQUEST_SECONDS:g} s")
            self._check_instance(first.instance)
            lease = self._leases.begin_read(first.lease_id)
            generation = lease.generation
            wanted: Wanted | None = first
            while wanted is not None:
                yield from self._send(wanted, reads, lease, generation)
                wanted = reads.next(None)
            if reads.overrun:
                raise CallError(_Code.RESOURCE_EXHAUSTED, "too many pieces were asked for ahead")

    def load(self) -> Load:
        """How busy this source is."""
        return Load(len(self._leases), self._leases.capacity, self._meter.rate())

    def close(self) -> None:
        """Join the threads that read requests and the one that announces; every call must have ended, and the server be stopping."""
        self._announcer.close()
        self._readers.shutdown(wait=True)

    def _send(self, wanted: Wanted, reads: Reads, lease: Lease, generation: int) -> Iterator[bytes]:
        """A piece, or why it does not come."""
        piece, reader = wanted.piece, lease.holder
        holdings, contents = self._state.holdings, self._contents()
        if holdings is None or contents is None or piece not in holdings:
            yield encode_refusal(piece, pool.REFUSAL_NOT_HELD)
            return
        lends = wanted.first and self._state.phase is Phase.READY
        if lends and not self._first_copies.lend(piece, reader):
            yield encode_refusal(piece, pool.REFUSAL_LENT, self._first_copies.lent)
            return
        left = True
        try:
            left = yield from self._send_bytes(wanted, contents.contents(piece), reads, lease, generation)
        finally:
            if lends and left:
                self._first_copies.broke_off(piece, reader)

    def _send_bytes(
        self, wanted: Wanted, runs: Sequence[memoryview], reads: Reads, lease: Lease, generation: int
    ) -> Generator[bytes, None, bool]:
        """The bytes of a piece; whether some were left unsent."""
        piece, offset = wanted.piece, wanted.offset
        holdings = self._state.holdings
        size = sum(run.nbytes for run in runs)
        if offset >= size:
            raise CallError(_Code.INVALID_ARGUMENT, f"offset {offset} in piece {piece} of {size} bytes")
        while offset < size:
            step = min(self._egress.send_size(), size - offset)
            # The wait ends with the call or the lease, whichever is first.
            granted = self._egress.take(step, self._leases.seconds, lambda: reads.ended or self._stopping.is_set())
            if reads.ended or self._stopping.is_set():
                return True
            if not granted or not self._leases.covers(lease, generation):
                raise LeaseError("the lease of this read ended", hint="acquire another one")
            if wanted.cancelled:
                yield encode_refusal(piece, pool.REFUSAL_CANCELLED)
                return True
            if holdings is None or piece not in holdings:
                yield encode_refusal(piece, pool.REFUSAL_NOT_HELD)
                return True
            message = encode_chunk(piece, offset, _slice(runs, offset, step))
            self._meter.add(step)
            offset += step
            yield message
        return False

    def _agree(self, caller: pool.Party, instance: str) -> str:
        """Check that the caller is of this pool and means this process; its instance."""
        self._check_instance(instance)
        party = read_party(caller)
        refusal = difference(self._state.party(), party)
        if refusal is not None:
            raise refusal
        return party.instance

    def _check_instance(self, instance: str) -> None:
        ours = self._state.party().instance
        if instance != ours:
            text = f"instance: this is {ours}, the call is for {instance[:32]!r}"
            raise MismatchError(text, reason="instance", hint="the source was restarted; agree with it again")

    def _share(self) -> int:
        """What one reader may take of a capped egress, in bytes per second; 0 is no limit."""
        return int(self._egress.rate / max(len(self._leases), 1))


def _slice(runs: Sequence[memoryview], offset: int, size: int) -> list[memoryview]:
    """`size` bytes from `offset` of the runs laid end to end."""
    taken = []
    for run in runs:
        if offset < run.nbytes:
            part = run[offset : offset + size]
            taken.append(part)
            size -= part.nbytes
            if not size:
                break
        offset = max(offset - run.nbytes, 0)
    return taken


def _write_offer(offer: NixlOffer) -> pool.NixlOffer:
    return pool.NixlOffer(
        agent_name=offer.agent_name,
        metadata=offer.metadata,
        metadata_digest=blake3(offer.metadata).digest(),
        regions=[
            pool.NixlRegion(start=region.start, length=region.length, address=region.address, device=region.device)
            for region in offer.regions
        ],
    )
