"""Taking tensors from a source of ModelExpress, by its own contract: manifest over gRPC, metadata and bytes over NIXL.

Stock receivers warn about tensors that only one side has and take "nothing matched" as success. Here a source has to have exactly the
tensors that the caller has buffers for, unless the caller says otherwise.
"""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardpool.discovery.attempts import attempts
from shardpool.discovery.base import Endpoint
from shardpool.discovery.k8s_service import ServiceDiscovery
from shardpool.errors import (
    DeadlineExceededError,
    MismatchError,
    NoSourceError,
    PeerUnreachableError,
    ShardpoolError,
    TensorMismatchError,
    TransportError,
)
from shardpool.identity import SourceIdentity
from shardpool.interop_buffers import HostBuffer, host_buffers
from shardpool.log import logger
from shardpool.settings import Settings

if TYPE_CHECKING:
    import grpc

    from shardpool.transport.nixl_agent import Agent, Run

LOG = logger(__name__)
CALL_SECONDS = 30.0
METADATA_SECONDS = 15.0
MOST_TENSORS = 2_000_000
LONGEST_NAME = 4096
_POLL_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class Received:
    """What `receive_tensors` did: how many tensors and bytes, from where, in how many seconds, and why other endpoints were not used."""

    tensors: int
    bytes: int
    endpoint: str
    seconds: float
    rejected: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Offered:
    """A tensor of a manifest."""

    name: str
    address: int
    size: int
    device: int
    dtype: str


@dataclass(frozen=True, slots=True)
class _Request:
    """What a caller wants, and until when (`deadline` is a `time.monotonic()` value)."""

    source_id: str
    rank: int
    wanted: Mapping[str, HostBuffer]
    ignore: frozenset[str]
    settings: Settings
    deadline: float

    def left(self, most: float) -> float:
        """Seconds that a step of `most` seconds still has."""
        return max(0.001, min(most, self.deadline - time.monotonic()))


@dataclass(frozen=True, slots=True)
class _Manifest:
    tensors: tuple[_Offered, ...]
    agent_name: str
    host: str
    port: int


def receive_tensors(
    source: str,
    identity: SourceIdentity | str,
    buffers: Mapping[str, Any],
    *,
    rank: int = 0,
    dtypes: Mapping[str, str] | None = None,
    ignore: Collection[str] = (),
    deadline_seconds: float = 300.0,
    settings: Settings | None = None,
) -> Received:
    """Fill named host buffers with the tensors of a ModelExpress source.

    Sources are tried by the contract's rules: every distinct endpoint of the address before any pause, 1 + `source_retries` rounds. When
    this raises, what the buffers hold is undefined, and nothing writes into them any more.

    While it runs, this process has NIXL's own listener open on a free port: its metadata exchange works no other way.

    Args:
        source: `HOST:PORT`, or a Service pattern as in `MX_K8S_SERVICE_PATTERN` (`{rank}` is replaced; without a port, the worker's base
            port + rank is taken).
        identity: of the model, or its `mx_source_id`.
        buffers: by tensor name, writable and contiguous: `bytearray`, `memoryview`, `mmap`, numpy arrays, torch tensors on the CPU.
        rank: the global rank whose tensors are wanted.
        dtypes: torch's names, such as `torch.bfloat16`, for buffers whose type cannot say it. A buffer of bytes without an entry here takes
            any dtype of its size.
        ignore: names of tensors that the source may have without a buffer for them.
        deadline_seconds: bound on all of it.
        settings: retries, pauses, base port, connect and stall timeouts; read from the environment when not given.

    Raises:
        ConfigurationError: a buffer cannot be written to, or the address is none.
        TensorMismatchError: a source of the right identity and rank has other tensors; lists every missing, unknown and differing one.
        MismatchError: only sources of another identity or rank answered.
        NoSourceError: no source could be used; names each and why.
        DeadlineExceededError: it took longer than `deadline_seconds`.
    """
    settings = settings or Settings.load()
    started = time.monotonic()
    deadline = started + deadline_seconds
    request = _Request(
        source_id=identity if isinstance(identity, str) else identity.mx_source_id(),
        rank=rank,
        wanted=host_buffers(buffers, dtypes or {}),
        ignore=frozenset(ignore),
        settings=settings,
        deadline=deadline,
    )
    discovery = ServiceDiscovery(source, rank, settings.worker_grpc_port)
    rejected: dict[str, ShardpoolError] = {}
    try:
        for endpoint in attempts(
            discovery.list,
            retries=settings.source_retries,
            backoff_seconds=settings.source_backoff_seconds,
            deadline=deadline,
        ):
            try:
                count, size = _receive(endpoint, request)
            except TensorMismatchError:
                raise
            except (TransportError, MismatchError) as error:
                LOG.warning("%s: %s", endpoint.target, error)
                rejected[endpoint.target] = error
                continue
            reasons = {target: str(error) for target, error in rejected.items()}
            return Received(count, size, endpoint.target, time.monotonic() - started, reasons)
        problem = discovery.list().problem if not rejected else ""
    finally:
        discovery.close()
    raise _nothing_worked(source, rejected, problem, late=time.monotonic() >= deadline, seconds=deadline_seconds)


