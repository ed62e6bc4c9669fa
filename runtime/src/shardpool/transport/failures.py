"""What a failed call says about the peer, as a typed error."""

from __future__ import annotations

import grpc

from shardpool.errors import (
    AbandonedError,
    LeaseError,
    MismatchError,
    PeerBusyError,
    PeerUnreachableError,
    ShardpoolError,
    TransportError,
)
from shardpool.wire.conversions import printable

_DEFAULT_RETRY = 0.5
_LONGEST_RETRY = 60.0
_REASONS = ("identity", "rank", "catalog", "protocol", "instance", "self")
# What gRPC says when the bytes that came are not HTTP/2: another server listens on the port.
_OTHER_PROTOCOL = (
    "http1",
    "http2 settings",
    "settings frame",
    "handshak",
    "ssl",
    "tls",
    "wrong version",
    "http status",
)


class ProtocolError(TransportError):
    """The source sent what nobody asked for; it is not asked for anything more."""


def from_rpc(error: grpc.RpcError, peer: str, doing: str) -> ShardpoolError:
    """The typed error of a failed call.

    Args:
        error: what the call raised.
        peer: the peer's address, for the text.
        doing: what the call was for, such as "asking for its state".
    """
    code, said = error.code(), printable(error.details() or "")
    where = f"{peer}, {doing}: "
    status = grpc.StatusCode
    if code is status.CANCELLED:
        return AbandonedError(f"{where}given up by this side")
    if code is status.DEADLINE_EXCEEDED:
        return PeerUnreachableError(f"{where}no answer in time")
    if code is status.UNIMPLEMENTED:
        return MismatchError(
            f"{peer} is not a source: it speaks gRPC, but not shardpool.v1.PoolService ({said})", reason="protocol"
        )
    if code is status.RESOURCE_EXHAUSTED:
        if "larger than" in said:
            return MismatchError(f"{where}{said}", reason="protocol")
        return PeerBusyError(f"{where}{said}", retry_after=_retry_after(error))
    if code is status.FAILED_PRECONDITION:
        reason = _trailing(error).get("shardpool-reason", "")
        if reason in _REASONS:
            return MismatchError(f"{where}{said}", reason=reason)
        return TransportError(f"{where}{said}")
    if code is status.NOT_FOUND:
        return LeaseError(f"{where}{said}")
    if code in (status.UNAVAILABLE, status.UNKNOWN, status.INTERNAL):
        lowered = said.lower()
        if code is not status.UNAVAILABLE or any(sign in lowered for sign in _OTHER_PROTOCOL):
            return PeerUnreachableError(f"{peer} is not a source, or not one with these certificates ({said})")
        return PeerUnreachableError(f"{where}{said}")
    return TransportError(f"{where}{code.name} {said}")


def _trailing(error: grpc.RpcError) -> dict[str, str]:
    return {key: value for key, value in error.trailing_metadata() or () if isinstance(value, str)}


def _retry_after(error: grpc.RpcError) -> float:
    """Seconds; what a peer says is bounded."""
    said = _trailing(error).get("retry-after-ms", "")
    if not (said.isascii() and said.isdigit() and len(said) <= 9):
        return _DEFAULT_RETRY
    return min(int(said) / 1000, _LONGEST_RETRY)
