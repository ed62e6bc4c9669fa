"""The release's plan, as the chart renders it and `shardpool plan --json` prints it, read strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardpool.errors import ConfigurationError
from shardpool.identity import SourceIdentity
from shardpool.topology import PLAN_VERSION

_HINT = "take it from the release's ConfigMap or from `shardpool plan --json`"


@dataclass(frozen=True, slots=True)
class PlannedRank:
    """Where the Service of a rank leads to, and what its headless twin is called."""

    rank: int
    service: str
    port: int
    peers_service: str
    target_port: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of a plan that a preflight checks. `weights` is `pool` or `modelexpress`; `identity` None where it is not known."""

    release: str
    namespace: str
    layout: str
    world: int
    weights: str
    identity: SourceIdentity | None
    ranks: tuple[PlannedRank, ...]


def read_plan(path: str) -> Plan:
    """Read a plan from a file. Raises ConfigurationError that says which part cannot be used."""
    try:
        fields = json.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigurationError(f"plan {path}: {error.strerror}", hint=_HINT) from error
    except ValueError as error:
        raise ConfigurationError(f"plan {path} is not JSON: {error}", hint=_HINT) from error
    if not isinstance(fields, Mapping) or fields.get("version") != PLAN_VERSION:
        raise ConfigurationError(f"plan {path} is not of version {PLAN_VERSION}", hint=_HINT)
    try:
        ranks = tuple(_rank(entry) for entry in fields["ranks"])
        identity = fields.get("identity")
        plan = Plan(
            release=_text(fields["release"]),
            namespace=_text(fields["namespace"]),
            layout=_text(fields["layout"]),
            world=int(fields["world"]),
            weights=_text(fields["engine"]["weights"]),
            identity=SourceIdentity.from_json(identity) if identity else None,
            ranks=ranks,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"plan {path}: {type(error).__name__} {error}", hint=_HINT) from error
    if [rank.rank for rank in plan.ranks] != list(range(plan.world)):
        raise ConfigurationError(f"plan {path} does not list ranks 0 to {plan.world - 1} in order", hint=_HINT)
    return plan


def _rank(fields: Mapping[str, Any]) -> PlannedRank:
    port, target = int(fields["port"]), int(fields["targetPort"])
    if not (0 < port < 65536 and 0 < target < 65536):
        raise ValueError(f"rank {fields['rank']} has a port that is none")
    return PlannedRank(int(fields["rank"]), _text(fields["service"]), port, _text(fields["peersService"]), target)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is not a text")
    return value
