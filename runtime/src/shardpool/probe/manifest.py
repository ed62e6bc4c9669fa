"""What a worker of the ModelExpress contract says to a question that it has to refuse.

`GetTensorManifest` with an id that nobody has answers FAILED_PRECONDITION and says in its text what the worker has published: "expected
None" before publication, "expected <id>" after it. No manifest is built or sent for it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardpool.discovery.base import Endpoint

if TYPE_CHECKING:
    import grpc

NOBODY = "f" * 15 + "0"
"""An `mx_source_id` that is asked for to be refused."""
WAITING_KEY = "shardpool-waiting"
"""Trailing metadata by which a pod that is held back by `wait` says so, and which replica it is of."""
_EXPECTED = re.compile(r"expected (None|[0-9a-f]{16}), got ")


class Published(enum.Enum):
    """What is known of one worker."""

    YES = "published"
    NO = "not published yet"
    WAITING = "held back by `shardpool wait`"
    UNREACHABLE = "no answer"
    UNCLEAR = "not a ModelExpress worker"


@dataclass(frozen=True, slots=True)
class Answer:
    """`source_id` where it is published, `replica` where the pod waits, `reason` in words."""

    state: Published
    reason: str
    source_id: str = ""
    replica: str = ""


def ask(endpoint: Endpoint, seconds: float) -> Answer:
    """Ask one worker over a fresh connection, within `seconds`. Never raises for what the other side does."""
    import grpc

    from shardpool.wire import p2p

    with plain_channel(endpoint) as channel:
        try:
            response = manifest_call(channel)(p2p.GetTensorManifestRequest(mx_source_id=NOBODY), timeout=seconds)
        except grpc.RpcError as error:
            return _from_refusal(error)
    return Answer(Published.YES, "published", response.mx_source_id)


def plain_channel(endpoint: Endpoint) -> grpc.Channel:
    """A fresh connection to a ModelExpress worker, which knows no TLS whatever this release's pool uses."""
    import grpc

    from shardpool.transport.channel import channel_options

    return grpc.insecure_channel(endpoint.target, options=channel_options())


def manifest_call(channel: Any) -> Any:
    """`GetTensorManifest` on a channel."""
    from shardpool.wire import p2p
    from shardpool.wire.descriptors import methods

    method = methods(p2p.DESCRIPTOR, "WorkerService")["GetTensorManifest"]
    return channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )


def _from_refusal(error: Any) -> Answer:
    import grpc

    from shardpool.wire.conversions import printable

    code, text = error.code(), printable(error.details() or "")
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        replica = dict(error.trailing_metadata() or ()).get(WAITING_KEY, "")
        if isinstance(replica, str) and replica:
            return Answer(Published.WAITING, Published.WAITING.value, replica=replica[:253])
        match = _EXPECTED.search(text)
        if match and match[1] != "None":
            return Answer(Published.YES, "published", match[1])
        if match:
            return Answer(Published.NO, Published.NO.value)
    if code is grpc.StatusCode.UNAVAILABLE and "draining" in text:
        return Answer(Published.NO, "it is draining")
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return Answer(Published.UNREACHABLE, text or "no answer in time")
    return Answer(Published.UNCLEAR, f"{code.name}: {text}")
