"""The preflight: whether what runs is what the plan says, seen from where a receiver would be."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from shardpool.discovery.base import Endpoint
from shardpool.discovery.dns import Answer as DnsAnswer
from shardpool.discovery.dns import Resolver
from shardpool.errors import MismatchError, ShardpoolError
from shardpool.identity import explain_difference
from shardpool.probe.host import check_host
from shardpool.probe.manifest import NOBODY, Published, ask, manifest_call, plain_channel
from shardpool.probe.plan import Plan, PlannedRank
from shardpool.probe.report import FAIL, OK, WARN, Check, Report
from shardpool.settings import Settings
from shardpool.swarm.state import PeerInfo, Phase
from shardpool.transport.fabric import listed_rdma_devices

AT_ONCE = 16
SERVICE_CALLS = 4
"""Fresh connections to a Service's shared address: each may reach another pod."""
MOST_PODS = 64
"""Of one rank that are asked one by one."""
SECONDS = 60.0


class Doctor:
    """Makes every check once, within a bound.

    Args:
        settings: timeouts, certificates, the transport that is asked for.
        plan: what should be there.
        resolver: asks DNS.
        seconds: bound on all of it; what was not looked at by then is a failure.
    """

    def __init__(
        self, settings: Settings, plan: Plan, *, resolver: Resolver | None = None, seconds: float = SECONDS
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._resolver = resolver or Resolver()
        self._seconds = seconds
        self._deadline = 0.0
        self._transports: set[str] = set()

    def run(self) -> Report:
        """Look at this host, then at every rank. Never raises for what is found."""
        self._deadline = time.monotonic() + self._seconds
        checks = list(check_host(self._settings, self._plan.weights))
        with ThreadPoolExecutor(min(AT_ONCE, len(self._plan.ranks)), "doctor") as pool:
            for found in pool.map(lambda rank: list(self._check_rank(rank)), self._plan.ranks):
                checks.extend(found)
        checks.extend(_transport_check(self._transports))
        return Report(tuple(checks))

    def _check_rank(self, rank: PlannedRank) -> Iterator[Check]:
        label = f"rank {rank.rank}"
        if time.monotonic() >= self._deadline:
            yield Check(label, FAIL, f"not looked at within {self._seconds:g} s", "is DNS slow?")
            return
        service = self._resolver.lookup(rank.service)
        twin = self._resolver.lookup(rank.peers_service)
        yield _dns_check(f"{label} service", rank.service, service)
        yield _dns_check(f"{label} peers", rank.peers_service, twin)
        ask_one = self._pool_pod if self._plan.weights == "pool" else self._engine_pod
        pods = [Endpoint(address, rank.target_port) for address in twin.addresses[:MOST_PODS]]
        shared = [Endpoint(address, rank.port) for address in service.addresses for _ in range(SERVICE_CALLS)]
        # Behind the Service are ready pods alone; its twin lists also those that are not, where that is no fault.
        behind = self._ask(shared, lambda endpoint: ask_one(rank, endpoint))
        listed = self._ask(pods, lambda endpoint: ask_one(rank, endpoint))
        if service.addresses:
            yield _handshakes(f"{label} handshake", f"{rank.service}:{rank.port}", behind, must_answer=True)
        if pods:
            yield _handshakes(f"{label} pods", rank.peers_service, listed, must_answer=False)

    def _ask(self, endpoints: Sequence[Endpoint], question: Callable[[Endpoint], Check]) -> list[Check]:
        if not endpoints:
            return []
        with ThreadPoolExecutor(min(AT_ONCE, len(endpoints)), "doctor-ask") as pool:
            return list(pool.map(question, endpoints))

    def _pool_pod(self, rank: PlannedRank, endpoint: Endpoint) -> Check:
        """One pod of a pool: who it says that it is, against the plan."""
        from shardpool.transport.channel import open_channel
        from shardpool.transport.client import PoolClient

        where = endpoint.target
        try:
            with open_channel(endpoint, self._settings) as channel:
                info = PoolClient(channel, where).state(None, self._settings.connect_seconds)
        except MismatchError as error:
            return Check(where, FAIL, str(error), "the selector may be another workload's")
        except ShardpoolError as error:
            if "is not a source" in error.what:  # something answered, in another language
                return Check(where, FAIL, str(error), f"the selector of {rank.service} may be another workload's")
            return Check(where, WARN, str(error))
        return self._judge(rank, where, info)

    def _judge(self, rank: PlannedRank, where: str, info: PeerInfo) -> Check:
        plan, party = self._plan, info.party
        if plan.identity is not None and party.mx_source_id != plan.identity.mx_source_id():
            fields = explain_difference(plan.identity, party.identity_json)
            return Check(
                where,
                FAIL,
                f"another identity: {fields} (ours is the plan's)",
                f"the selector of {rank.service} picks pods of another model or revision",
            )
        if (party.rank, party.world) != (rank.rank, plan.world):
            return Check(
                where,
                FAIL,
                f"another rank: planned {rank.rank} of {plan.world}, it is {party.rank} of {party.world}",
                f"the selector or the target port of {rank.service} is that of another rank",
            )
        if party.layout != plan.layout:
            return Check(where, FAIL, f"layout {party.layout}, planned {plan.layout}")
        if info.phase is not Phase.READY:
            return Check(where, WARN, f"{info.phase.name.lower()}, not ready")
        self._transports.update(info.transports)
        return Check(where, OK, f"ready, transport {'+'.join(info.transports)}")

    def _engine_pod(self, rank: PlannedRank, endpoint: Endpoint) -> Check:
        """One pod whose engine loads with ModelExpress: what it has published, and as which rank."""
        import grpc

        from shardpool.wire import p2p

        where, seconds = endpoint.target, self._settings.connect_seconds
        answer = ask(endpoint, seconds)
        if answer.state is Published.UNCLEAR:
            return Check(where, FAIL, answer.reason, "the selector may be another workload's")
        if answer.state is not Published.YES:
            return Check(where, WARN, answer.reason)
        planned = self._plan.identity
        if planned is not None and planned.mx_source_id() != answer.source_id:
            return Check(
                where,
                FAIL,
                f"published {answer.source_id}, planned {planned.mx_source_id()}",
                f"the selector of {rank.service} picks pods of another model or revision, or the engine's identity differs",
            )
        if answer.source_id in ("", NOBODY):
            return Check(where, FAIL, "it answers to any id", "it is no ModelExpress worker")
        with plain_channel(endpoint) as channel:
            try:
                request = p2p.GetTensorManifestRequest(mx_source_id=answer.source_id)
                manifest = manifest_call(channel)(request, timeout=max(seconds, 10.0))
            except grpc.RpcError as error:
                return Check(where, WARN, f"published {answer.source_id}, manifest: {error.details()}")
        if manifest.worker_rank != rank.rank:
            return Check(
                where,
                FAIL,
                f"another rank: planned {rank.rank}, it is {manifest.worker_rank}",
                f"the selector or the target port of {rank.service} is that of another rank",
            )
        return Check(where, OK, f"published {answer.source_id}, {len(manifest.tensors)} tensors")


def _transport_check(transports: set[str]) -> Iterator[Check]:
    """What ready pods move bytes with. They do not say over which fabric; whether this node has RDMA is the best hint there is."""
    if not transports:
        return
    seen = "+".join(sorted(transports))
    if "nixl" in transports and not listed_rdma_devices():
        yield Check(
            "transport in use",
            WARN,
            f"{seen}; this node has no RDMA device, and without one UCX goes over TCP",
            "whoever reaches its ports can then read and write the process: set transport stream, or fence the network",
        )
    else:
        yield Check("transport in use", OK, seen)


def _dns_check(name: str, host: str, answer: DnsAnswer) -> Check:
    if not answer.addresses:
        return Check(
            name, FAIL, answer.problem or f"{host} has no address", "is the Service there, and in this namespace?"
        )
    seen = f"{host} is {len(answer.addresses)} address(es)"
    return Check(name, WARN if answer.problem else OK, f"{seen}; {answer.problem}" if answer.problem else seen)


def _handshakes(name: str, host: str, found: Sequence[Check], *, must_answer: bool) -> Check:
    """One line for all connections to a name: the worst verdict, and each different thing that was seen."""
    wrong = [check for check in found if check.verdict == FAIL]
    good = [check for check in found if check.verdict == OK]
    odd = [check for check in found if check.verdict == WARN]
    if wrong:
        hints = list(dict.fromkeys(check.hint for check in wrong if check.hint))
        return Check(name, FAIL, f"{host}: {_together(wrong)}", "; ".join(hints))
    if not good:
        verdict = FAIL if must_answer else WARN
        return Check(name, verdict, f"{host}: {_together(odd)}", "wait until a pod is ready, or look at its log")
    if odd:
        return Check(name, WARN, f"{host}: {_together(good)}; {_together(odd)}")
    return Check(name, OK, f"{host}: {_together(good)}")


def _together(checks: Sequence[Check]) -> str:
    places: dict[str, Counter[str]] = {}
    for check in checks:
        places.setdefault(check.seen, Counter())[check.name] += 1
    return "; ".join(f"{', '.join(sorted(where))}: {seen}" for seen, where in places.items())


def examine(settings: Settings, plan: Plan) -> Report:
    """Make every check of a release."""
    return Doctor(settings, plan).run()
