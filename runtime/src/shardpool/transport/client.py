"""The calls of `shardpool.v1.PoolService`, with deadlines, bounds and typed errors."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import grpc
from blake3 import blake3

from shardpool.errors import MismatchError, PeerUnreachableError, TransportError
from shardpool.swarm.state import Party, PeerInfo
from shardpool.transport.failures import from_rpc
from shardpool.transport.mover import Grant, NixlOffer, OfferedRegion
from shardpool.wire import pool
from shardpool.wire.conversions import (
    LARGEST_NIXL_METADATA,
    LONGEST_TEXT,
    MOST_REGIONS,
    read_info,
    write_party,
)
from shardpool.wire.descriptors import methods

_METHODS = methods(pool.DESCRIPTOR, "PoolService")
_LONGEST_LEASE = 3600.0


class PoolClient:
    """Calls one peer over a channel of the caller's. Every call raises ShardpoolError, and ends soon after `cancel`.

    Args:
        channel: the connection.
        peer: its address, for texts.
    """

    def __init__(self, channel: grpc.Channel, peer: str) -> None:
        self._peer = peer
        self._lock = threading.Lock()
        self._running: set[Any] = set()
        self._cancelled = False
        self._stubs = {
            name: (channel.unary_stream if method.server_streaming else channel.unary_unary)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            for name, method in _METHODS.items()
            if not method.client_streaming
        }

    def state(self, caller: Party | None, timeout: float) -> PeerInfo:
        """Who the peer is, bounded and checked in itself; whether it is of this pool is the caller's question."""
        request = pool.StateRequest(caller=write_party(caller) if caller else None)
        return read_info(self._call("GetState", request, timeout, "asking for its state"))

    def watch(self, caller: Party, info: PeerInfo, timeout: float | None = None) -> Any:
        """All announcements, then each new one: an iterator of `pool.StateUpdate` that raises grpc.RpcError and has `cancel()`."""
        request = pool.WatchRequest(caller=write_party(caller), instance=info.party.instance)
        return self._stubs["WatchState"](request, timeout=timeout)

    def outline(self, caller: Party, info: PeerInfo, timeout: float) -> bytes:
        """The encoded outline, exactly as long as the handshake said."""
        request = pool.OutlineRequest(caller=write_party(caller), instance=info.party.instance)
        received = bytearray()
        call = self._stubs["GetOutline"](request, timeout=timeout)
        with self._cancellable(call, "fetching its outline"):
            for chunk in call:
                received += chunk.data
                if len(received) > info.outline_size:
                    break
        if len(received) != info.outline_size:
            call.cancel()
            raise MismatchError(
                f"{self._peer}: {len(received)} bytes and maybe more of an outline of {info.outline_size}",
                reason="protocol",
            )
        return bytes(received)

    def acquire(self, caller: Party, info: PeerInfo, transport: str, timeout: float) -> Grant:
        """A lease, given by the process of the handshake."""
        request = pool.LeaseRequest(caller=write_party(caller), instance=info.party.instance, transport=transport)
        # Not cancelled once it is sent: the source may have given the lease already, and then it must be given back.
        response = self._call("AcquireLease", request, timeout, "acquiring a lease", cancellable=False)
        if response.instance != info.party.instance:
            raise MismatchError(f"{self._peer}: the lease is of another process", reason="instance")
        if not 0 < len(response.lease_id) <= 64 or not response.ttl_ms:
            raise MismatchError(f"{self._peer} sent a lease that is none", reason="protocol")
        return Grant(
            lease_id=response.lease_id,
            instance=response.instance,
            seconds=min(response.ttl_ms / 1000, _LONGEST_LEASE),
            rate_limit=response.rate_limit,
            nixl=self._read_offer(response.nixl, info) if response.HasField("nixl") else None,
        )

    def renew(self, grant: Grant, timeout: float) -> int:
        """Let the lease last on; the rate limit now."""
        request = pool.RenewRequest(lease_id=grant.lease_id, instance=grant.instance)
        return int(self._call("RenewLease", request, timeout, "renewing a lease").rate_limit)

    def release(self, grant: Grant, timeout: float) -> None:
        """Give the lease back; one that cannot be given back ends by itself."""
        request = pool.ReleaseRequest(lease_id=grant.lease_id, instance=grant.instance)
        with contextlib.suppress(grpc.RpcError):
            self._stubs["ReleaseLease"](request, timeout=timeout)

    def cancel(self) -> None:
        """End the calls under way, and refuse further ones, but for `release`."""
        with self._lock:
            self._cancelled = True
            running = list(self._running)
        for call in running:
            call.cancel()

    def _call(self, name: str, request: Any, timeout: float, doing: str, *, cancellable: bool = True) -> Any:
        with self._lock:
            if self._cancelled:
                raise PeerUnreachableError(f"{self._peer}, {doing}: given up by this side")
        call = self._stubs[name].future(request, timeout=max(timeout, 0.001))
        with self._cancellable(call, doing, register=cancellable):
            return call.result()

    @contextlib.contextmanager
    def _cancellable(self, call: Any, doing: str, *, register: bool = True) -> Any:
        with self._lock:
            if register:
                self._running.add(call)
            cancelled = self._cancelled
        if cancelled and register:
            call.cancel()
        try:
            yield
        except grpc.RpcError as error:
            raise from_rpc(error, self._peer, doing) from error
        except grpc.FutureCancelledError as error:
            raise PeerUnreachableError(f"{self._peer}, {doing}: given up by this side") from error
        finally:
            with self._lock:
                self._running.discard(call)

    def _read_offer(self, message: pool.NixlOffer, info: PeerInfo) -> NixlOffer:
        problem = ""
        if not 0 < len(message.agent_name) <= LONGEST_TEXT:
            problem = "an agent's name"
        elif not 0 < len(message.metadata) <= LARGEST_NIXL_METADATA:
            problem = f"{len(message.metadata)} bytes of NIXL metadata"
        elif blake3(message.metadata).digest() != message.metadata_digest:
            problem = "NIXL metadata that is not what its digest says"
        elif len(message.regions) > MOST_REGIONS:
            problem = f"{len(message.regions)} regions"
        regions = tuple(
            OfferedRegion(region.start, region.length, region.address, region.device) for region in message.regions
        )
        end = 0
        for region in regions:
            if region.start < end or not region.length or region.start + region.length > info.shard_size:
                problem = problem or f"a region of {region.length} bytes at {region.start}"
            end = region.start + region.length
        if problem:
            raise TransportError(f"{self._peer} offers {problem} over NIXL")
        return NixlOffer(message.agent_name, message.metadata, regions)
