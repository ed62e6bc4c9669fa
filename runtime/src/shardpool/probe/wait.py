"""Holding a new pod of a ModelExpress engine back until a peer is ready, unless it is the one that reads storage.

Nobody coordinates. A pod that waits answers on its first rank's port what a worker answers before publication, with its replica's name
beside it. So every waiting pod can tell who else waits (and the lowest rendezvous hash among them goes first), and who has gone on: a pod
that is listed and does not say that it waits is loading already, and is waited for. Time is bounded whatever the others do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardpool.discovery.base import Discovery, Endpoint, Listing
from shardpool.errors import ConfigurationError
from shardpool.log import logger
from shardpool.probe.manifest import WAITING_KEY, Answer, Published, ask
from shardpool.settings import Settings

if TYPE_CHECKING:
    import grpc

LOG = logger(__name__)
ROUND_SECONDS = 1.0
SETTLE_SECONDS = 3.0
"""For so long the list and the answers must have said that this pod goes first: DNS tells pods of each other with a delay."""
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """Why the pod goes on: `ready`, `elected` or `time`; with the reason in words."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Round:
    """What one look at the peers found: whether this pod is listed, who else is, and what each said."""

    listed: bool
    answers: dict[Endpoint, Answer]
    problem: str = ""

    @property
    def going_first(self) -> bool:
        """Whether nobody but waiting pods is there."""
        return self.listed and all(answer.state is Published.WAITING for answer in self.answers.values())


def elected(own: str, others: Sequence[str]) -> bool:
    """Whether a replica goes first among waiting ones: it has the lowest hash. Equal names (pods of one replica) go together."""
    return all(_order(own) <= _order(other) for other in others)


def _order(replica: str) -> tuple[bytes, str]:
    from blake3 import blake3

    return blake3(b"wait\0" + replica.encode()).digest(), replica


def replica_name(settings: Settings) -> str:
    """What the pods of one replica have in common, so that all of them are elected together.

    A pod with every rank is a replica. Where ranks are spread over StatefulSets of their own (first rank set), a replica is an ordinal;
    where one StatefulSet is a replica (pod index set), it is the name without the ordinal.
    """
    name = settings.pod_name or settings.worker_host
    before, dash, ordinal = name.rpartition("-")
    if settings.ranks_here >= settings.world or not dash or not ordinal.isdigit():
        return name
    if settings.first_rank is not None:
        return ordinal
    return before if int(ordinal) == settings.pod_index else name


