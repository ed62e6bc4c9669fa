"""Pieces over a gRPC stream: asked for ahead, written by one thread, hashed by the next one while the bytes are in the cache.

Hashing takes about as long as receiving does, and neither holds the interpreter for long, so that two threads do it in the time of one.
The source sends pieces strictly in the order they were asked for, each in chunks of rising offset. Whatever else comes ends the read.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
from blake3 import blake3

from shardpool.errors import AbandonedError, PeerUnreachableError, PieceLentError, ShardpoolError, TransportError
from shardpool.log import logger
from shardpool.swarm.state import PeerInfo
from shardpool.transport.failures import ProtocolError, from_rpc
from shardpool.transport.mover import Grant, PieceReader, PieceSink
from shardpool.wire import pool
from shardpool.wire.chunk import LARGEST_CHUNK, Chunk, ChunkError, decode_chunk, lent_pieces
from shardpool.wire.descriptors import methods

_LOG = logger(__name__)
_READ_PIECES = methods(pool.DESCRIPTOR, "PoolService")["ReadPieces"]
STEP = 256 * 1024
"""Bytes that are written and hashed at once: few enough to stay in the cache, and to let an abandoned piece go soon."""
ENOUGH_UNDER_WAY = 4 * 1024 * 1024
"""Bytes asked for and not here yet, with which the source has enough to do."""
CHUNKS_BETWEEN = 2
_JOIN_SECONDS = 5.0


class StreamMover:
    """The `stream` transport's receiver."""

    name = "stream"

    def open(self, channel: grpc.Channel, info: PeerInfo, grant: Grant, sink: PieceSink) -> PieceReader:
        """Begin to read over the link's own connection."""
        return StreamReader(channel, info.party.endpoint or info.party.instance, grant, sink)

    def close(self) -> None:
        """Readers share nothing."""


class _Cursor:
    """How far a thread has come in a destination."""

    __slots__ = ("offset", "run")

    def __init__(self) -> None:
        self.run = 0
        self.offset = 0

    def next(self, destination: Sequence[memoryview], limit: int) -> memoryview:
        """The next bytes, at most `limit` of them and never of two runs."""
        view = destination[self.run]
        size = min(limit, view.nbytes - self.offset)
        taken = view[self.offset : self.offset + size]
        self.offset += size
        if self.offset == view.nbytes:
            self.run, self.offset = self.run + 1, 0
        return taken


class _Read:
    """A piece that was asked for. `received` counts what the source sent of it, also after it was abandoned."""

    __slots__ = (
        "abandoned",
        "destination",
        "first",
        "hashed",
        "hasher",
        "length",
        "piece",
        "received",
        "sent",
        "users",
        "written",
    )

    def __init__(self, piece: int, destination: Sequence[memoryview], first: bool) -> None:
        self.piece = piece
        self.first = first
        self.destination = [view.cast("B") for view in destination if view.nbytes]
        self.length = sum(view.nbytes for view in self.destination)
        self.received = 0
        self.sent = False  # the source was asked
        self.written = _Cursor()
        self.hashed = _Cursor()
        self.hasher = blake3()
        self.users = 0  # threads inside a step
        self.abandoned = False


