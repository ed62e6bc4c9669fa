"""The receiving end of the NIXL transport: pieces by RDMA READ from a source's registered memory.

Releasing a running read does not stop its bytes from landing; only the end of the agent does. So each lease is read through an agent of
its own, and dropping that agent is the barrier behind which an abandoned piece may be told as settled (DESIGN.md, promise 4). The price is
that the other pieces of the lease go with it: the link asks for a fresh lease, which also makes sure that no old metadata is used
with a source that was restarted meanwhile.
"""

from __future__ import annotations

import ctypes
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardpool.errors import AbandonedError, LeaseError, PeerUnreachableError, TransportError
from shardpool.log import logger
from shardpool.settings import Settings
from shardpool.swarm.state import PeerInfo
from shardpool.transport.mover import Grant, NixlOffer, PieceSink
from shardpool.transport.nixl_agent import Agent, Run, fits_memory, prepare_environment, unique_name
from shardpool.transport.pacing import Pace
from shardpool.transport.slices import cut, joined

if TYPE_CHECKING:
    import grpc

LOG = logger(__name__)
POLL_SECONDS = 0.0002
SLOWEST_POLL_SECONDS = 0.001
IDLE_POLLS = 8
ABANDON_SECONDS = 0.25
"""How long reads of an abandoned piece may still complete by themselves, before the whole agent is dropped for them."""
JOIN_SECONDS = 30.0


class NixlMover:
    """Reads pieces over NIXL. One serves every link of a process.

    Args:
        settings: `connect_seconds` bounds `open`; `worker_host` names the interface for TCP.
    """

    name = "nixl"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._late: list[threading.Thread] = []

    def open(self, channel: grpc.Channel, info: PeerInfo, grant: Grant, sink: PieceSink) -> NixlReader:
        """Connect an agent of this lease's own to the source's, and make sure that the source is still the one that gave the lease.

        Raises:
            TransportError: the offer is missing or makes no sense, or NIXL cannot be used.
            PeerUnreachableError: no connection within the connect deadline.
            LeaseError: the lease is no longer that of the process which is connected.
        """
        offer = _checked(grant.nixl, info.shard_size)
        deadline = time.monotonic() + self._settings.connect_seconds
        prepare_environment(self._settings.worker_host)
        agent, remote = self._connect(offer)
        try:
            _confirm(channel, grant, deadline)
            return NixlReader(agent, remote, offer, piece_size=info.piece_size, rate_limit=grant.rate_limit, sink=sink)
        except BaseException:
            agent.close()
            raise

    def close(self) -> None:
        """Wait, bounded, for connection attempts that outlived their deadline: their agents are closed as they end."""
        for thread in self._late:
            thread.join(JOIN_SECONDS)
        self._late.clear()

    def _connect(self, offer: NixlOffer) -> tuple[Agent, str]:
        """Make an agent and add the source to it, on a thread of its own: where the host is gone, that blocks for seconds."""
        attempt = _Attempt(offer)
        thread = threading.Thread(target=attempt.run, name="nixl-connect", daemon=True)
        thread.start()
        try:
            return attempt.result(self._settings.connect_seconds)
        except TransportError:
            if thread.is_alive():
                self._late = [*(other for other in self._late if other.is_alive()), thread]
            raise