class Waiter:
    """Looks at the peers, a round a second, until it may go on.

    Args:
        settings: addresses of this pod and of its peers, `wait_for_peers_seconds`.
        discoveries: where the peers of each local rank are, the pod's first rank first.
        question: asks one endpoint.
    """

    def __init__(
        self,
        settings: Settings,
        discoveries: Sequence[Discovery],
        *,
        question: Callable[[Endpoint, float], Answer] = ask,
        round_seconds: float = ROUND_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        if not settings.worker_host:
            raise ConfigurationError("this pod does not know its address", hint="set POD_IP (downward API)")
        self._settings = settings
        self._discoveries = discoveries
        self._question = question
        self._round_seconds = round_seconds
        self._settle_seconds = settle_seconds
        self._replica = replica_name(settings)
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the wait as if time were up."""
        self._stop.set()

    def run(self) -> Outcome:
        """Wait. Takes at most `wait_for_peers_seconds` and a round."""
        deadline = time.monotonic() + self._settings.wait_for_peers_seconds
        first_since: float | None = None
        said = ""
        while True:
            seen = self._look(0)
            if self._ready(seen):
                return Outcome("ready", self._tell(seen))
            now = time.monotonic()
            others = [answer.replica for answer in seen.answers.values()]
            if seen.going_first and elected(self._replica, others):
                first_since = now if first_since is None else first_since
                if now - first_since >= self._settle_seconds:
                    return Outcome("elected", f"{len(others)} other pod(s) wait, this one reads storage")
            else:
                first_since = None
            if (text := self._tell(seen)) != said:
                said = text
                LOG.info("waiting: %s", said)
            if now >= deadline or self._stop.wait(min(self._round_seconds, deadline - now)):
                return Outcome("time", f"{self._settings.wait_for_peers_seconds:g} s have passed; {said}")

    def _ready(self, first: Round) -> bool:
        """Whether each local rank has a peer that has published."""
        if not _published(first):
            return False
        return all(_published(self._look(local)) for local in range(1, len(self._discoveries)))

    def _look(self, local: int) -> Round:
        listing: Listing = self._discoveries[local].list()
        ours = [endpoint for endpoint in listing.endpoints if endpoint.host == self._settings.worker_host]
        others = [endpoint for endpoint in listing.endpoints if endpoint.host != self._settings.worker_host]
        with ThreadPoolExecutor(AT_ONCE, "wait") as pool:
            answers = pool.map(lambda endpoint: self._question(endpoint, self._settings.connect_seconds), others)
            return Round(bool(ours), dict(zip(others, answers, strict=True)), listing.problem)

    def _tell(self, seen: Round) -> str:
        if not seen.answers:
            return seen.problem or ("no other pod is listed" if seen.listed else "this pod is not listed yet")
        counts: dict[str, int] = {}
        for answer in seen.answers.values():
            counts[answer.state.value] = counts.get(answer.state.value, 0) + 1
        told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        return told if seen.listed else f"{told}; this pod is not listed yet"


def _published(seen: Round) -> bool:
    return any(answer.state is Published.YES for answer in seen.answers.values())


class WaitingServer:
    """Answers the contract's question as a worker that has not published, and says that this pod waits.

    Raises:
        ConfigurationError: the port cannot be bound.
    """

    def __init__(self, settings: Settings, *, port: int | None = None) -> None:
        import grpc

        from shardpool.transport.channel import server_options
        from shardpool.wire import p2p
        from shardpool.wire.descriptors import methods

        self._replica = replica_name(settings)
        method = methods(p2p.DESCRIPTOR, "WorkerService")["GetTensorManifest"]
        handler = grpc.unary_unary_rpc_method_handler(
            self._refuse,
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )
        service = method.path.split("/")[1]
        self._server = grpc.server(
            ThreadPoolExecutor(4, "waiting"),
            handlers=[grpc.method_handlers_generic_handler(service, {"GetTensorManifest": handler})],
            options=server_options(),
            maximum_concurrent_rpcs=64,
        )
        host = settings.bind_host or "::"
        wanted = settings.worker_grpc_port if port is None else port
        address = f"[{host}]:{wanted}" if ":" in host else f"{host}:{wanted}"
        try:
            self.port = self._server.add_insecure_port(address)  # as ModelExpress's workers do
        except RuntimeError as error:
            raise ConfigurationError(
                f"{address} cannot be bound: {str(error).splitlines()[0]}", hint="set MX_WORKER_GRPC_PORT"
            ) from error
        self._server.start()

    def close(self) -> None:
        """Free the port for the engine."""
        self._server.stop(0).wait(5)

    def _refuse(self, request: Any, context: grpc.ServicerContext) -> None:
        import grpc

        context.set_trailing_metadata(((WAITING_KEY, self._replica),))
        text = f"mx_source_id mismatch: expected None, got {request.mx_source_id[:64]}"
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)


def wait(settings: Settings) -> Outcome:
    """Hold this pod back as long as it should be. Raises ConfigurationError."""
    from shardpool.discovery import make_discovery

    first = settings.global_first_rank
    discoveries = [make_discovery(settings, first + local) for local in range(settings.ranks_here)]
    server = WaitingServer(settings)
    try:
        return Waiter(settings, discoveries).run()
    finally:
        server.close()
        for discovery in discoveries:
            discovery.close()
