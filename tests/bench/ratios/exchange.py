"""How long a receiver takes to know what a model of so many tensors is."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from netns.machine import BenchError

from ratios.replicas import MODEL, REVISION, Bench, remove
from ratios.table import Row
from shardpool.discovery.base import Endpoint
from shardpool.identity import pool_identity
from shardpool.model.catalog import Catalog
from shardpool.settings import Settings
from shardpool.swarm.state import Party
from shardpool.transport.channel import open_channel
from shardpool.transport.grpc_link import GrpcTransport
from shardpool.transport.stream import StreamMover
from shardpool.wire import p2p

SECTION = "Catalog exchange"
BYTES_PER_TENSOR = 256
REACH_MICROSECONDS = 4.0


def measure(bench: Bench, counts: Sequence[int], rounds: int) -> Iterator[Row]:
    """Handshake, outline, decoding, all checks: from the first packet to a catalog with the announced digest."""
    for count in counts:
        model = bench.checkpoint(count * BYTES_PER_TENSOR, tensors=count, files=2)
        source = bench.serve(seed=f"directory:{model}").wait()
        host, _, port = source.address.rpartition(":")
        settings = Settings(model=MODEL, revision=REVISION)
        taken = [_outline(settings, Endpoint(host, int(port)), count) for _ in range(rounds)]
        seconds = median(seconds for seconds, _ in taken)
        yield Row(
            SECTION,
            f"{count:,} tensors",
            seconds / count * 1e6,
            "us a tensor",
            REACH_MICROSECONDS if count >= 100_000 else None,
            note=f"{seconds * 1e3:.1f} ms for {taken[0][1] / 1e6:.2f} MB; connecting and handshake included",
        )
        yield Row(SECTION, f"{count:,} tensors, as ModelExpress asks", _manifest(settings, Endpoint(host, int(port)), count), "ms",
                  note="GetTensorManifest in one message; no size limit met")  # fmt: skip
        source.stop()
        remove(model.parent)


class _Asking:
    """A Listener that asks for the outline."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def opened(self, link: Any, info: Any) -> None:
        self.events.put(("opened", info))

    def outline(self, link: Any, encoded: bytes) -> None:
        self.events.put(("outline", encoded))

    def closed(self, link: Any, error: Exception | None) -> None:
        self.events.put(("closed", error))

    def updated(self, link: Any, update: Any) -> None:
        """Not of interest."""

    progress = landed = failed = updated

    def expect(self, what: str) -> Any:
        kind, content = self.events.get(timeout=60)
        if kind != what:
            raise BenchError(f"expected {what}, got {kind}: {content}")
        return content


def _outline(settings: Settings, endpoint: Endpoint, count: int) -> tuple[float, int]:
    identity = pool_identity(settings)
    party = Party("ab" * 16, identity.mx_source_id(), identity.canonical_json(), 0, 1, "whole", "receiver")
    transport = GrpcTransport(settings, [StreamMover()])
    listener = _Asking()
    started = time.perf_counter()
    link = transport.connect(endpoint, party, listener)
    announced = listener.expect("opened").party.catalog_digest
    link.request_outline()
    encoded = listener.expect("outline")
    catalog = Catalog.decode(encoded)
    if catalog.digest != announced or len(catalog.tensors) != count:
        raise BenchError(f"the outline of {len(catalog.tensors)} tensors is not the one announced, of {count}")
    seconds = time.perf_counter() - started
    transport.close()
    return seconds, len(encoded)


def _manifest(settings: Settings, endpoint: Endpoint, count: int) -> float:
    request = p2p.GetTensorManifestRequest(mx_source_id=pool_identity(settings).mx_source_id())
    with open_channel(endpoint, settings) as channel:
        call = channel.unary_unary(
            "/model_express.p2p.WorkerService/GetTensorManifest",
            request_serializer=p2p.GetTensorManifestRequest.SerializeToString,
            response_deserializer=p2p.GetTensorManifestResponse.FromString,
        )
        started = time.perf_counter()
        answer = call(request, timeout=60)
        milliseconds = (time.perf_counter() - started) * 1e3
    if len(answer.tensors) != count:
        raise BenchError(f"the manifest lists {len(answer.tensors)} tensors of {count}")
    return milliseconds