class _Attempt:
    """One connection attempt that may end after nobody waits for it any more; it then cleans up after itself."""

    def __init__(self, offer: NixlOffer) -> None:
        self._offer = offer
        self._changed = threading.Condition()
        self._given_up = False
        self._outcome: tuple[Agent, str] | TransportError | None = None
        self._loaded = threading.Event()

    def run(self) -> None:
        outcome: tuple[Agent, str] | TransportError
        agent: Agent | None = None
        try:
            agent = Agent(unique_name("receiver"))
            self._loaded.set()
            remote = agent.add_remote(self._offer.metadata)
            outcome = (
                (agent, remote)
                if remote == self._offer.agent_name
                else TransportError("the source's metadata is of another agent than it says")
            )
        except TransportError as error:
            outcome = error
        except Exception as error:  # a thread's own error must reach whoever waits
            outcome = TransportError(f"NIXL: {error}")
        finally:
            self._loaded.set()
        with self._changed:
            self._outcome = outcome
            self._changed.notify_all()
            unwanted = self._given_up or isinstance(outcome, TransportError)
        if unwanted and agent is not None:
            agent.close()

    def result(self, seconds: float) -> tuple[Agent, str]:
        """Wait at most `seconds` for the source, not counting what loading the library takes the first time."""
        self._loaded.wait(JOIN_SECONDS)
        with self._changed:
            if not self._changed.wait_for(lambda: self._outcome is not None, seconds):
                self._given_up = True
                raise PeerUnreachableError(
                    f"NIXL did not connect to the source within {seconds:g} s",
                    hint="is the UCX port range open between the pods, and UCX_NET_DEVICES the right interface?",
                )
            outcome = self._outcome
        assert outcome is not None
        if isinstance(outcome, TransportError):
            raise outcome
        return outcome


def _checked(offer: NixlOffer | None, shard_size: int) -> NixlOffer:
    """The offer, whose addresses no arithmetic of ours may take out of range. The link checked its order and digest."""
    if offer is None:
        raise TransportError("the lease came without a NIXL offer")
    end = 0
    for region in offer.regions:
        in_order = end <= region.start and region.start + region.length <= shard_size
        if not in_order or not fits_memory(region.address, region.length):
            raise TransportError(f"the NIXL offer has a region at byte {region.start} that makes no sense")
        end = region.start + region.length
    return offer


def _confirm(channel: grpc.Channel, grant: Grant, deadline: float) -> None:
    """Renew the lease now that the connection stands.

    A source that was restarted between its grant and our connection listens where the old one did, and over TCP a read with old metadata
    would return the new process's memory without an error. The process that renews the lease was there all the time, so the connection is
    to it.
    """
    import grpc

    from shardpool.wire import pool
    from shardpool.wire.descriptors import methods

    renew = methods(pool.DESCRIPTOR, "PoolService")["RenewLease"]
    call = channel.unary_unary(
        renew.path,
        request_serializer=renew.request.SerializeToString,
        response_deserializer=renew.response.FromString,
    )
    request = pool.RenewRequest(lease_id=grant.lease_id, instance=grant.instance)
    try:
        call(request, timeout=max(0.1, deadline - time.monotonic()))
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise PeerUnreachableError(f"the source left while NIXL connected: {error.details()}") from None
        raise LeaseError(f"the lease is not of the source that NIXL reached: {error.details()}") from None


@dataclass(slots=True)
class _Piece:
    """A requested piece: what is still to be posted, what is under way, and the memory that it holds on to."""

    number: int
    keep: list[Any]  # objects that pin the destination
    runs: deque[Run]
    registration: Any = None
    under_way: int = 0  # reads posted and not finished
    abandoned_at: float | None = None


@dataclass(slots=True)
class _Orders:
    """What the callers of a reader want, handed to its thread."""

    requests: deque[_Piece | tuple[int, TransportError]] = field(default_factory=deque)
    abandoned: deque[int] = field(default_factory=deque)
    rate_limit: int | None = None
    closing: bool = False

    def any(self) -> bool:
        return bool(self.requests or self.abandoned or self.closing or self.rate_limit is not None)


