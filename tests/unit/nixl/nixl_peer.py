"""One end of a transfer as a process of its own, told what to do by JSON lines: `python nixl_peer.py source|receiver`.

UCX reads its environment once a process and its faults are those of whole processes (killed, stopped, restarted), so each end is one.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from blake3 import blake3

from shardpool.discovery.base import Endpoint
from shardpool.settings import Settings
from shardpool.swarm.state import Party, PeerInfo, Phase
from shardpool.transport.mover import Grant, NixlOffer, OfferedRegion
from shardpool.transport.nixl import NixlMover, NixlReader
from shardpool.transport.nixl_source import NixlSource
from shardpool.wire import pool
from shardpool.wire.descriptors import methods


def say(**words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def lease_server(instance: str) -> tuple[grpc.Server, int]:
    """The one call of a source that a reader makes: it renews leases of its own instance only."""

    def renew(request: Any, context: grpc.ServicerContext) -> Any:
        if request.instance != instance:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"instance mismatch: this is {instance}")
        return pool.RenewResponse(ttl_ms=30_000)

    method = methods(pool.DESCRIPTOR, "PoolService")["RenewLease"]
    handler = grpc.unary_unary_rpc_method_handler(
        renew, request_deserializer=method.request.FromString, response_serializer=method.response.SerializeToString
    )
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("shardpool.v1.PoolService", {"RenewLease": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def source(paths: list[str]) -> None:
    """Offer files, one after the other, as a shard."""
    maps, regions, start = [], [], 0
    for path in paths:
        with Path(path).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
        maps.append(mapped)
        regions.append((start, len(mapped), address_of(mapped)))
        start += len(mapped)
    instance = os.urandom(16).hex()
    server, port = lease_server(instance)
    nixl = NixlSource(regions, address="127.0.0.1")
    offer = nixl.offer()
    say(
        event="offer",
        instance=instance,
        port=port,
        agent_name=offer.agent_name,
        metadata=offer.metadata.hex(),
        regions=[[region.start, region.length, region.address] for region in offer.regions],
        size=start,
    )
    sys.stdin.readline()
    server.stop(None)
    nixl.close()
    say(event="closed")


def address_of(mapped: mmap.mmap) -> int:
    """Where a read-only mapping lies: ctypes takes writable buffers only, the C API takes any."""

    class Buffer(ctypes.Structure):
        _fields_ = (
            ("buf", ctypes.c_void_p),
            ("obj", ctypes.py_object),
            ("len", ctypes.c_ssize_t),
            ("rest", ctypes.c_byte * 128),
        )

    held = Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(held), 0)
    assert held.buf
    return int(held.buf)


class Sink:
    def __init__(self) -> None:
        self.received: dict[int, int] = {}
        self.lock = threading.Lock()

    def progress(self, piece: int, received: int) -> None:
        with self.lock:
            self.received[piece] = self.received.get(piece, 0) + received
        say(event="progress", piece=piece, received=self.received[piece])

    def landed(self, piece: int, digest: bytes | None) -> None:
        say(event="landed", piece=piece)

    def failed(self, piece: int, error: Exception) -> None:
        say(event="failed", piece=piece, error=type(error).__name__, text=str(error))

    def broken(self, error: Exception) -> None:
        say(event="broken", error=type(error).__name__, text=str(error))


def receiver() -> None:
    """Open readers and read pieces as told; report what the sink is told."""
    mover = NixlMover(Settings(worker_host="127.0.0.1", connect_seconds=5.0))
    readers: dict[str, NixlReader] = {}
    spans: dict[int, list[memoryview]] = {}
    for line in sys.stdin:
        order = json.loads(line)
        match order["do"]:
            case "open":
                if (reader := opened(mover, order)) is not None:
                    readers[order["name"]] = reader
            case "request":
                spans[order["piece"]] = [memoryview(mmap.mmap(-1, size)) for size in order["spans"]]
                readers[order["name"]].request(order["piece"], spans[order["piece"]])
            case "abandon":
                readers[order["name"]].abandon(order["piece"])
            case "wait until under way":
                while not readers[order["name"]].under_way:
                    threading.Event().wait(0.001)
                say(event="under way")
            case "digest":
                hasher = blake3()
                for span in spans[order["piece"]]:
                    hasher.update(span)
                say(event="digest", piece=order["piece"], digest=hasher.hexdigest())
            case "close":
                readers[order["name"]].close()
                say(event="closed")
    for reader in readers.values():
        reader.close()
    mover.close()
    say(event="ended", threads=sorted(thread.name for thread in threading.enumerate()))


def opened(mover: NixlMover, order: dict[str, Any]) -> NixlReader | None:
    offer = order["offer"]
    info = PeerInfo(
        party=Party(offer["instance"], "0" * 16, "{}", 0, 1, "whole", Endpoint("127.0.0.1", offer["port"]).target),
        phase=Phase.READY,
        piece_count=-(-offer["size"] // order["piece_size"]),
        piece_size=order["piece_size"],
        shard_size=offer["size"],
        outline_size=1,
        transports=("nixl",),
    )
    grant = Grant(
        lease_id="0" * 32,
        instance=offer["instance"],
        seconds=30.0,
        rate_limit=order.get("rate_limit", 0),
        nixl=NixlOffer(
            offer["agent_name"],
            bytes.fromhex(offer["metadata"]),
            tuple(OfferedRegion(*region) for region in offer["regions"]),
        ),
    )
    channel = grpc.insecure_channel(f"127.0.0.1:{offer['port']}")
    try:
        reader = mover.open(channel, info, grant, Sink())
    except Exception as error:
        say(event="refused", error=type(error).__name__, text=str(error))
        return None
    say(event="opened")
    return reader


if __name__ == "__main__":
    if sys.argv[1] == "source":
        source(sys.argv[2:])
    else:
        receiver()
