"""One rank's life: identify, find, agree, fetch, commit, serve. The process that `node` starts for each local rank."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardpool import __version__, control, heap
from shardpool.audit import Auditor
from shardpool.control import Pipe
from shardpool.discovery import make_discovery
from shardpool.discovery.base import Endpoint
from shardpool.errors import IntegrityError, ShardpoolError, TransportError
from shardpool.identity import pool_identity
from shardpool.log import logger, set_up_logging
from shardpool.model.base import Region
from shardpool.model.catalog import Catalog
from shardpool.model.directory import ModelDirectory
from shardpool.model.dtypes import torch_name
from shardpool.model.store import ShardStore
from shardpool.seed import make_seed
from shardpool.settings import Settings
from shardpool.source.publication import Publication, PublishedTensor
from shardpool.source.server import PoolServer
from shardpool.swarm.driver import Driver, LoadSummary
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Party, Phase
from shardpool.transport.choice import choose_transport
from shardpool.transport.grpc_link import GrpcTransport
from shardpool.transport.mover import PieceMover
from shardpool.transport.stream import StreamMover

if TYPE_CHECKING:
    from shardpool.transport.nixl_source import NixlSource

SWITCH_SECONDS = 0.05
LEAVE_SECONDS = 10.0  # beyond the drain, in which a rank closes what it holds
LOG = logger("replica")  # this module runs as __main__


class Replica:
    """The process of one rank.

    Args:
        settings: of the pod.
        rank: the global rank.
        staying: serve while filling and after; else only receive.
        tell: sends a message to the node.
    """

    def __init__(self, settings: Settings, rank: int, *, staying: bool, tell: Callable[..., None]) -> None:
        self._settings = settings
        self._rank = rank
        self._tell = tell
        self._started = time.monotonic()
        self._committed = threading.Event()
        self._leaving = threading.Event()
        self._store: ShardStore | None = None
        self._nixl: NixlSource | None = None
        self._summary: LoadSummary | None = None
        self._damage = ""
        self._audit_failures = 0
        self._directory = ModelDirectory(Path(settings.directory))
        self._seed = make_seed(settings)
        self._discovery = make_discovery(settings, rank)
        self._transport_name, why = choose_transport(settings)
        LOG.info("rank %d: transport %s (%s)", rank, self._transport_name, why)
        identity = pool_identity(settings)
        self._local_rank = rank - settings.global_first_rank
        port = settings.worker_grpc_port + self._local_rank
        self.state = ReplicaState(
            Party(
                instance=secrets.token_hex(16),
                mx_source_id=identity.mx_source_id(),
                identity_json=identity.canonical_json(),
                rank=rank,
                world=settings.world,
                layout=settings.layout,
                endpoint=Endpoint(settings.worker_host, port).target if settings.worker_host else "",
            ),
            transports=("nixl", "stream") if self._transport_name == "nixl" else ("stream",),
            reads_seed=self._seed is not None,
        )
        self._server = PoolServer(settings, self.state, local_rank=self._local_rank) if staying else None
        movers: list[PieceMover] = [StreamMover()]
        if self._transport_name == "nixl":
            from shardpool.transport.nixl import NixlMover

            movers.insert(0, NixlMover(settings))
        self._transport = GrpcTransport(settings, movers)
        self._driver = Driver(
            transport=self._transport,
            discovery=self._discovery,
            seed=self._seed,
            make_store=self._make_store,
            state=self.state,
            options=SwarmOptions.of(settings, rank, passes_on=staying),
            catalog=self._directory.saved_catalog(rank) if self._directory.is_committed else None,
        )

    def run(self) -> None:
        """Load, tell the node, serve until told to leave. Raises the ShardpoolError that ended the load."""
        try:
            if self._server is not None:
                self._server.start()
            self._tell(control.FILLING, port=self._server.port if self._server else 0)
            self._summary = self._driver.run(self._started + self._settings.deadline_seconds)
            heap.release()
            LOG.info("rank %d: %s", self._rank, self._summary.line())
            self._tell(
                control.COMPLETE,
                summary=self._summary.as_dict(),
                sha256=self._published_sha256(),
            )
            self._committed.wait()  # the node bounds this: it ends us when it cannot commit
            if self._server is not None and not self._leaving.is_set():
                self._serve(self._server)
        finally:
            self._close()

    def commit(self) -> None:
        """The node made the directory visible: serve from it."""
        self._committed.set()

    def leave(self) -> None:
        """End the load, or drain and leave."""
        self._leaving.set()
        self._committed.set()
        self._driver.stop()

    def forget(self, paths: Iterable[str]) -> None:
        """Do not count the pieces of some files as verified at the next start."""
        store = self._store
        if store is not None:
            for path in paths:
                store.forget_file(path)

    def limit_egress(self, megabits_per_second: float) -> None:
        """Change the cap on what is sent; 0 is none."""
        if self._server is not None:
            self._server.set_egress_limit(megabits_per_second)

    def snapshot(self) -> Mapping[str, Any]:
        """Status and metrics, as the node shows them."""
        return {"status": self._status(), "metrics": list(self._metrics())}

    # Steps

    def _make_store(self, catalog: Catalog) -> ShardStore:
        self._store = _ServedStore(self._directory, catalog, self._on_open)
        return self._store

    def _on_open(self, store: ShardStore) -> None:
        """The files are mapped: what is verified may be served from now on."""
        store.prefault()
        if self._server is None:
            return
        self._server.serve_from(store)
        if self._transport_name == "nixl" or self._settings.nixl_listener:
            self._nixl = self._offer_nixl(store)
            if self._nixl is not None:
                self._server.set_nixl(self._nixl.offer)

    def _offer_nixl(self, store: ShardStore) -> NixlSource | None:
        from shardpool.transport.nixl_source import NixlSource

        port = self._settings.metadata_port + self._local_rank if self._settings.nixl_listener else None
        try:
            return NixlSource(store.regions(), address=self._settings.worker_host, listen_port=port)
        except TransportError as error:
            LOG.warning("rank %d: not served over NIXL: %s", self._rank, error)
            self.state.set_transports(("stream",))
            return None

    def _serve(self, server: PoolServer) -> None:
        """From committed to drained."""
        store = self._store
        assert store is not None
        store.seal()
        auditor = Auditor(self.state, store, self._settings.audit_interval_seconds, self._on_damage)
        try:
            server.publish(self._publication(store))
            self.state.set_phase(Phase.READY)
            self._tell(control.SERVING)
            self._leaving.wait()  # serving has no deadline
            if self._damage:
                raise IntegrityError(self._damage, hint="a restart hashes every piece again and fetches what differs")
            server.publish(None)
            if not server.drain(self._settings.drain_seconds):
                LOG.warning(
                    "rank %d: leased reads were still running after %g s", self._rank, self._settings.drain_seconds
                )
        finally:
            auditor.close()

    def _on_damage(self, piece: int) -> None:
        self._audit_failures += 1
        self._damage = f"piece {piece} of rank {self._rank} is no longer what was verified"
        self.state.set_phase(Phase.FILLING)  # not ready before the node hears of it
        self._leaving.set()

    def _publication(self, store: ShardStore) -> Publication:
        """What receivers of the ModelExpress contract may know."""
        return Publication(
            mx_source_id=self.state.party().mx_source_id,
            worker_rank=self._rank,
            tensors=lambda: _tensors(store.catalog, store.regions()),
            metadata_endpoint=self._nixl.metadata_endpoint if self._nixl else "",
            agent_name=self._nixl.agent_name if self._nixl else "",
        )

    def _published_sha256(self) -> Mapping[str, str]:
        """SHA-256 by file, of the files of this shard, as far as the settings want them and the publisher states them."""
        wanted = self._settings.verify_sha256
        if self._seed is None or self._store is None or wanted == "never":
            return {}
        if wanted == "auto" and not self._driver.summary().bytes_from.get("seed"):
            return {}
        ours = {entry.path for entry in self._store.catalog.files}
        return {file.path: file.sha256 for file in self._seed.files() if file.sha256 and file.path in ours}

    def _close(self) -> None:
        """Leases end first, then what they read from, then the memory."""
        self.state.set_phase(Phase.DRAINING)
        self._transport.close()
        if self._server is not None:
            self._server.stop()
        if self._nixl is not None:
            self._nixl.close()
        self._discovery.close()
        if self._seed is not None:
            self._seed.close()
        if self._store is not None:
            self._store.close()

    # Pages

    def _status(self) -> Mapping[str, Any]:
        party, catalog, holdings = self.state.party(), self.state.catalog, self.state.holdings
        verified = self._verified_bytes()
        load = self.state.load()
        complete = holdings is not None and holdings.complete
        return {
            "phase": self.state.phase.name.lower(),
            "instance": party.instance,
            "endpoint": party.endpoint,
            "port": self._server.port if self._server else 0,
            "transport": self._transport_name,
            "catalog_digest": party.catalog_digest.hex(),
            "content_digest": holdings.content_digest().hex() if holdings is not None and complete else "",
            "shard_bytes": catalog.size if catalog else 0,
            "verified_bytes": verified,
            "pieces": catalog.pieces if catalog else 0,
            "verified_pieces": len(holdings) if holdings is not None else 0,
            "claims": len(self.state.claims),
            "readers": load.readers,
            "max_readers": load.max_readers,
            "egress_bytes_per_second": load.egress,
            "served_bytes": self._server.meter.total if self._server else 0,
            "load": self._driver.summary().as_dict(),
        }

    def _verified_bytes(self) -> int:
        catalog, holdings = self.state.catalog, self.state.holdings
        if catalog is None or holdings is None:
            return 0
        if holdings.complete:
            return catalog.size
        last = catalog.pieces - 1
        short = catalog.piece_size - catalog.piece_length(last) if last in holdings else 0
        return len(holdings) * catalog.piece_size - short

    def _metrics(self) -> Iterable[tuple[str, float, Mapping[str, str]]]:
        """(name, value, labels) of each sample; the node adds the rank."""
        settings, catalog, summary = self._settings, self.state.catalog, self._driver.summary()
        info = {
            "model": settings.model,
            "revision": settings.revision,
            "mx_source_id": self.state.party().mx_source_id,
            "layout": settings.layout,
            "version": __version__,
        }
        yield "shardpool_info", 1, info
        yield "shardpool_transport_info", 1, {"transport": self._transport_name}
        yield "shardpool_shard_bytes", catalog.size if catalog else 0, {}
        yield "shardpool_verified_bytes", self._verified_bytes(), {}
        for origin, count in summary.bytes_from.items():
            yield "shardpool_bytes_total", count, {"origin": origin}
        yield "shardpool_pieces_refetched_total", summary.refetched, {}
        for reason, count in summary.rejections.items():
            yield "shardpool_peers_rejected_total", count, {"reason": reason}
        for reason, count in summary.fallbacks.items():
            yield "shardpool_fallbacks_total", count, {"reason": reason}
        if self._summary is not None:
            yield "shardpool_pull_seconds", self._summary.seconds, {}
        yield "shardpool_audit_failures_total", self._audit_failures, {}
        if self._server is not None:
            yield "shardpool_served_bytes_total", self._server.meter.total, {}
            yield "shardpool_leases", len(self._server.leases), {}
            yield "shardpool_readers", self.state.load().readers, {}


class _ServedStore(ShardStore):
    """A store that says when its files are mapped."""

    def __init__(self, directory: ModelDirectory, catalog: Catalog, opened: Callable[[ShardStore], None]) -> None:
        super().__init__(directory, catalog)
        self._opened = opened

    def open(self) -> dict[int, bytes]:
        """As `ShardStore.open`."""
        held = super().open()
        self._opened(self)
        return held


def _tensors(catalog: Catalog, regions: Sequence[Region]) -> Iterable[PublishedTensor]:
    """Whole tensors of the shard with their addresses. One that was cut (`striped`) belongs to no rank alone and is left out."""
    addresses = {
        (extent.file, extent.offset): (extent.length, region.address)
        for extent, region in zip(catalog.extents, regions, strict=True)
    }
    starts: dict[int, list[int]] = {}
    for file, offset in sorted(addresses):
        starts.setdefault(file, []).append(offset)
    for tensor in catalog.tensors:
        if not tensor.length:
            yield PublishedTensor(tensor.name, 0, 0, torch_name(tensor.dtype))
            continue
        begins = starts[tensor.file]
        offset = begins[bisect_right(begins, tensor.offset) - 1]
        length, address = addresses[tensor.file, offset]
        if tensor.offset + tensor.length <= offset + length:
            yield PublishedTensor(
                tensor.name, address + tensor.offset - offset, tensor.length, torch_name(tensor.dtype)
            )


def main() -> int:
    """The process: messages of the node on standard input, answers on standard output. Returns the exit code."""
    # Standard output is the conversation with the node; what a library prints goes where the log goes.
    outgoing = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the node decides
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe = Pipe(sys.stdin, outgoing)
    messages = pipe.receive()
    start = next(messages, None)
    if start is None:
        return 0
    settings = Settings(**start["settings"])
    set_up_logging(settings.log_level, settings.log_format)
    heap.keep()
    # Threads here wait for sockets and hash without the interpreter's lock; handing it over 200 times a second only costs.
    sys.setswitchinterval(SWITCH_SECONDS)
    codes: list[int] = []
    try:
        replica = Replica(settings, int(start["rank"]), staying=bool(start["staying"]), tell=pipe.send)
    except ShardpoolError as error:
        return _report(pipe, error)

    def live() -> None:
        try:
            replica.run()
            codes.append(0)
        except ShardpoolError as error:
            codes.append(_report(pipe, error))
        except BaseException:
            LOG.exception("rank %s ended unexpectedly", start["rank"])
            codes.append(1)
        finally:
            # Reading standard input cannot be interrupted, so the process ends here, everything being closed.
            logging.shutdown()
            os._exit(codes[-1] if codes else 1)

    thread = threading.Thread(target=live, name="life")
    thread.start()
    for message in messages:
        kind = message["kind"]
        if kind == control.SNAPSHOT:
            pipe.send(control.SNAPSHOT, id=message["id"], **replica.snapshot())
        elif kind == control.SERVE:
            replica.commit()
        elif kind == control.LIMIT:
            replica.limit_egress(message["mbps"])
        elif kind == control.FORGET:
            replica.forget(message["paths"])
        elif kind == control.DRAIN:
            replica.leave()
    replica.leave()  # the node has gone
    thread.join(settings.drain_seconds + LEAVE_SECONDS)
    return 1


def _report(pipe: Pipe, error: ShardpoolError) -> int:
    pipe.send(control.FAILED, error=type(error).__name__, text=str(error), exit_code=error.exit_code)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