class NixlReader:
    """Reads pieces under one lease. Its thread alone uses the agent, and tells the sink."""

    def __init__(
        self, agent: Agent, remote: str, offer: NixlOffer, *, piece_size: int, rate_limit: int, sink: PieceSink
    ) -> None:
        self._agent: Agent | None = agent
        self._remote = remote
        self._offer = offer
        self._starts = [region.start for region in offer.regions]
        self._piece_size = piece_size
        self._sink = sink
        self._orders = _Orders()
        self._wanted = threading.Condition()
        self._pieces: dict[int, _Piece] = {}
        self._reads: dict[int, tuple[_Piece, int]] = {}  # handle: piece, bytes
        self._bytes_under_way = 0
        self._broken: TransportError | None = None
        self._ended = False
        self._pace = Pace(rate_limit, time.monotonic())
        self._thread = threading.Thread(target=self._run, name="nixl-reader", daemon=True)
        self._thread.start()

    # Called by the link

    def request(self, piece: int, destination: Sequence[memoryview], *, first: bool = False) -> None:
        """See `PieceReader`. The source of a one-sided read does not see it, so that `first` makes no difference."""
        order: _Piece | tuple[int, TransportError]
        try:
            order = self._plan(piece, destination)
        except TransportError as error:
            order = (piece, error)
        with self._wanted:
            if not self._ended:
                self._orders.requests.append(order)
                self._wanted.notify()
                return
        self._sink.failed(piece, AbandonedError("the reader is closed"))

    def abandon(self, piece: int) -> None:
        """See `PieceReader`."""
        with self._wanted:
            self._orders.abandoned.append(piece)
            self._wanted.notify()

    def set_rate_limit(self, rate_limit: int) -> None:
        """Hold to another rate from now on (bytes per second, 0 is none), as a renewed lease may say."""
        with self._wanted:
            self._orders.rate_limit = rate_limit
            self._wanted.notify()

    @property
    def under_way(self) -> int:
        """Bytes that are asked for and have not landed."""
        return self._bytes_under_way

    def close(self) -> None:
        """See `PieceReader`."""
        with self._wanted:
            self._orders.closing = True
            self._wanted.notify()
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_SECONDS)

    # Planning

    def _plan(self, number: int, destination: Sequence[memoryview]) -> _Piece:
        """Match the spans of the destination with the regions of the offer."""
        keep: list[Any] = []
        runs: deque[Run] = deque()
        start = number * self._piece_size
        for view in destination:
            if not view.nbytes:
                continue
            memory = (ctypes.c_char * view.nbytes).from_buffer(view)
            keep.append(memory)
            local = ctypes.addressof(memory)
            for address, length, device in self._remote_runs(start, view.nbytes):
                runs.append(Run(local, address, length, device))
                local += length
            start += view.nbytes
        return _Piece(number, keep, runs)

    def _remote_runs(self, start: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Where `length` bytes of the shard from `start` lie in the source: address, bytes, device."""
        while length:
            place = bisect_right(self._starts, start) - 1
            region = self._offer.regions[place] if place >= 0 else None
            if region is None or start >= region.start + region.length:
                raise TransportError(f"the NIXL offer does not cover byte {start} of the shard")
            within = start - region.start
            here = min(length, region.length - within)
            yield region.address + within, here, region.device
            start, length = start + here, length - here

    # The thread

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            LOG.exception("NIXL reader ended")
            self._break(TransportError(f"NIXL reader: {error}"), told=True)
        finally:
            self._break(AbandonedError("the link was closed"), told=False)

    def _serve(self) -> None:
        quiet = 0
        while True:
            orders = self._take_orders(self._rest(quiet))
            if orders.rate_limit is not None:
                self._pace.set_limit(orders.rate_limit, time.monotonic())
            for order in orders.requests:
                self._accept(order)
            if orders.closing:
                return
            try:
                for number in orders.abandoned:
                    self._give_up(number)
                moved = self._poll()
                moved = self._post() or moved
            except TransportError as error:
                self._break(error, told=True)
                continue
            self._enforce_abandonment()
            quiet = 0 if moved else quiet + 1

    def _rest(self, quiet: int) -> float | None:
        """Seconds to wait for orders before polling again; None where nothing is under way."""
        if self._reads:
            return POLL_SECONDS if quiet < IDLE_POLLS else SLOWEST_POLL_SECONDS
        head = next((piece.runs[0] for piece in self._pieces.values() if piece.runs), None)
        if head is None:
            return None
        return max(POLL_SECONDS, self._pace.wait(min(head.length, self._pace.slice_size), time.monotonic()))

    def _take_orders(self, timeout: float | None) -> _Orders:
        with self._wanted:
            self._wanted.wait_for(self._orders.any, timeout)
            orders, self._orders = self._orders, _Orders(closing=self._orders.closing)
            return orders

    def _accept(self, order: _Piece | tuple[int, TransportError]) -> None:
        if isinstance(order, tuple):
            self._sink.failed(*order)
            return
        if self._broken is not None or self._agent is None:
            order.keep.clear()
            self._sink.failed(order.number, self._broken or AbandonedError("the reader is closed"))
            return
        if not order.runs:
            self._sink.landed(order.number, None)
            return
        try:
            order.registration = self._agent.register([(run.local, run.length) for run in joined(order.runs)])
        except TransportError as error:
            order.keep.clear()
            self._sink.failed(order.number, error)
            return
        if not self._reads:
            self._pace.idle(time.monotonic())
        self._pieces[order.number] = order

    def _give_up(self, number: int) -> None:
        piece = self._pieces.get(number)
        if piece is not None and piece.abandoned_at is None:
            piece.abandoned_at = time.monotonic()
            piece.runs.clear()
            self._settle_if_done(piece)

    def _poll(self) -> bool:
        """Look at every read under way; whether any finished."""
        assert self._agent is not None or not self._reads
        moved = False
        for handle, (piece, length) in list(self._reads.items()):
            assert self._agent is not None
            if not self._agent.finished(handle):
                continue
            moved = True
            self._agent.release(handle)
            del self._reads[handle]
            piece.under_way -= 1
            self._bytes_under_way -= length
            self._pace.landed(length, time.monotonic())
            if piece.abandoned_at is None:
                self._sink.progress(piece.number, length)
            self._settle_if_done(piece)
        return moved

    def _post(self) -> bool:
        """Start reads as far as window and rate allow; whether any was started."""
        started = False
        for piece in list(self._pieces.values()):
            while piece.runs and self._agent is not None:
                size = self._pace.slice_size
                now = time.monotonic()
                if self._reads and self._bytes_under_way + size > self._pace.window:
                    return started
                if self._pace.wait(min(size, sum(run.length for run in piece.runs)), now) > 0:
                    return started
                taken = cut(piece.runs, size)
                handle = self._agent.read(self._remote, taken.runs)
                self._pace.take(taken.length, now)
                self._reads[handle] = (piece, taken.length)
                piece.under_way += 1
                self._bytes_under_way += taken.length
                started = True
        return started

    def _settle_if_done(self, piece: _Piece) -> None:
        """Tell of a piece of which nothing is under way or to be posted."""
        if piece.under_way or piece.runs or self._agent is None:
            return
        del self._pieces[piece.number]
        try:
            self._agent.deregister(piece.registration)
        except TransportError as error:  # nothing is under way there, and the agent's end takes it back
            LOG.debug("piece %d: %s", piece.number, error)
        piece.keep.clear()
        if piece.abandoned_at is None:
            self._sink.landed(piece.number, None)
        else:
            self._sink.failed(piece.number, AbandonedError(f"piece {piece.number} was given up"))

    def _enforce_abandonment(self) -> None:
        now = time.monotonic()
        if any(p.abandoned_at is not None and now - p.abandoned_at >= ABANDON_SECONDS for p in self._pieces.values()):
            self._break(
                TransportError("the NIXL connection was dropped to stop reads that were given up"),
                told=True,
            )

    def _break(self, error: TransportError, *, told: bool) -> None:
        """Drop the agent, which stops every write; then settle every piece, and tell that nothing more will come if `told`."""
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.close()
        self._reads.clear()
        self._bytes_under_way = 0
        pieces, self._pieces = self._pieces, {}
        for piece in pieces.values():
            piece.keep.clear()
            given_up = AbandonedError(f"piece {piece.number} was given up")
            self._sink.failed(piece.number, error if piece.abandoned_at is None else given_up)
        if not told:
            with self._wanted:
                self._ended = True
                orders, self._orders = self._orders, _Orders()
            for order in orders.requests:
                number = order[0] if isinstance(order, tuple) else order.number
                self._sink.failed(number, error)
        elif self._broken is None:
            self._broken = error
            self._sink.broken(error)


__all__ = ["NixlMover", "NixlReader"]