class StreamReader:
    """One ReadPieces call."""

    def __init__(self, channel: grpc.Channel, peer: str, grant: Grant, sink: PieceSink) -> None:
        self._peer = peer
        self._grant = grant
        self._sink = sink
        self._lock = threading.Lock()
        self._asked = threading.Condition(self._lock)
        self._to_send: deque[_Read | pool.ReadRequest] = deque()  # a piece, or a cancellation
        self._reads: deque[_Read] = deque()  # what the source has yet to send or to refuse, in its order
        self._unsettled: dict[int, _Read] = {}  # neither landed nor failed nor abandoned
        self._closing = False
        self._broken: TransportError | None = None
        call = channel.stream_stream(
            _READ_PIECES.path, request_serializer=_READ_PIECES.request.SerializeToString, response_deserializer=None
        )
        self._call: Any = call(self._requests())
        # Few chunks, so that they are still in the cache, and the source is held back by a slow hash.
        self._written: queue.Queue[tuple[_Read, int] | None] = queue.Queue(CHUNKS_BETWEEN)
        self._hasher = threading.Thread(target=self._hash, name="stream-hasher", daemon=True)
        self._thread = threading.Thread(target=self._receive, name="stream-reader", daemon=True)
        self._hasher.start()
        self._thread.start()

    def request(self, piece: int, destination: Sequence[memoryview], *, first: bool = False) -> None:
        """Ask for a piece behind those already asked for."""
        read = _Read(piece, destination, first)
        with self._lock:
            error = AbandonedError(f"piece {piece}: the reader is closed") if self._closing else self._broken
            if error is None:
                self._reads.append(read)
                self._unsettled[piece] = read
                self._ask(read)
        if error is not None:
            self._sink.failed(piece, error)

    def abandon(self, piece: int) -> None:
        """Let a piece go; the source is told, and what it still sends of it is thrown away."""
        with self._lock:
            read = self._unsettled.pop(piece, None)
            if read is None:
                return
            read.abandoned = True
            if read in self._reads:
                self._ask(pool.ReadRequest(piece=piece, cancel=True))
            if read.users:
                return  # whoever is in a step settles it after that
            read.destination = []
        self._sink.failed(piece, _abandoned(piece))

    def set_rate_limit(self, rate_limit: int) -> None:
        """The source sends no faster than it will."""

    def close(self) -> None:
        """Cancel the call and settle what is left."""
        with self._lock:
            self._closing = True
            self._asked.notify_all()
        self._call.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)

    def _ask(self, request: _Read | pool.ReadRequest) -> None:
        self._to_send.append(request)
        self._asked.notify_all()

    def _requests(self) -> Iterator[pool.ReadRequest]:
        """What gRPC sends; it waits for more until the reader ends."""
        first = True
        while True:
            with self._lock:
                self._asked.wait_for(lambda: self._closing or self._broken is not None or self._due())
                if self._closing or self._broken is not None:
                    return
                request = self._next_request()
            if first:
                request.lease_id, request.instance, first = self._grant.lease_id, self._grant.instance, False
            yield request

    def _due(self) -> bool:
        """Whether to send what is waiting. A message costs both sides as much as moving 100 KB, so while enough is under way
        pieces are saved up to go in one."""
        if not self._to_send:
            return False
        if any(isinstance(request, pool.ReadRequest) for request in self._to_send):
            return True
        return sum(read.length - read.received for read in self._reads if read.sent) < ENOUGH_UNDER_WAY

    def _next_request(self) -> pool.ReadRequest:
        head = self._to_send.popleft()
        if not isinstance(head, _Read):
            return head
        head.sent = True
        request = pool.ReadRequest(piece=head.piece, first=head.first)
        while self._to_send and isinstance(following := self._to_send[0], _Read) and following.first is head.first:
            self._to_send.popleft()
            following.sent = True
            request.following.append(following.piece)
        return request

    def _receive(self) -> None:
        """The receiving thread: nothing else writes to a destination."""
        error: ShardpoolError
        try:
            for message in self._call:
                self._take(decode_chunk(message))
            error = PeerUnreachableError(f"{self._peer} ended the stream of pieces")
        except (ChunkError, ProtocolError) as broken:
            error = ProtocolError(f"{self._peer} sent what is not asked for: {broken}")
        except grpc.RpcError as failure:
            error = from_rpc(failure, self._peer, "reading pieces")
        except Exception as failure:
            _LOG.exception("reading pieces from %s", self._peer)
            error = TransportError(f"reading pieces from {self._peer} failed: {failure}")
        self._written.put(None)
        self._hasher.join()
        self._end(error if isinstance(error, TransportError) else TransportError(str(error)))

    def _hash(self) -> None:
        """The hashing thread: follows the receiving one, and settles pieces that are complete."""
        while (item := self._written.get()) is not None:
            try:
                self._hash_written(*item)
            except Exception:
                _LOG.exception("hashing what came from %s", self._peer)
                self._call.cancel()  # which ends the reader; what is not settled fails then

    def _hash_written(self, read: _Read, size: int) -> None:
        def update(target: memoryview, _: int) -> None:
            read.hasher.update(target)

        self._step_through(read, read.hashed, size, update)
        with self._lock:
            if read.abandoned:
                return
            landed = read.hashed.run == len(read.destination)
            if landed:
                del self._unsettled[read.piece]
                read.destination = []
        self._sink.progress(read.piece, size)
        if landed:
            self._sink.landed(read.piece, read.hasher.digest())

    def _end(self, error: TransportError) -> None:
        with self._lock:
            closing = self._closing
            self._broken = error
            left = list(self._unsettled.values())
            self._unsettled.clear()
            self._reads.clear()
            self._to_send.clear()
            self._asked.notify_all()
        self._call.cancel()
        for read in left:
            read.destination = []
            self._sink.failed(read.piece, _abandoned(read.piece) if closing else error)
        if not closing:
            self._sink.broken(error)

    def _take(self, chunk: Chunk) -> None:
        """Accept the next message of the stream. Raises ProtocolError when it is not the one that must come."""
        with self._lock:
            if not self._reads:
                raise ProtocolError(f"piece {chunk.piece} although none is asked for")
            read = self._reads[0]
        if chunk.piece != read.piece:
            raise ProtocolError(f"piece {chunk.piece} where {read.piece} is due")
        if chunk.refusal:
            self._refused(read, chunk)
            return
        size = chunk.data.nbytes
        if chunk.offset != read.received or not 0 < size <= min(read.length - read.received, LARGEST_CHUNK):
            raise ProtocolError(
                f"{size} bytes at {chunk.offset} of piece {read.piece}, {read.received} of {read.length} were there"
            )
        data = chunk.data

        def write(target: memoryview, position: int) -> None:
            target[:] = data[position : position + target.nbytes]

        self._step_through(read, read.written, size, write)
        with self._lock:
            read.received += size
            if read.received == read.length:
                self._reads.popleft()
            if self._to_send:
                self._asked.notify_all()
        self._written.put((read, size))

    def _refused(self, read: _Read, chunk: Chunk) -> None:
        with self._lock:
            self._reads.popleft()
            self._asked.notify_all()
            if read.abandoned:
                return
            del self._unsettled[read.piece]
            read.destination = []
        asked = f"{self._peer} was asked for piece {read.piece} and"
        if chunk.refusal == pool.REFUSAL_LENT:
            error: TransportError = PieceLentError(f"{asked} has sent it to another", lent=lent_pieces(chunk))
        elif chunk.refusal == pool.REFUSAL_NOT_HELD:
            error = TransportError(f"{asked} does not hold it any more")
        else:
            error = TransportError(f"{asked} refuses it ({chunk.refusal})")
        self._sink.failed(read.piece, error)

    def _step_through(self, read: _Read, cursor: _Cursor, size: int, use: Callable[[memoryview, int], None]) -> None:
        """Use the next `size` bytes of the destination, step by step; an abandoned piece is let go between two steps."""
        position = 0
        while position < size:
            with self._lock:
                if read.abandoned:
                    return
                read.users += 1
            try:
                target = cursor.next(read.destination, min(STEP, size - position))
                use(target, position)
                position += target.nbytes
                del target
            finally:
                with self._lock:
                    read.users -= 1
                    let_go = read.abandoned and not read.users
                    if let_go:
                        read.destination = []
                if let_go:
                    self._sink.failed(read.piece, _abandoned(read.piece))


def _abandoned(piece: int) -> AbandonedError:
    return AbandonedError(f"piece {piece} was given up by this side")
