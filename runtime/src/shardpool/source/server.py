"""The gRPC server of one rank: the ModelExpress contract, the pool's own service and health, on one port."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

from shardpool.errors import ConfigurationError
from shardpool.log import logger
from shardpool.settings import Settings
from shardpool.source.drain import drain
from shardpool.source.egress import EgressMeter, TokenBucket
from shardpool.source.health_service import HealthService
from shardpool.source.leases import Leases
from shardpool.source.pool_service import PieceContents, PoolService
from shardpool.source.publication import Publication
from shardpool.source.slots import Slots
from shardpool.source.worker_service import LEASE_SECONDS, MOST_LEASES, WorkerService
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Phase
from shardpool.transport.channel import server_credentials, server_options
from shardpool.transport.mover import NixlOffer

WATCHERS = 256
"""Calls of WatchState, GetOutline and Watch at once; the swarm keeps neighbourhoods far smaller."""
SHORT_CALLS = 64
"""Other calls under way at once; more are answered RESOURCE_EXHAUSTED, which keeps a flood out of memory."""
DESCRIPTORS = 16_384
_BYTES_PER_MEGABIT = 1_000_000 / 8
_STOP_SECONDS = 5.0
_LOG = logger(__name__)


class PoolServer:
    """Serves one rank. Made before the first piece is there: a replica that is still filling answers and serves what it has.

    Args:
        settings: addresses, limits, certificates.
        state: what this replica is and holds; the server registers its load there.
        contents: the store of pieces; may be given later by `serve_from` (the outline comes first).
        local_rank: the port is the worker's base port plus this.
        port: overrides the port; 0 picks a free one.
        nixl: offers the shard's memory over NIXL; None without NIXL.
    """

    def __init__(
        self,
        settings: Settings,
        state: ReplicaState,
        contents: PieceContents | None = None,
        *,
        local_rank: int = 0,
        port: int | None = None,
        nixl: Callable[[], NixlOffer | None] | None = None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._contents = contents
        self._nixl = nixl
        self._wanted_port = settings.worker_grpc_port + local_rank if port is None else port
        self._port = 0
        self._publication: Publication | None = None
        self._stopping = threading.Event()
        self._stop_once = threading.Lock()
        self.leases = Leases(settings.lease_seconds, settings.max_readers)
        self.contract_leases = Leases(LEASE_SECONDS, MOST_LEASES)
        self.egress = TokenBucket(settings.egress_limit_mbps * _BYTES_PER_MEGABIT)
        self.meter = EgressMeter()
        watchers = Slots(WATCHERS, "watchers")
        self._pool_service = PoolService(
            state,
            contents=lambda: self._contents,
            leases=self.leases,
            egress=self.egress,
            meter=self.meter,
            nixl=self._offer,
            watchers=watchers,
            stopping=self._stopping,
        )
        worker_service = WorkerService(
            lambda: self._publication, lambda: state.phase is Phase.DRAINING, self.contract_leases
        )
        health_service = HealthService(state, lambda: self._publication is not None, watchers, self._stopping)
        self._handlers = [service.handler() for service in (self._pool_service, worker_service, health_service)]
        calls = WATCHERS + 4 * settings.max_readers + SHORT_CALLS
        self._threads = ThreadPoolExecutor(calls, thread_name_prefix="grpc")
        self._server = grpc.server(
            self._threads, handlers=self._handlers, options=server_options(), maximum_concurrent_rpcs=calls
        )

    @property
    def port(self) -> int:
        """The bound port; 0 before `start`."""
        return self._port

    def start(self) -> int:
        """Bind and serve; the port. Raises ConfigurationError when the port cannot be bound or certificates cannot be read."""
        credentials = server_credentials(self._settings)
        _raise_descriptor_limit()
        host = self._settings.bind_host or "::"
        address = f"[{host}]:{self._wanted_port}" if ":" in host else f"{host}:{self._wanted_port}"
        try:
            self._port = (
                self._server.add_secure_port(address, credentials)
                if credentials
                else self._server.add_insecure_port(address)
            )
        except RuntimeError as error:
            raise ConfigurationError(
                f"{address} cannot be bound: {str(error).splitlines()[0]}",
                hint="another process may hold the port; set MX_WORKER_GRPC_PORT or SHARDPOOL_BIND_HOST",
            ) from error
        self._state.set_load(self._pool_service.load)
        self._server.start()
        _LOG.info("serving on %s", address if self._wanted_port else f"{address.rsplit(':', 1)[0]}:{self._port}")
        return self._port

    def serve_from(self, contents: PieceContents) -> None:
        """Serve pieces from this store from now on."""
        self._contents = contents

    def set_nixl(self, nixl: Callable[[], NixlOffer | None] | None) -> None:
        """Offer the shard's memory over NIXL by this from now on."""
        self._nixl = nixl

    def publish(self, publication: Publication | None) -> None:
        """Tell receivers of the ModelExpress contract where the tensors are; None takes it back."""
        self._publication = publication
        self._state.wake()

    def set_egress_limit(self, megabits_per_second: float) -> None:
        """Change the cap on what is sent; 0 is none."""
        self.egress.set_rate(megabits_per_second * _BYTES_PER_MEGABIT)

    def drain(self, grace: float) -> bool:
        """Say not ready, refuse new reads, let the leased ones finish within `grace` seconds; whether they did."""
        return drain(self._state, (self.leases, self.contract_leases), grace)

    def stop(self) -> None:
        """End every call and join every thread. May be repeated."""
        with self._stop_once:
            self._stopping.set()
            self.leases.revoke_all()
            self._state.wake()
            self.egress.wake()
            self._server.stop(0).wait(_STOP_SECONDS)
            self._threads.shutdown(wait=True)
            self._pool_service.close()

    def _offer(self) -> NixlOffer | None:
        return self._nixl() if self._nixl is not None else None


def _raise_descriptor_limit() -> None:
    """A source meets many connections at once; the soft limit of a login shell is for other programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