def _nothing_worked(
    source: str, rejected: Mapping[str, ShardpoolError], problem: str, *, late: bool, seconds: float
) -> ShardpoolError:
    reasons = "; ".join(f"{target}: {error}" for target, error in rejected.items()) or problem or "no address"
    if late:
        return DeadlineExceededError(f"no tensors from {source} within {seconds:g} s ({reasons})")
    refusals = [error for error in rejected.values() if isinstance(error, MismatchError)]
    if refusals and len(refusals) == len(rejected):
        return MismatchError(
            f"every source behind {source} is another: {reasons}",
            reason=refusals[0].reason,
            hint="compare the identity's fields with the source's",
        )
    return NoSourceError(f"no source behind {source} could be used: {reasons}")


def _receive(endpoint: Endpoint, request: _Request) -> tuple[int, int]:
    """Take everything from one source; the number of tensors and of bytes."""
    with _leased_manifest(endpoint, request) as manifest:
        matched = _match(manifest, request, endpoint)
        size = sum(tensor.size for tensor, _ in matched)
        if size:
            _read(manifest, matched, request)
        return len(matched), size


@contextmanager
def _leased_manifest(endpoint: Endpoint, request: _Request) -> Iterator[_Manifest]:
    """The source's manifest, under its lease where it gives leases."""
    import grpc

    from shardpool.transport.channel import open_channel
    from shardpool.transport.failures import from_rpc
    from shardpool.wire import p2p

    with open_channel(endpoint, request.settings) as channel:
        _await_connection(channel, endpoint, request.left(request.settings.connect_seconds))
        lease = ""
        try:
            try:
                prepare = p2p.PrepareTensorReadRequest(mx_source_id=request.source_id)
                answer = _call(channel, "PrepareTensorRead", prepare, request.left(CALL_SECONDS))
                lease, response = answer.lease_id, answer.manifest
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                ask = p2p.GetTensorManifestRequest(mx_source_id=request.source_id)
                response = _call(channel, "GetTensorManifest", ask, request.left(CALL_SECONDS))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                raise MismatchError(f"{endpoint.target}: {error.details()}", reason="identity") from None
            raise from_rpc(error, endpoint.target, "asking for its tensors") from None
        try:
            yield _checked(response, request, endpoint)
        finally:
            if lease:
                release = p2p.ReleaseTensorReadRequest(mx_source_id=response.mx_source_id, lease_id=lease)
                try:
                    _call(channel, "ReleaseTensorRead", release, request.settings.connect_seconds)
                except grpc.RpcError as error:
                    LOG.debug("%s: lease not given back: %s", endpoint.target, error.details())


def _await_connection(channel: grpc.Channel, endpoint: Endpoint, seconds: float) -> None:
    import grpc

    ready = grpc.channel_ready_future(channel)
    try:
        ready.result(timeout=seconds)
    except grpc.FutureTimeoutError:
        raise PeerUnreachableError(f"{endpoint.target}: no connection within {seconds:.3g} s") from None
    finally:
        ready.cancel()


def _call(channel: grpc.Channel, name: str, message: Any, seconds: float) -> Any:
    from shardpool.wire import p2p
    from shardpool.wire.descriptors import methods

    method = methods(p2p.DESCRIPTOR, "WorkerService")[name]
    call = channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
    return call(message, timeout=seconds)


def _checked(response: Any, request: _Request, endpoint: Endpoint) -> _Manifest:
    """A manifest that contradicts nothing; what it says is believed only from here on."""
    from shardpool.transport.nixl_agent import fits_memory

    if response.mx_source_id != request.source_id:
        raise MismatchError(
            f"{endpoint.target}: its manifest is of {response.mx_source_id!r}, asked for {request.source_id!r}",
            reason="identity",
        )
    if response.worker_rank != request.rank:
        raise MismatchError(
            f"{endpoint.target}: it is rank {response.worker_rank}, asked for rank {request.rank}",
            reason="rank",
            hint="check the Service's port and selector for this rank",
        )
    if len(response.tensors) > MOST_TENSORS:
        raise MismatchError(f"{endpoint.target}: {len(response.tensors)} tensors in a manifest", reason="protocol")
    tensors = tuple(
        _Offered(tensor.name, tensor.addr, tensor.size, tensor.device_id, tensor.dtype) for tensor in response.tensors
    )
    names = set()
    for tensor in tensors:
        if len(tensor.name) > LONGEST_NAME or tensor.name in names:
            raise MismatchError(
                f"{endpoint.target}: tensor {tensor.name[:80]!r} is listed twice or its name is too long",
                reason="protocol",
            )
        names.add(tensor.name)
        if tensor.size and not fits_memory(tensor.address, tensor.size):
            raise MismatchError(f"{endpoint.target}: tensor {tensor.name!r} lies nowhere", reason="protocol")
    host, port = _metadata_address(response.metadata_endpoint, endpoint)
    if not response.agent_name:
        raise MismatchError(f"{endpoint.target}: its manifest names no NIXL agent", reason="protocol")
    return _Manifest(tensors, response.agent_name, host, port)


