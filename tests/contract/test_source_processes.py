"""Sources and receivers as real processes that are killed, stopped and restarted."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from pool_peers import PATIENCE, Conversation, make_party, make_shard

from shardpool.discovery.base import Endpoint
from shardpool.errors import AbandonedError, PeerUnreachableError, TransportError
from shardpool.settings import Settings
from shardpool.transport.channel import open_channel
from shardpool.transport.client import PoolClient

TOOL = Path(__file__).parent.parent / "tools" / "serve_shard.py"
VANISHING = TOOL.with_name("vanishing_receiver.py")
PIECES, PIECE_SIZE = 6, 1 << 20
Connect = Callable[..., Conversation]


class Process:
    """A source's process."""

    def __init__(self, **options: Any) -> None:
        arguments = json.dumps({"pieces": PIECES, "piece_size": PIECE_SIZE, **options})
        self._child = subprocess.Popen(
            [sys.executable, str(TOOL), arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._child.stdout is not None
        self.endpoint = Endpoint("127.0.0.1", int(self._child.stdout.readline()))
        self.pid = self._child.pid

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def end(self) -> None:
        self._child.send_signal(signal.SIGCONT)
        try:
            self._child.communicate("", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


@pytest.fixture
def process() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(**options: Any) -> Process:
        started.append(Process(**options))
        return started[-1]

    yield start
    for source in started:
        source.end()


def _read_all(talk: Conversation) -> dict[int, bytearray]:
    shard = make_shard(PIECES, PIECE_SIZE)
    rooms = {}
    for piece in range(PIECES):
        rooms[piece], views = shard.destination(piece)
        talk.link.request(piece, views)
    return rooms


def test_a_killed_source_costs_the_pieces_in_flight(process: Callable[..., Process], connect: Connect) -> None:
    source = process(settings={"egress_limit_mbps": 40})
    talk = connect(source.endpoint)
    talk.told.next("opened")
    rooms = _read_all(talk)
    first = talk.told.next("landed")
    source.signal(signal.SIGKILL)
    assert isinstance(talk.told.next("closed")[1], PeerUnreachableError)
    settled = {event[1]: event[0] for event in talk.told.seen if event[0] in ("landed", "failed")}
    assert sorted(settled) == list(range(PIECES)), "a piece was not settled before the link closed"
    assert "failed" in settled.values()
    shard = make_shard(PIECES, PIECE_SIZE)
    assert bytes(rooms[first[1]]) == shard.piece(first[1])


def test_pieces_of_a_stopped_source_can_be_given_up(process: Callable[..., Process], connect: Connect) -> None:
    source = process(settings={"egress_limit_mbps": 40})
    talk = connect(source.endpoint)
    talk.told.next("opened")
    _read_all(talk)
    talk.told.next("landed")
    source.signal(signal.SIGSTOP)
    for piece in range(PIECES):
        talk.link.abandon(piece)
    talk.link.close()
    assert talk.told.next("closed")[1] is None
    for event in talk.told.seen:
        if event[0] == "failed":
            assert isinstance(event[2], AbandonedError)
    settled = [event[1] for event in talk.told.seen if event[0] in ("landed", "failed")]
    assert sorted(settled) == list(range(PIECES))


def test_a_source_restarted_at_its_address_is_met_as_another(process: Callable[..., Process], connect: Connect) -> None:
    source = process()
    settings = Settings()
    with open_channel(source.endpoint, settings) as channel:
        old = PoolClient(channel, "old").state(None, 5)
    source.signal(signal.SIGKILL)
    source.end()
    again = process(port=source.endpoint.port)
    assert again.endpoint == source.endpoint
    with open_channel(again.endpoint, settings) as channel:
        client = PoolClient(channel, "new")
        with pytest.raises(Exception, match="instance") as caught:
            client.acquire(make_party(), old, "stream", 5)
    assert getattr(caught.value, "reason", "") == "instance"
    assert connect(again.endpoint).told.next("opened")[1].party.instance != old.party.instance


def test_a_receiver_that_dies_costs_a_lease_and_nothing_more(process: Callable[..., Process]) -> None:
    """Receivers that vanish without a word: after the lease's time new ones are served, with no descriptor or thread left over."""
    source = process(settings={"lease_seconds": 1, "max_readers": 2, "egress_limit_mbps": 8})
    settings = Settings()

    def vanish() -> None:
        command = [sys.executable, str(VANISHING), str(source.endpoint.port), str(PIECES), str(PIECE_SIZE)]
        assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL

    def used() -> tuple[int, int]:
        return len(os.listdir(f"/proc/{source.pid}/fd")), len(os.listdir(f"/proc/{source.pid}/task"))

    vanish()
    descriptors, threads = used()
    for _ in range(2):
        vanish()
    with open_channel(source.endpoint, settings) as channel:
        client = PoolClient(channel, "source")
        info = client.state(None, 5)
        deadline = time.monotonic() + PATIENCE
        granted = None
        while granted is None:
            assert time.monotonic() < deadline, "the dead receivers' leases did not end"
            try:
                granted = client.acquire(make_party(), info, "stream", 5)
            except TransportError as error:
                threading.Event().wait(getattr(error, "retry_after", 0.1))
        client.release(granted, 5)
    after = used()
    assert after[0] <= descriptors + 2
    assert after[1] <= threads + 2


def test_a_thousand_idle_connections_and_a_flood_leave_the_source_serving(
    process: Callable[..., Process], connect: Connect
) -> None:
    source = process()
    address = (source.endpoint.host, source.endpoint.port)
    descriptors_before = len(os.listdir(f"/proc/{source.pid}/fd"))
    memory_before = _resident(source.pid)
    idle = [socket.create_connection(address, timeout=PATIENCE) for _ in range(400)]
    idle += [socket.create_connection(address, timeout=PATIENCE) for _ in range(400)]
    idle += [_http2(address) for _ in range(200)]
    stop = threading.Event()

    def flood() -> None:
        with grpc.insecure_channel(source.endpoint.target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            state = channel.unary_unary("/shardpool.v1.PoolService/GetState")
            reads = channel.stream_stream("/shardpool.v1.PoolService/ReadPieces")
            hanging = [reads(iter(stop.wait, True)) for _ in range(20)]  # calls that never ask for anything
            while not stop.is_set():
                calls = [state.future(b"") for _ in range(50)]
                for call in calls:
                    call.exception(timeout=PATIENCE)
            for read in hanging:
                read.cancel()

    flooders = [threading.Thread(target=flood) for _ in range(2)]
    for flooder in flooders:
        flooder.start()
    try:
        talk = connect(source.endpoint, connect_seconds=PATIENCE)
        talk.told.next("opened")
        shard = make_shard(PIECES, PIECE_SIZE)
        for piece in range(PIECES):
            while True:
                talk.link.request(piece, shard.destination(piece)[1])
                event = talk.told.next("landed", "failed")
                if event[0] == "landed":
                    break
                threading.Event().wait(getattr(event[2], "retry_after", 0.2))
            assert event == ("landed", piece, shard.digest(piece))
    finally:
        stop.set()
        for flooder in flooders:
            flooder.join(PATIENCE)
        for connection in idle:
            connection.close()
    assert _resident(source.pid) < memory_before + 200 * 1024 * 1024
    deadline = time.monotonic() + PATIENCE
    while len(os.listdir(f"/proc/{source.pid}/fd")) > descriptors_before + 16:
        assert time.monotonic() < deadline, "descriptors of closed connections are still open"
        threading.Event().wait(0.1)


def _http2(address: tuple[str, int]) -> socket.socket:
    """A connection that finished the HTTP/2 handshake and then idles."""
    connection = socket.create_connection(address, timeout=PATIENCE)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    return connection


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
