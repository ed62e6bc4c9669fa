"""`model_express.p2p.WorkerService` as ModelExpress 0.7.0 answers it: its status codes, its texts, the order of its checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol

import grpc

from shardpool.errors import LeaseError, PeerBusyError
from shardpool.source.answers import CallError, Handler, service_handler
from shardpool.source.leases import DrainingError, Leases
from shardpool.source.publication import Publication
from shardpool.wire import p2p
from shardpool.wire.descriptors import methods

SERVICE = "model_express.p2p.WorkerService"
LEASE_SECONDS = 270.0
"""As upstream: one handshake and one transfer of 120 s each, and 30 s."""
MOST_LEASES = 1024

_Code = grpc.StatusCode


class _TensorRequest(Protocol):
    mx_source_id: str
    worker_id: str

    def HasField(self, name: str) -> bool: ...


class WorkerService:
    """Answers the contract's calls from what is published now.

    Args:
        publication: what is published, None before publication (upstream then says "expected None").
        draining: whether the source is leaving.
        leases: the reads under way through PrepareTensorRead.
    """

    def __init__(
        self, publication: Callable[[], Publication | None], draining: Callable[[], bool], leases: Leases
    ) -> None:
        self._publication = publication
        self._draining = draining
        self._leases = leases

    def handler(self) -> grpc.GenericRpcHandler:
        """What a gRPC server is given."""
        calls: dict[str, Handler] = {
            "GetTensorManifest": self.get_tensor_manifest,
            "PrepareTensorRead": self.prepare_tensor_read,
            "ReleaseTensorRead": self.release_tensor_read,
            "GetArtifactManifestHeader": self.no_artifact,
            "GetArtifactManifestChunks": self.no_artifact,
            "PrepareArtifactChunk": self.no_artifact,
            "ReleaseArtifactChunk": self.no_artifact,
        }
        return service_handler(SERVICE, methods(p2p.DESCRIPTOR, "WorkerService"), calls)

    def get_tensor_manifest(self, request: p2p.GetTensorManifestRequest, _: grpc.ServicerContext) -> bytes:
        """Where the tensors are."""
        published = self._published(request)
        if self._draining():
            raise CallError(_Code.UNAVAILABLE, "tensor source is draining")
        return published.manifest

    def prepare_tensor_read(
        self, request: p2p.PrepareTensorReadRequest, _: grpc.ServicerContext
    ) -> p2p.PrepareTensorReadResponse:
        """The same, under a lease."""
        published = self._published(request)
        if self._draining():
            raise CallError(_Code.UNAVAILABLE, "tensor source is draining")
        manifest = p2p.GetTensorManifestResponse.FromString(published.manifest)
        try:
            lease = self._leases.acquire(holder="", transport="nixl")
        except DrainingError as error:
            raise CallError(_Code.UNAVAILABLE, "tensor source is draining") from error
        except PeerBusyError as error:
            raise CallError(_Code.RESOURCE_EXHAUSTED, str(error)) from error
        return p2p.PrepareTensorReadResponse(lease_id=lease.id, manifest=manifest)

    def release_tensor_read(
        self, request: p2p.ReleaseTensorReadRequest, _: grpc.ServicerContext
    ) -> p2p.ReleaseTensorReadResponse:
        """The read is over."""
        self._published(request)
        try:
            self._leases.release(request.lease_id)
        except LeaseError as error:
            text = f"tensor read lease not found or expired: {request.lease_id}"
            raise CallError(_Code.NOT_FOUND, text) from error
        return p2p.ReleaseTensorReadResponse()

    def no_artifact(self, request: object, _: grpc.ServicerContext) -> NoReturn:
        """Every artifact call: shardpool has none."""
        raise CallError(_Code.NOT_FOUND, "artifact manifest is not available for this worker")

    def _published(self, request: _TensorRequest) -> Publication:
        """What is published, if the request names it; the checks in upstream's order."""
        published = self._publication()
        ours = published.mx_source_id if published else None
        if not request.mx_source_id:
            raise CallError(_Code.INVALID_ARGUMENT, "mx_source_id is required for tensor reads")
        if published is None or request.mx_source_id != ours:
            text = f"mx_source_id mismatch: expected {ours}, got {request.mx_source_id}"
            raise CallError(_Code.FAILED_PRECONDITION, text)
        if request.HasField("worker_id") and request.worker_id != published.worker_id:
            text = f"worker_id mismatch: expected {published.worker_id}, got {request.worker_id}"
            raise CallError(_Code.FAILED_PRECONDITION, text)
        return published
