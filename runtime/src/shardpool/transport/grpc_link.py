"""Conversations with peers over gRPC: handshake, announcements, outline, lease. Bytes of pieces are a mover's business.

A link has one thread for what it does in order, and one that listens to announcements. Both belong to the link and end with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from blake3 import blake3

from shardpool.discovery.base import Endpoint
from shardpool.errors import (
    AbandonedError,
    LeaseError,
    MismatchError,
    PeerBusyError,
    PeerUnreachableError,
    ShardpoolError,
    TransportError,
)
from shardpool.log import logger
from shardpool.settings import Settings
from shardpool.swarm.state import Party, PeerInfo
from shardpool.transport.base import Listener
from shardpool.transport.channel import open_channel
from shardpool.transport.client import PoolClient
from shardpool.transport.failures import ProtocolError, from_rpc
from shardpool.transport.mover import Grant, PieceMover, PieceReader
from shardpool.wire.conversions import difference, read_update

IDLE_LEASE_SECONDS = 2.0
"""A lease under which nothing is asked for is given back after this, so that another reader finds the place."""
_SLOWEST_OUTLINE = 1024 * 1024
_CLOSE_SECONDS = 5.0
_LOG = logger(__name__)


class GrpcTransport:
    """Opens links to peers.

    Args:
        settings: deadlines and certificates.
        movers: how bytes may move, the preferred one first; a link takes the first that its source offers and that works.
    """

    def __init__(self, settings: Settings, movers: Sequence[PieceMover]) -> None:
        if not movers:
            raise ValueError("no mover is given")
        self.name = movers[0].name
        self._settings = settings
        self._movers = tuple(movers)
        self._lock = threading.Lock()
        self._links: set[GrpcLink] = set()
        self._closed = False

    def connect(self, endpoint: Endpoint, caller: Party, listener: Listener) -> GrpcLink:
        """Start a conversation; `opened` or `closed` follows within the connect deadline."""
        link = GrpcLink(endpoint, caller, listener, self._settings, self._movers, ended=self._forget)
        with self._lock:
            if self._closed:
                raise AbandonedError("the transport is closed")
            self._links.add(link)
        link.start()
        return link

    def close(self) -> None:
        """Close every link and the movers."""
        with self._lock:
            self._closed = True
            links = list(self._links)
        for link in links:
            link.close()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for link in links:
            link.join(max(deadline - time.monotonic(), 0))
        for mover in self._movers:
            mover.close()

    def _forget(self, link: GrpcLink) -> None:
        with self._lock:
            self._links.discard(link)


class GrpcLink:
    """A conversation with one process of a peer. Made by `GrpcTransport.connect`."""

    def __init__(
        self,
        endpoint: Endpoint,
        caller: Party,
        listener: Listener,
        settings: Settings,
        movers: Sequence[PieceMover],
        *,
        ended: Callable[[GrpcLink], None],
    ) -> None:
        self.endpoint = endpoint
        self._caller = caller
        self._listener = listener
        self._settings = settings
        self._movers = list(movers)
        self._ended = ended
        self._info: PeerInfo | None = None
        self._wake = threading.Condition()  # guards everything below
        self._closing = False
        self._error: ShardpoolError | None = None  # why the link closes; None: this side wants it
        self._outline_wanted = False
        self._outstanding: dict[int, bool] = {}  # piece: whether it is abandoned
        self._waiting: dict[int, tuple[Sequence[memoryview], bool]] = {}  # requested while there is no reader
        self._handing: set[int] = set()  # on their way to a reader
        self._given_up: set[int] = set()  # abandoned on that way
        self._reader: PieceReader | None = None
        self._reader_sink: _Sink | None = None
        self._grant: Grant | None = None
        self._renew_at = 0.0
        self._used_at = 0.0
        self._channel: grpc.Channel | None = None
        self._client: PoolClient | None = None
        self._watch: Any = None
        self._watcher: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name=f"link {endpoint.target}", daemon=True)

    # What the driver calls

    def start(self) -> None:
        """Begin; called once, by the transport."""
        self._thread.start()

    def request_outline(self) -> None:
        """Ask for the outline."""
        with self._wake:
            self._outline_wanted = True
            self._wake.notify_all()

    def request(self, piece: int, destination: Sequence[memoryview], *, first: bool = False) -> None:
        """Ask for a piece. Raises ValueError for one that is under way, or for a destination of another length."""
        info = self._info
        length = sum(view.nbytes for view in destination)
        if info is None or not 0 <= piece < info.piece_count:
            raise ValueError(f"piece {piece} of {info.piece_count if info else 0}")
        if length != min(info.piece_size, info.shard_size - piece * info.piece_size):
            raise ValueError(f"{length} bytes for piece {piece}")
        with self._wake:
            if piece in self._outstanding:
                raise ValueError(f"piece {piece} is asked for already")
            closing, reader = self._closing, self._reader
            if not closing:
                self._outstanding[piece] = False
                self._used_at = time.monotonic()
                if reader is None:
                    self._waiting[piece] = (destination, first)
                    self._wake.notify_all()
        if closing:
            self._listener.failed(self, piece, AbandonedError(f"piece {piece}: the link is closed"))
        elif reader is not None:
            reader.request(piece, destination, first=first)

    def abandon(self, piece: int) -> None:
        """Give a piece up; one that is settled is no error."""
        with self._wake:
            if piece not in self._outstanding:
                return
            self._outstanding[piece] = True
            waiting = self._waiting.pop(piece, None) is not None
            if piece in self._handing:
                self._given_up.add(piece)
                return
            reader = self._reader
        if waiting:
            self._settle_failed(piece, AbandonedError(f"piece {piece} was given up by this side"))
        elif reader is not None:
            reader.abandon(piece)

    def close(self) -> None:
        """End the conversation."""
        self._close(None)

    def join(self, timeout: float) -> None:
        """Wait until everything is settled and freed, at most `timeout` seconds."""
        self._thread.join(timeout)

    # What a reader tells, by way of its sink

    def _settle_landed(self, piece: int, digest: bytes | None) -> None:
        if self._take_settled(piece) is not None:
            self._listener.landed(self, piece, digest)

    def _settle_failed(self, piece: int, error: TransportError) -> None:
        abandoned = self._take_settled(piece)
        if abandoned is not None:
            self._listener.failed(self, piece, error if not abandoned else _as_abandoned(piece, error))

    def _take_settled(self, piece: int) -> bool | None:
        """Forget an outstanding piece: whether it was abandoned, None if it was settled before."""
        with self._wake:
            self._used_at = time.monotonic()
            abandoned = self._outstanding.pop(piece, None)
            if not self._outstanding:
                self._wake.notify_all()  # the idle lease's time begins
            return abandoned

    def _reader_broke(self, sink: _Sink, error: TransportError) -> None:
        with self._wake:
            sink.broken_by = error
            self._wake.notify_all()

    # The link's own thread

    def _close(self, error: ShardpoolError | None) -> None:
        with self._wake:
            if not self._closing:
                self._closing, self._error = True, error
            client, watch = self._client, self._watch
            self._wake.notify_all()
        if client is not None:
            client.cancel()
        if watch is not None:
            watch.cancel()

    def _run(self) -> None:
        try:
            self._converse()
        except ShardpoolError as error:
            self._close(error)
        except Exception as error:
            _LOG.exception("link to %s", self.endpoint.target)
            self._close(TransportError(f"{self.endpoint.target}: {error!r}"))
        self._finish()

    def _converse(self) -> None:
        deadline = time.monotonic() + self._settings.connect_seconds
        channel = open_channel(self.endpoint, self._settings)
        with self._wake:
            self._channel = channel
            self._client = PoolClient(channel, self.endpoint.target)
            if self._closing:
                return
        self._agree(deadline - time.monotonic())
        self._watcher = threading.Thread(target=self._listen, name=f"watch {self.endpoint.target}", daemon=True)
        self._watcher.start()
        while True:
            with self._wake:
                if not self._has_work():
                    self._wake.wait(self._next_timer(time.monotonic()))
                if self._closing:
                    return
                outline, self._outline_wanted = self._outline_wanted, False
                sink = self._reader_sink
                broken = sink.broken_by if sink is not None else None
                wants_reader = bool(self._waiting) and self._reader is None
            if broken is not None:
                self._drop_reader(broken)
            elif outline:
                self._fetch_outline()
            elif wants_reader:
                self._open_reader()
            else:
                self._keep_lease(time.monotonic())

    def _has_work(self) -> bool:
        broken = self._reader_sink is not None and self._reader_sink.broken_by is not None
        return self._closing or self._outline_wanted or broken or bool(self._waiting and self._reader is None)

    def _next_timer(self, now: float) -> float | None:
        if self._grant is None:
            return None
        idle = self._used_at + IDLE_LEASE_SECONDS if not self._outstanding else self._renew_at
        return max(min(self._renew_at, idle) - now, 0.01)

    def _agree(self, timeout: float) -> PeerInfo:
        """Ask who the peer is, and tell the listener if it is of this pool. Raises ShardpoolError."""
        assert self._client is not None
        info = self._client.state(self._caller, timeout)
        known = self._info
        if known is not None and info.party.instance != known.party.instance:
            raise MismatchError(f"{self.endpoint.target} was restarted in between", reason="instance")
        refusal = difference(self._caller, info.party)
        if refusal is not None:
            raise MismatchError(f"{self.endpoint.target}: {refusal.what}", reason=refusal.reason, hint=refusal.hint)
        if not any(mover.name in info.transports for mover in self._movers):
            ours, theirs = ", ".join(mover.name for mover in self._movers), ", ".join(info.transports)
            raise MismatchError(f"{self.endpoint.target}: transports: ours {ours}, theirs {theirs}", reason="protocol")
        self._info = info
        if not self._closing:
            self._listener.opened(self, info)
        return info

    def _fetch_outline(self) -> None:
        assert self._client is not None
        info = self._known_info()
        if not info.outline_size:
            raise TransportError(f"{self.endpoint.target} does not know its outline yet")
        timeout = self._settings.stall_seconds + info.outline_size / _SLOWEST_OUTLINE
        encoded = self._client.outline(self._caller, info, timeout)
        if blake3(encoded).digest() != info.party.catalog_digest:
            raise MismatchError(f"{self.endpoint.target}: its outline is not what its digest says", reason="catalog")
        if not self._closing:
            self._listener.outline(self, encoded)

    def _known_info(self) -> PeerInfo:
        assert self._info is not None
        return self._info

    def _open_reader(self) -> None:
        """Acquire a lease and hand the waiting pieces to a reader; where that cannot be, the waiting pieces fail."""
        try:
            sink, reader, grant = self._acquire()
        except MismatchError:
            raise
        except PeerUnreachableError:
            raise
        except TransportError as error:
            with self._wake:
                waiting, self._waiting = list(self._waiting), {}
            for piece in waiting:
                self._settle_failed(piece, error)
            return
        with self._wake:
            self._grant, self._reader, self._reader_sink = grant, reader, sink
            self._renew_at = time.monotonic() + grant.seconds / 3
            handing, self._waiting = self._waiting, {}
            self._handing = set(handing)
        for piece, (destination, first) in handing.items():
            reader.request(piece, destination, first=first)
        with self._wake:
            self._handing = set()
            given_up, self._given_up = self._given_up, set()
        for piece in given_up:
            reader.abandon(piece)

    def _acquire(self) -> tuple[_Sink, PieceReader, Grant]:
        assert self._client is not None
        assert self._channel is not None
        info, deadline = self._known_info(), self._settings.connect_seconds
        offered = [mover for mover in self._movers if mover.name in info.transports]
        for mover in offered:
            grant = self._client.acquire(self._caller, info, mover.name, deadline)
            sink = _Sink(self)
            try:
                return sink, mover.open(self._channel, info, grant, sink), grant
            except TransportError as error:
                self._client.release(grant, deadline)
                if mover is offered[-1]:
                    raise
                self._movers.remove(mover)
                following = offered[offered.index(mover) + 1].name
                _LOG.warning("%s: %s cannot be used, %s is: %s", self.endpoint.target, mover.name, following, error)
        raise TransportError(f"{self.endpoint.target}: no transport is left")

    def _keep_lease(self, now: float) -> None:
        """Renew the lease when it is time, give it back when nothing is asked for."""
        assert self._client is not None
        with self._wake:
            grant = self._grant
            idle = not self._outstanding and now >= self._used_at + IDLE_LEASE_SECONDS
            if grant is None or (not idle and now < self._renew_at):
                return
            if idle:
                reader, self._reader, self._reader_sink, self._grant = self._reader, None, None, None
            self._renew_at = now + grant.seconds / 3
        if idle:
            if reader is not None:
                reader.close()
            self._client.release(grant, self._settings.connect_seconds)
            return
        try:
            rate_limit = self._client.renew(grant, self._settings.connect_seconds)
        except LeaseError as error:
            self._drop_reader(error)
        except PeerBusyError:
            return  # a flooded source; there is time for two more attempts
        except PeerUnreachableError as error:
            _LOG.debug("renewing a lease: %s", error)  # the announcements tell when the peer is gone
        else:
            with self._wake:
                reader = self._reader
            if reader is not None:
                reader.set_rate_limit(rate_limit)

    def _drop_reader(self, error: TransportError) -> None:
        """The reader is of no use any more: settle what it had, and close the link unless another lease may do."""
        with self._wake:
            reader, grant = self._reader, self._grant
            self._reader = self._grant = None
            if self._reader_sink is not None:
                self._reader_sink.closed_by = error
            self._reader_sink = None
        if reader is not None:
            reader.close()
        if isinstance(error, ProtocolError):
            raise MismatchError(error.what, reason="protocol")
        if isinstance(error, PeerUnreachableError):
            raise error
        if grant is not None and not isinstance(error, LeaseError) and self._client is not None:
            self._client.release(grant, self._settings.connect_seconds)

    def _finish(self) -> None:
        """Settle everything, tell `closed`, free everything."""
        with self._wake:
            self._closing = True
            error = self._error
            reader, grant = self._reader, self._grant
            self._reader = self._grant = None
            if self._reader_sink is not None:
                self._reader_sink.closed_by = error if isinstance(error, TransportError) else None
            waiting, self._waiting = list(self._waiting), {}
        if reader is not None:
            reader.close()
        if self._watch is not None:
            self._watch.cancel()
        if self._watcher is not None:
            self._watcher.join(_CLOSE_SECONDS)
        why = error if isinstance(error, TransportError) else AbandonedError("the link was closed")
        for piece in (*waiting, *list(self._outstanding)):
            self._settle_failed(piece, why)
        self._listener.closed(self, error)
        if grant is not None and self._client is not None and not isinstance(error, PeerUnreachableError):
            self._client.release(grant, self._settings.connect_seconds)
        if self._channel is not None:
            self._channel.close()
        self._ended(self)

    # The listening thread

    def _listen(self) -> None:
        assert self._client is not None
        peer = self.endpoint.target
        error: ShardpoolError
        try:
            info = self._known_info()
            with self._wake:
                if self._closing:
                    return
                self._watch = self._client.watch(self._caller, info)
            generation = 0
            for message in self._watch:
                if message.outline_known and not info.outline_size:
                    info = self._agree(self._settings.connect_seconds)
                update = read_update(message, info.piece_count)
                if update.generation < generation:
                    raise MismatchError(f"{peer}: generation {update.generation} after {generation}", reason="protocol")
                generation = update.generation
                if self._closing:
                    return
                self._listener.updated(self, update)
            error = PeerUnreachableError(f"{peer} ended the conversation")
        except grpc.RpcError as failure:
            error = from_rpc(failure, peer, "waiting for announcements")
        except ShardpoolError as failure:
            error = failure
        self._close(error)


class _Sink:
    """What one reader tells; `closed_by` is why the link closes it, told instead of AbandonedError for pieces nobody gave up."""

    def __init__(self, link: GrpcLink) -> None:
        self._link = link
        self.broken_by: TransportError | None = None
        self.closed_by: TransportError | None = None

    def progress(self, piece: int, received: int) -> None:
        self._link._listener.progress(self._link, piece, received)

    def landed(self, piece: int, digest: bytes | None) -> None:
        self._link._settle_landed(piece, digest)

    def failed(self, piece: int, error: TransportError) -> None:
        if isinstance(error, AbandonedError) and self.closed_by is not None:
            error = self.closed_by
        self._link._settle_failed(piece, error)

    def broken(self, error: TransportError) -> None:
        self._link._reader_broke(self, error)


def _as_abandoned(piece: int, error: TransportError) -> TransportError:
    if isinstance(error, AbandonedError):
        return error
    return AbandonedError(f"piece {piece} was given up by this side")
