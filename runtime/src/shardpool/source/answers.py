"""From typed errors to the answers of gRPC, in one place; and how an implementation becomes the handlers of a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import grpc

from shardpool.errors import LeaseError, MismatchError, PeerBusyError, ShardpoolError
from shardpool.source.leases import DrainingError
from shardpool.wire.descriptors import Method

RETRY_AFTER = "retry-after-ms"
"""Trailing metadata of RESOURCE_EXHAUSTED: when to come back."""
REASON = "shardpool-reason"
"""Trailing metadata of FAILED_PRECONDITION: the reason of a MismatchError."""

Handler = Callable[[Any, grpc.ServicerContext], Any]


class CallError(ShardpoolError):
    """A call that is answered with a status of its own choice."""

    def __init__(self, code: grpc.StatusCode, what: str) -> None:
        super().__init__(what)
        self.code = code


def _abort(context: grpc.ServicerContext, error: ShardpoolError) -> NoReturn:
    code, trailing = grpc.StatusCode.INTERNAL, []
    if isinstance(error, CallError):
        code = error.code
    elif isinstance(error, PeerBusyError):
        code, trailing = grpc.StatusCode.RESOURCE_EXHAUSTED, [(RETRY_AFTER, str(int(error.retry_after * 1000)))]
    elif isinstance(error, DrainingError):
        code = grpc.StatusCode.UNAVAILABLE
    elif isinstance(error, LeaseError):
        code = grpc.StatusCode.NOT_FOUND
    elif isinstance(error, MismatchError):
        code, trailing = grpc.StatusCode.FAILED_PRECONDITION, [(REASON, error.reason)]
    if trailing:
        context.set_trailing_metadata(tuple(trailing))
    context.abort(code, str(error))
    raise AssertionError("abort() raises")


def _unary(handler: Handler) -> Handler:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return handler(request, context)
        except ShardpoolError as error:
            _abort(context, error)

    return answer


def _streaming(handler: Handler) -> Handler:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            yield from handler(request, context)
        except ShardpoolError as error:
            _abort(context, error)

    return answer


def _serialize(response: Any) -> bytes:
    """A message, or the bytes of one that was serialized before."""
    return response if isinstance(response, bytes) else response.SerializeToString()


def service_handler(
    service: str, methods: Mapping[str, Method], calls: Mapping[str, Handler]
) -> grpc.GenericRpcHandler:
    """The handlers of `service` (its full name): `calls` has an entry for each of its methods."""
    handlers = {}
    for name, method in methods.items():
        codec = {"request_deserializer": method.request.FromString, "response_serializer": _serialize}
        if method.client_streaming:
            handlers[name] = grpc.stream_stream_rpc_method_handler(_streaming(calls[name]), **codec)
        elif method.server_streaming:
            handlers[name] = grpc.unary_stream_rpc_method_handler(_streaming(calls[name]), **codec)
        else:
            handlers[name] = grpc.unary_unary_rpc_method_handler(_unary(calls[name]), **codec)
    return grpc.method_handlers_generic_handler(service, handlers)
