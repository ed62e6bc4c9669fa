"""The stream transport, verified, against a bare gRPC stream of the same bytes, between two processes, in one run.

    python tests/bench/stream_ratio.py [--mebibytes 1024] [--rounds 5] [--json]

`bare` is the least that gRPC for Python can do: 1 MiB messages made from the same mapped memory, received, and thrown away. `copied` also
puts the bytes where they belong, and `verified` is a whole pull: pieces asked for, sent under a lease, written, hashed, compared with
what the source announced. The rounds alternate, so that other load on the machine meets all of them.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import queue
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from shardpool.discovery.base import Endpoint
from shardpool.model.catalog import Catalog, Extent, FileEntry
from shardpool.settings import Settings
from shardpool.source.server import PoolServer
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Party, Phase
from shardpool.transport.channel import channel_options, open_channel, server_options
from shardpool.transport.grpc_link import GrpcTransport
from shardpool.transport.stream import StreamMover

MIB = 1024 * 1024
AHEAD = 8
"""Pieces asked for ahead, as the scheduler does on a fast link."""


def _party(name: str) -> Party:
    return Party(os.urandom(16).hex(), "0123456789abcdef", "{}", 0, 1, "whole", name)


def _catalog(size: int) -> Catalog:
    return Catalog("whole", 1, 0, (FileEntry("model.bin", size),), (Extent(0, 0, 0, size),))


def _mapped(size: int, fill: bytes) -> mmap.mmap:
    """Memory that is there: every page is touched."""
    memory = mmap.mmap(-1, size)
    for start in range(0, size, len(fill)):
        memory[start : start + len(fill)] = fill[: min(len(fill), size - start)]
    return memory


class _Contents:
    def __init__(self, catalog: Catalog, memory: mmap.mmap) -> None:
        self._catalog = catalog
        self._view = memoryview(memory)

    def contents(self, piece: int) -> Sequence[memoryview]:
        start = self._catalog.piece_start(piece)
        return [self._view[start : start + self._catalog.piece_length(piece)]]


def serve(size: int) -> None:
    """The source's process: prints its two ports and serves until its standard input closes."""
    from blake3 import blake3

    catalog = _catalog(size)
    memory = _mapped(size, os.urandom(3 * MIB + 4096))
    contents = _Contents(catalog, memory)
    state = ReplicaState(_party("source"), transports=("stream",))
    state.set_outline(catalog)
    for piece in range(catalog.pieces):
        state.hold(piece, blake3(contents.contents(piece)[0]).digest())
    state.set_phase(Phase.READY)
    server = PoolServer(Settings(bind_host="127.0.0.1"), state, contents, port=0)
    server.start()

    def stream(_: bytes, __: grpc.ServicerContext) -> Any:
        view = memoryview(memory)
        for start in range(0, size, MIB):
            yield bytes(view[start : start + MIB])

    bare = grpc.server(ThreadPoolExecutor(4), options=server_options())
    handler = grpc.unary_stream_rpc_method_handler(stream)
    bare.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", {"Bare": handler}),))
    port = bare.add_insecure_port("127.0.0.1:0")
    bare.start()
    print(server.port, port, flush=True)
    sys.stdin.read()
    bare.stop(0).wait()
    server.stop()


class _Puller:
    """A Listener that keeps `AHEAD` pieces under way until every piece has landed with the announced digest."""

    def __init__(self, catalog: Catalog, room: memoryview) -> None:
        self._catalog = catalog
        self._room = room
        self._events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()

    def pull(self, transport: GrpcTransport, endpoint: Endpoint) -> None:
        """Open a link, take everything, close it."""
        link = transport.connect(endpoint, _party("receiver"), self)
        digests: dict[int, bytes] = {}
        waiting = list(range(self._catalog.pieces))[::-1]
        under_way = landed = 0
        while landed < self._catalog.pieces:
            while digests and waiting and under_way < AHEAD:
                piece = waiting.pop()
                start = self._catalog.piece_start(piece)
                link.request(piece, [self._room[start : start + self._catalog.piece_length(piece)]])
                under_way += 1
            event = self._events.get(timeout=60)
            if event[0] == "landed":
                if digests[event[1]] != event[2]:
                    raise SystemExit(f"piece {event[1]} differs from its digest")
                under_way, landed = under_way - 1, landed + 1
            elif event[0] == "updated":
                digests.update(event[1].added)
            elif event[0] != "opened":
                raise SystemExit(f"the pull failed: {event}")
        link.close()
        link.join(10)

    def opened(self, link: Any, info: Any) -> None:
        self._events.put(("opened",))

    def updated(self, link: Any, update: Any) -> None:
        self._events.put(("updated", update))

    def outline(self, link: Any, encoded: bytes) -> None:
        """Not asked for."""

    def progress(self, link: Any, piece: int, received: int) -> None:
        """Not measured."""

    def landed(self, link: Any, piece: int, digest: bytes | None) -> None:
        self._events.put(("landed", piece, digest))

    def failed(self, link: Any, piece: int, error: Exception) -> None:
        self._events.put(("failed", piece, error))

    def closed(self, link: Any, error: Exception | None) -> None:
        if error is not None:
            self._events.put(("closed", error))


def _bare(endpoint: Endpoint, size: int, room: memoryview | None) -> None:
    with open_channel(endpoint, Settings()) as channel:
        position = 0
        for message in channel.unary_stream("/bench/Bare")(b""):
            if room is not None:
                room[position : position + len(message)] = message
            position += len(message)
        if position != size:
            raise SystemExit(f"{position} bytes of {size} came")


def measure(size: int, rounds: int) -> dict[str, list[float]]:
    """Bytes per second of each contender, a value a round."""
    catalog = _catalog(size)
    room = memoryview(_mapped(size, bytes(MIB)))
    command = [sys.executable, __file__, "--serve", str(size)]
    rates: dict[str, list[float]] = {"bare": [], "copied": [], "verified": []}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as source:
        assert source.stdout is not None
        pool_port, bare_port = map(int, source.stdout.readline().split())
        pool, bare = Endpoint("127.0.0.1", pool_port), Endpoint("127.0.0.1", bare_port)
        transport = GrpcTransport(Settings(), [StreamMover()])
        contenders = {
            "bare": lambda: _bare(bare, size, None),
            "copied": lambda: _bare(bare, size, room),
            "verified": lambda: _Puller(catalog, room).pull(transport, pool),
        }
        for number in range(rounds + 1):
            for name, run in contenders.items():
                start = time.perf_counter()
                run()
                if number:  # the first round warms everything up
                    rates[name].append(size / (time.perf_counter() - start))
        transport.close()
        source.communicate("")
    return rates


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    rates = measure(options.mebibytes * MIB, options.rounds)
    ratios = [verified / bare for verified, bare in zip(rates["verified"], rates["bare"], strict=True)]
    result = {
        "mebibytes": options.mebibytes,
        "channel_options": len(channel_options()),
        "gigabytes_per_second": {name: round(statistics.median(values) / 1e9, 3) for name, values in rates.items()},
        "ratio_to_bare": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }
    if options.json:
        print(json.dumps(result))
        return
    for name, rate in result["gigabytes_per_second"].items():  # type: ignore[attr-defined]
        print(f"{name:10} {rate:6.3f} GB/s")
    print(f"verified / bare = {result['ratio_to_bare']} (target 0.8), each round: {result['ratios']}")


if __name__ == "__main__":
    main()