def _metadata_address(text: str, endpoint: Endpoint) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    try:
        address = str(ipaddress.IPv4Address(host))
        number = int(port)
    except ValueError:
        number = 0
    if not 0 < number < 65536:
        raise MismatchError(
            f"{endpoint.target}: metadata endpoint {text[:80]!r} is not IPv4:port",
            reason="protocol",
            hint="set MX_WORKER_HOST to the pod's IPv4 address at the source, and turn its NIXL listener on",
        )
    return address, number


def _match(manifest: _Manifest, request: _Request, endpoint: Endpoint) -> list[tuple[_Offered, HostBuffer]]:
    """Pair tensors with buffers. Raises TensorMismatchError with all that does not fit."""
    wanted = request.wanted
    offered = {tensor.name: tensor for tensor in manifest.tensors}
    missing = tuple(sorted(wanted.keys() - offered.keys()))
    unknown = tuple(sorted(offered.keys() - wanted.keys() - request.ignore))
    differing: dict[str, str] = {}
    for name in sorted(wanted.keys() & offered.keys()):
        tensor, buffer = offered[name], wanted[name]
        sizes = f"{buffer.size} bytes here, {tensor.size} there" if buffer.size != tensor.size else ""
        types = f"{buffer.dtype} here, {tensor.dtype} there" if buffer.dtype not in ("", tensor.dtype) else ""
        if sizes or types:
            differing[name] = ", ".join(part for part in (sizes, types) if part)
    if missing or unknown or differing:
        raise TensorMismatchError(endpoint.target, missing=missing, unknown=unknown, differing=differing)
    return [(offered[name], buffer) for name, buffer in wanted.items()]


def _read(manifest: _Manifest, matched: list[tuple[_Offered, HostBuffer]], request: _Request) -> None:
    """Read all tensors. When it raises, the agent is gone, and with it every read that was under way."""
    from shardpool.transport.nixl_agent import Agent, Run, prepare_environment, unique_name

    prepare_environment(request.settings.worker_host or (manifest.host if _is_loopback(manifest.host) else ""))
    runs = deque(
        Run(buffer.address, tensor.address, tensor.size, tensor.device) for tensor, buffer in matched if tensor.size
    )
    agent = Agent(unique_name("taker"), listen_port=0)
    try:
        agent.register([(run.local, run.length) for run in runs])
        asked = time.monotonic() + request.left(METADATA_SECONDS)
        agent.fetch_remote(manifest.agent_name, manifest.host, manifest.port, asked)
        _pump(agent, manifest.agent_name, runs, request)
    finally:
        agent.close()


def _is_loopback(host: str) -> bool:
    return ipaddress.IPv4Address(host).is_loopback


def _pump(agent: Agent, remote: str, runs: deque[Run], request: _Request) -> None:
    """Post and poll until everything has landed, nothing moves for too long, or the deadline passes."""
    from shardpool.transport.pacing import Pace
    from shardpool.transport.slices import cut

    memory = agent.memory_of(remote, runs[0])
    pace = Pace(0, time.monotonic())
    under_way: dict[int, int] = {}
    moved = time.monotonic()
    while runs or under_way:
        while runs and (not under_way or sum(under_way.values()) + pace.slice_size <= pace.window):
            taken = cut(runs, pace.slice_size)
            under_way[agent.read(remote, taken.runs, memory)] = taken.length
        now = time.monotonic()
        for handle in [handle for handle in under_way if agent.finished(handle)]:
            agent.release(handle)
            pace.landed(under_way.pop(handle), now)
            moved = now
        if now >= request.deadline:
            raise PeerUnreachableError("the deadline passed while tensors were read")
        if now - moved > request.settings.stall_seconds:
            raise PeerUnreachableError(f"not a byte arrived for {request.settings.stall_seconds:g} s")
        if under_way:
            time.sleep(_POLL_SECONDS)


__all__ = ["Received", "receive_tensors"]
