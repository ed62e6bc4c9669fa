"""`grpc.health.v1`: "" is SERVING when this rank is ready; a service's name is SERVING when that service has something to say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import grpc

from shardpool.source.answers import CallError, service_handler
from shardpool.source.slots import Slots
from shardpool.source.worker_service import SERVICE as WORKER_SERVICE
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Phase
from shardpool.wire import health
from shardpool.wire.descriptors import methods

SERVICE = "grpc.health.v1.Health"
POOL_SERVICE = "shardpool.v1.PoolService"
_LOOK_AGAIN_SECONDS = 10.0
_Status = health.HealthCheckResponse


class HealthService:
    """Health by the phase of the replica and by what is published.

    Args:
        state: the replica's state, whose `wake` must follow every change of `published`.
        published: whether a manifest is published.
        watchers: bounds the calls of Watch.
    """

    def __init__(
        self, state: ReplicaState, published: Callable[[], bool], watchers: Slots, stopping: threading.Event
    ) -> None:
        self._state = state
        self._published = published
        self._watchers = watchers
        self._stopping = stopping

    def handler(self) -> grpc.GenericRpcHandler:
        """What a gRPC server is given."""
        return service_handler(
            SERVICE, methods(health.DESCRIPTOR, "Health"), {"Check": self.check, "Watch": self.watch}
        )

    def check(self, request: health.HealthCheckRequest, _: grpc.ServicerContext) -> health.HealthCheckResponse:
        """The state now; NOT_FOUND for a service that is not here."""
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            raise CallError(grpc.StatusCode.NOT_FOUND, "unknown service")
        return _Status(status=status)

    def watch(
        self, request: health.HealthCheckRequest, context: grpc.ServicerContext
    ) -> Iterator[health.HealthCheckResponse]:
        """The state now and after each change."""
        with self._watchers.take():
            context.add_callback(self._state.wake)
            told = None
            while context.is_active() and not self._stopping.is_set():
                version = self._state.version
                status = self._status(request.service)
                if status != told:
                    told = status
                    yield _Status(status=status)
                self._state.wait(version, _LOOK_AGAIN_SECONDS)

    def _status(self, service: str) -> health.HealthCheckResponse.ServingStatus:
        phase = self._state.phase
        serving = {
            "": phase is Phase.READY,
            POOL_SERVICE: phase is not Phase.DRAINING,
            WORKER_SERVICE: phase is not Phase.DRAINING and self._published(),
        }
        if service not in serving:
            return _Status.SERVICE_UNKNOWN
        return _Status.SERVING if serving[service] else _Status.NOT_SERVING
