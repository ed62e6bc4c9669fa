"""What a source may send instead of what it should, and what becomes of it: a typed end, and no byte outside the piece."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from pool_peers import Conversation, Shard, make_party

from shardpool.discovery.base import Endpoint
from shardpool.errors import MismatchError, PeerBusyError, ShardpoolError, TransportError
from shardpool.source.answers import service_handler
from shardpool.source.egress import EgressMeter, TokenBucket
from shardpool.source.leases import Leases
from shardpool.source.pool_service import SERVICE, PoolService
from shardpool.source.slots import Slots
from shardpool.swarm.replica_state import ReplicaState
from shardpool.wire import pool
from shardpool.wire.chunk import encode_chunk
from shardpool.wire.descriptors import methods

Connect = Callable[..., Conversation]
Hostile = Callable[..., Endpoint]


@pytest.fixture
def hostile(shard: Shard) -> Iterator[Hostile]:
    """Start a source whose calls are replaced by name; the others are the real ones."""
    servers: list[tuple[grpc.Server, ThreadPoolExecutor, PoolService]] = []

    def start(**calls: Callable[..., Any]) -> Endpoint:
        state = ReplicaState(make_party(endpoint="hostile"), transports=("stream",))
        state.set_outline(shard.catalog)
        for piece in range(shard.catalog.pieces):
            state.hold(piece, shard.digest(piece))
        service = PoolService(
            state,
            contents=lambda: shard,
            leases=Leases(30, 8),
            egress=TokenBucket(),
            meter=EgressMeter(),
            nixl=lambda: None,
            watchers=Slots(8, "watchers"),
            stopping=threading.Event(),
        )
        real = {
            "GetState": service.get_state,
            "WatchState": service.watch_state,
            "GetOutline": service.get_outline,
            "AcquireLease": service.acquire_lease,
            "RenewLease": service.renew_lease,
            "ReleaseLease": service.release_lease,
            "ReadPieces": service.read_pieces,
        }
        # A replacement gets the real call first, to tamper with its answer.
        replaced = {
            name: (lambda request, context, call=call, real=real[name]: call(real, request, context))
            for name, call in calls.items()
        }
        threads = ThreadPoolExecutor(16)
        server = grpc.server(threads)
        handlers = service_handler(SERVICE, methods(pool.DESCRIPTOR, "PoolService"), real | replaced)
        server.add_generic_rpc_handlers((handlers,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append((server, threads, service))
        return Endpoint("127.0.0.1", port)

    yield start
    for server, threads, service in servers:
        server.stop(0).wait()
        threads.shutdown()
        service.close()


Stream = Callable[[Iterator[Any]], Iterator[bytes]]


def _instead(stream: Stream) -> Callable[..., Iterator[bytes]]:
    return lambda real, requests, context: stream(requests)


def _chunk(piece: int, offset: int, size: int) -> bytes:
    return encode_chunk(piece, offset, [memoryview(bytes(size))])


def _once(message: bytes) -> Stream:
    def stream(requests: Iterator[Any]) -> Iterator[bytes]:
        next(requests)
        yield message
        for _ in requests:
            pass

    return stream


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("another piece", _chunk(5, 0, 1000)),
        ("a piece that does not exist", _chunk(4_000_000_000, 0, 1000)),
        ("a hole", _chunk(0, 1000, 1000)),
        ("an offset beyond memory", _chunk(0, 2**63, 1000)),
        ("more than the piece", _chunk(0, 0, (1 << 18) + 1)),
        ("nothing", _chunk(0, 0, 0)),
        ("garbage", b"\xff" * 100),
        ("a length beyond the message", b"\x1a\xff\xff\xff\xff\x0f"),
        ("a field cut off", _chunk(0, 0, 1000)[:-1]),
    ],
)
def test_a_source_that_sends_what_was_not_asked_for_is_dropped(
    name: str, message: bytes, shard: Shard, hostile: Hostile, connect: Connect
) -> None:
    talk = connect(hostile(ReadPieces=_instead(_once(message))))
    talk.told.next("opened")
    room, views = shard.destination(0)
    talk.link.request(0, views)
    failed = talk.told.next("landed", "failed")
    assert failed[0] == "failed"
    assert isinstance(failed[2], TransportError)
    closed = talk.told.next("closed")[1]
    assert isinstance(closed, MismatchError), name
    assert closed.reason == "protocol"
    assert not any(room), "bytes of a broken message were written"


def test_a_piece_twice_is_not_taken_twice(shard: Shard, hostile: Hostile, connect: Connect) -> None:
    def stream(requests: Iterator[Any]) -> Iterator[bytes]:
        next(requests)
        for _ in range(2):
            yield encode_chunk(0, 0, shard.contents(0))
        for _ in requests:
            pass

    talk = connect(hostile(ReadPieces=_instead(stream)))
    talk.told.next("opened")
    talk.link.request(0, shard.destination(0)[1])
    assert talk.told.next("landed", "failed")[:2] == ("landed", 0)
    assert talk.told.next("closed")[1].reason == "protocol"
    assert len([event for event in talk.told.seen if event[0] == "landed"]) == 1


def test_a_truncated_stream_fails_what_is_missing(shard: Shard, hostile: Hostile, connect: Connect) -> None:
    def stream(requests: Iterator[Any]) -> Iterator[bytes]:
        next(requests)
        yield encode_chunk(0, 0, [memoryview(shard.piece(0))[:1000]])

    talk = connect(hostile(ReadPieces=_instead(stream)))
    talk.told.next("opened")
    for piece in (0, 1):
        talk.link.request(piece, shard.destination(piece)[1])
    failed = {talk.told.next("landed", "failed")[:2] for _ in range(2)}
    assert failed == {("failed", 0), ("failed", 1)}
    assert isinstance(talk.told.next("closed")[1], TransportError)


def test_flipped_bits_are_told_by_the_digest(shard: Shard, hostile: Hostile, connect: Connect) -> None:
    def stream(requests: Iterator[Any]) -> Iterator[bytes]:
        for request in requests:
            data = bytearray(shard.piece(request.piece))
            data[len(data) // 2] ^= 1
            yield encode_chunk(request.piece, 0, [memoryview(data)])

    talk = connect(hostile(ReadPieces=_instead(stream)))
    talk.told.next("opened")
    talk.link.request(2, shard.destination(2)[1])
    event = talk.told.next("landed", "failed")
    assert event[:2] == ("landed", 2)
    assert event[2] != shard.digest(2)


def test_chunks_may_be_of_any_size_and_cross_files(shard: Shard, hostile: Hostile, connect: Connect) -> None:
    def stream(requests: Iterator[Any]) -> Iterator[bytes]:
        for piece in (piece for request in requests for piece in (request.piece, *request.following)):
            data = memoryview(shard.piece(piece))
            for start in range(0, len(data), 10_007):
                yield encode_chunk(piece, start, [data[start : start + 10_007]])

    talk = connect(hostile(ReadPieces=_instead(stream)))
    talk.told.next("opened")
    rooms = {}
    for piece in range(shard.catalog.pieces):
        rooms[piece], views = shard.destination(piece)
        talk.link.request(piece, views)
    for _ in rooms:
        event = talk.told.next("landed", "failed")
        assert event == ("landed", event[1], shard.digest(event[1]))
        assert bytes(rooms[event[1]]) == shard.piece(event[1])


def _tampered(field: str, value: Any) -> Callable[..., pool.StateResponse]:
    def answer(real: Callable[..., Any], request: Any, context: Any) -> pool.StateResponse:
        response = real(request, context)
        target = response
        *path, last = field.split(".")
        for name in path:
            target = getattr(target, name)
        if isinstance(value, list):
            del getattr(target, last)[:]
            getattr(target, last).extend(value)
        else:
            setattr(target, last, value)
        return response

    return answer


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source.protocol", 2),
        ("source.instance", "../../x"),
        ("source.mx_source_id", "0123456789ABCDEF"),
        ("source.world", 0),
        ("source.layout", "x" * 65),
        ("source.endpoint", "x" * 5000),
        ("source.identity_json", "x" * 100_000),
        ("source.catalog_digest", b"short"),
        ("source.catalog_digest", b""),
        ("piece_count", 4_000_000_000),
        ("piece_size", 0),
        ("piece_size", 1 << 40),
        ("shard_size", 1 << 63),
        ("outline_size", 1 << 40),
        ("outline_size", 0),
        ("transports", ["x"] * 9),
        ("transports", ["carrier-pigeon"]),
        ("state.phase", 0),
        ("state.phase", 77),
        ("state.claims", list(range(100))),
        ("state.claims", [99]),
        ("state.claims", [1, 1]),
        ("state.pieces", [1]),
        ("state.digests", b"x"),
    ],
)
def test_a_handshake_out_of_bounds_is_refused(field: str, value: Any, hostile: Hostile, connect: Connect) -> None:
    told = connect(hostile(GetState=_tampered(field, value))).told
    error = told.next("closed")[1]
    assert isinstance(error, MismatchError)
    assert error.reason == "protocol"
    assert "\n" not in str(error)
    assert not [event for event in told.seen if event[0] == "opened"]


@pytest.mark.parametrize(
    "update",
    [
        pool.StateUpdate(phase=1, pieces=[99], digests=bytes(32)),
        pool.StateUpdate(phase=1, pieces=[1, 1], digests=bytes(64)),
        pool.StateUpdate(phase=1, pieces=[1], digests=bytes(31)),
        pool.StateUpdate(phase=1, withdrawn=[8]),
        pool.StateUpdate(phase=9),
        pool.StateUpdate(phase=1, pieces=range(5000), digests=bytes(32 * 5000)),
    ],
    ids=["no such piece", "twice", "short digest", "withdrawn", "phase", "too many"],
)
def test_an_announcement_out_of_bounds_ends_the_link(
    update: pool.StateUpdate, hostile: Hostile, connect: Connect
) -> None:
    talk = connect(hostile(WatchState=lambda real, request, context: iter([update])))
    error = talk.told.next("closed")[1]
    assert isinstance(error, MismatchError)
    assert error.reason == "protocol"


def test_generations_do_not_run_backwards(hostile: Hostile, connect: Connect) -> None:
    updates = [pool.StateUpdate(phase=1, generation=9), pool.StateUpdate(phase=1, generation=3)]
    talk = connect(hostile(WatchState=lambda real, request, context: iter(updates)))
    assert talk.told.next("closed")[1].reason == "protocol"


@pytest.mark.parametrize(
    ("outline", "reason"),
    [(b"", "protocol"), (b"x" * 10, "protocol"), (b"x" * 10_000_000, "protocol"), (None, "catalog")],
    ids=["empty", "short", "long", "other bytes"],
)
def test_an_outline_that_is_not_the_announced_one_is_refused(
    outline: bytes | None, reason: str, hostile: Hostile, connect: Connect, shard: Shard
) -> None:
    sent = bytes(len(shard.catalog.encode())) if outline is None else outline

    def chunks(real: Any, request: Any, context: Any) -> Iterator[pool.OutlineChunk]:
        for start in range(0, len(sent), 100_000):
            yield pool.OutlineChunk(data=sent[start : start + 100_000])

    talk = connect(hostile(GetOutline=chunks))
    talk.told.next("opened")
    talk.link.request_outline()
    error = talk.told.next("outline", "closed")[1]
    assert isinstance(error, MismatchError)
    assert error.reason == reason


def test_a_lease_of_another_process_is_not_used(hostile: Hostile, connect: Connect, shard: Shard) -> None:
    def acquire(real: Any, request: Any, context: Any) -> pool.LeaseResponse:
        response = real(request, context)
        response.instance = "0" * 32
        return response

    talk = connect(hostile(AcquireLease=acquire))
    talk.told.next("opened")
    talk.link.request(0, shard.destination(0)[1])
    assert talk.told.next("landed", "failed")[0] == "failed"
    assert talk.told.next("closed")[1].reason == "instance"


@pytest.mark.parametrize("said", ["", "-5", "99999999999999999999", "1e9", "\u0663"])
def test_when_to_come_back_is_bounded(said: str, hostile: Hostile, connect: Connect, shard: Shard) -> None:
    def acquire(real: Any, request: Any, context: grpc.ServicerContext) -> pool.LeaseResponse:
        if said.isascii():
            context.set_trailing_metadata((("retry-after-ms", said),))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

    talk = connect(hostile(AcquireLease=acquire))
    talk.told.next("opened")
    talk.link.request(0, shard.destination(0)[1])
    error: ShardpoolError = talk.told.next("landed", "failed")[2]
    assert isinstance(error, PeerBusyError)
    assert 0 < error.retry_after <= 60
