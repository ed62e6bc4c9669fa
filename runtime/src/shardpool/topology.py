"""Ranks, their coordinates, their ports and the Services in front of them."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardpool.errors import ConfigurationError
from shardpool.identity import SourceIdentity
from shardpool.settings import LAYOUTS

SHAPES = ("perPod", "perRank", "multiNode")
ENGINES = ("none", "vllm", "sglang", "custom")
WEIGHTS = ("pool", "modelexpress")
PLAN_VERSION = 1
PORTS_PER_SERVICE = 100  # what an EndpointSlice holds
_LONGEST_RELEASE = 52  # leaves room for `-rank-<R>-peers` in a label of 63 characters
_DNS_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_PORT_AT_END = re.compile(r"(?P<host>[^:]*|\[[^\]]*\]):(?P<port>\d{1,5})")


class Address(NamedTuple):
    """A host name or IP literal (IPv6 without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Coordinates(NamedTuple):
    """Where a rank stands in its engine's grid: `rank = pipeline * tensor_size + tensor`, where experts are spread
    `rank = expert * tensor_size + tensor`."""

    group: int
    tensor: int


@dataclass(frozen=True, slots=True)
class Topology:
    """How the ranks of a replica are spread over pods.

    Attributes:
        world: number of ranks of a replica.
        local_ranks: ranks in one pod.
        base_port: port of a pod's first rank.
    """

    world: int
    local_ranks: int
    base_port: int

    def __post_init__(self) -> None:
        if not 1 <= self.local_ranks <= self.world:
            raise ConfigurationError(
                f"{self.local_ranks} ranks in a pod do not fit a world of {self.world}",
                hint="set 1 <= local ranks <= world",
            )
        if self.world % self.local_ranks:
            raise ConfigurationError(
                f"{self.local_ranks} ranks in a pod do not divide a world of {self.world}",
                hint="every pod of a replica has the same number of ranks",
            )
        if not 1 <= self.base_port <= 65535 - self.local_ranks + 1:
            raise ConfigurationError(
                f"ports {self.base_port} to {self.base_port + self.local_ranks - 1} are not all from 1 to 65535",
                hint="set another base port",
            )

    def port_of(self, rank: int) -> int:
        """The port that the process of a global rank binds: base + its local rank."""
        return self.base_port + self._known(rank) % self.local_ranks

    def pod_of(self, rank: int) -> int:
        """Which pod of its replica has a rank."""
        return self._known(rank) // self.local_ranks

    def local_ranks_of(self, first: int) -> range:
        """The global ranks of the pod whose first rank is `first`."""
        return range(self._known(first), min(first + self.local_ranks, self.world))

    def _known(self, rank: int) -> int:
        if not 0 <= rank < self.world:
            raise ConfigurationError(
                f"rank {rank} is not in a world of {self.world}", hint="ranks count from 0 to world - 1"
            )
        return rank


def rank_at(group: int, tensor: int, tensor_size: int) -> int:
    """The rank of an expert (or pipeline) group's member: `group * tensor_size + tensor`."""
    if group < 0 or not 0 <= tensor < tensor_size:
        raise ConfigurationError(
            f"there is no member {tensor} of group {group} with groups of {tensor_size}", hint="members count from 0"
        )
    return group * tensor_size + tensor


def coordinates_of(rank: int, tensor_size: int) -> Coordinates:
    """The inverse of `rank_at`."""
    if rank < 0 or tensor_size < 1:
        raise ConfigurationError(f"rank {rank} with groups of {tensor_size}", hint="ranks count from 0, sizes from 1")
    return Coordinates(*divmod(rank, tensor_size))


def service_address(pattern: str, rank: int, base_port: int) -> Address:
    """The address that a receiver of a global rank dials, from a Service pattern (ModelExpress's rules).

    Args:
        pattern: `{rank}` in it is replaced; where a port follows it is used as it is, else it is `base_port + rank`.
        rank: global rank.
        base_port: port of rank 0.

    Raises ConfigurationError for another placeholder, an empty host, or a port that does not exist.
    """
    host = format_pattern(pattern, rank)
    match = _PORT_AT_END.fullmatch(host)
    port = base_port + rank
    if match:
        host, port = match["host"], int(match["port"])
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or any(character.isspace() or character in "/[]" for character in host):
        raise ConfigurationError(
            f"{pattern!r} is not a host or host:port", hint="set MX_K8S_SERVICE_PATTERN such as x-rank-{rank}"
        )
    if not 1 <= port <= 65535:
        raise ConfigurationError(f"{pattern!r} leads to port {port} for rank {rank}", hint="set another base port")
    return Address(host, port)


def format_pattern(pattern: str, rank: int) -> str:
    """Replace `{rank}` in a pattern of names. Raises ConfigurationError for any other placeholder."""
    try:
        fields = [
            (name, conversion) for _, name, _, conversion in string.Formatter().parse(pattern) if name is not None
        ]
        unknown = [name for name, conversion in fields if name != "rank" or conversion]
        text = "" if unknown else pattern.format(rank=rank)
    except ValueError as error:
        raise ConfigurationError(
            f"pattern {pattern!r} cannot be used: {error}", hint="the only placeholder is {rank}"
        ) from error
    if unknown:
        raise ConfigurationError(
            f"pattern {pattern!r} has a placeholder {unknown[0]!r} that is unknown",
            hint="the only placeholder is {rank}",
        )
    return text


def build_plan(
    *,
    release: str,
    shape: str,
    world: int,
    local_ranks: int,
    layout: str = "whole",
    namespace: str = "default",
    base_port: int = 6555,
    http_port: int = 9465,
    engine: str = "none",
    weights: str = "pool",
    identity: SourceIdentity | None = None,
) -> dict[str, Any]:
    """The table of ranks, Services, ports and pods of a release: what the chart renders as `plan.json`.

    A pool of layout `whole` or `striped` has one Service whatever the engine's shape is, since all pods hold all parts.

    Args:
        release: name of the release; Services are named after it.
        shape: `perPod`, `perRank` or `multiNode`.
        world: number of ranks (of the pool's parts with weights `pool`).
        local_ranks: ranks in a pod.
        layout: of the pool.
        namespace: of the release.
        base_port: gRPC port of a pod's first rank.
        http_port: of readiness and metrics.
        engine: kind of engine.
        weights: who loads, `pool` or `modelexpress`.
        identity: of the pool, where it is known.

    Raises ConfigurationError for what no release could be.
    """
    for value, choices, what in (
        (shape, SHAPES, "shape"),
        (layout, LAYOUTS, "layout"),
        (engine, ENGINES, "engine"),
        (weights, WEIGHTS, "weights"),
    ):
        if value not in choices:
            raise ConfigurationError(f"{what} {value!r} is not one of {', '.join(choices)}", hint="set one of them")
    for name, longest, what in ((release, _LONGEST_RELEASE, "release"), (namespace, 63, "namespace")):
        if len(name) > longest or not _DNS_LABEL.fullmatch(name):
            raise ConfigurationError(
                f"{what} {name!r} is not a DNS label of at most {longest} characters",
                hint="use lower-case letters, digits and hyphens",
            )
    pooled = weights == "pool" and layout != "sharded"
    if weights == "pool" and layout == "whole" and world != 1:
        raise ConfigurationError(
            f"layout whole is for a world of 1, not {world}", hint="set layout striped, or world 1"
        )
    if shape == "perPod" or pooled:
        if local_ranks != world:
            raise ConfigurationError(
                f"every pod has every rank here: {local_ranks} ranks in a pod, world {world}",
                hint="set both to the same number, or another shape",
            )
        if world > PORTS_PER_SERVICE:
            raise ConfigurationError(
                f"{world} ranks behind one Service pass the {PORTS_PER_SERVICE} ports that an EndpointSlice holds",
                hint="use shape multiNode or perRank",
            )
    elif shape == "perRank" and local_ranks != 1:
        raise ConfigurationError(f"{local_ranks} ranks in a pod of shape perRank", hint="set 1, or shape multiNode")
    topology = Topology(world, local_ranks, base_port)
    if topology.base_port <= http_port < topology.base_port + local_ranks:
        raise ConfigurationError(
            f"HTTP port {http_port} is one of the gRPC ports {base_port} to {base_port + local_ranks - 1}",
            hint="set another HTTP port",
        )
    plan: dict[str, Any] = {
        "version": PLAN_VERSION,
        "release": release,
        "namespace": namespace,
        "shape": shape,
        "layout": layout,
        "world": world,
        "localRanks": local_ranks,
        "engine": {"kind": engine, "weights": weights},
        "httpPort": http_port,
    }
    if identity is not None:
        plan["identity"] = identity.fields()
    one_service = shape == "perPod" or pooled
    plan["ranks"] = [
        {
            "rank": rank,
            "service": (service := release if one_service else f"{release}-rank-{rank}"),
            "port": topology.port_of(rank),
            "peersService": f"{service}-peers",
            "targetPort": topology.port_of(rank),
            "podIndex": 0 if one_service or shape == "perRank" else topology.pod_of(rank),
        }
        for rank in range(world)
    ]
    return plan
