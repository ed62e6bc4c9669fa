"""What replicas say of themselves, apart from how it travels."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

PROTOCOL = 1


class Phase(enum.Enum):
    """Where a replica is in its life. The values are those of `shardpool.v1.Phase`."""

    FILLING = 1
    READY = 2
    DRAINING = 3


@dataclass(frozen=True, slots=True)
class Party:
    """How a replica's process for one rank names itself. `instance` is 32 hex digits, unique per process start.

    `endpoint` is a key for hashing and a text for logs; it is dialled only where the party's own connection comes from that address.
    `catalog_digest` is empty while the outline is unknown.
    """

    instance: str
    mx_source_id: str
    identity_json: str
    rank: int
    world: int
    layout: str
    endpoint: str = ""
    catalog_digest: bytes = b""
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a source is; `egress` in bytes per second."""

    readers: int = 0
    max_readers: int = 0
    egress: int = 0


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """A source's answer to the handshake. The counts are 0 while it does not know its outline."""

    party: Party
    phase: Phase
    piece_count: int
    piece_size: int
    shard_size: int
    outline_size: int
    transports: tuple[str, ...]
    generation: int = 0
    claims: frozenset[int] = frozenset()
    load: Load = Load()
    reads_seed: bool = False


@dataclass(frozen=True, slots=True)
class PeerUpdate:
    """An announcement: what changed since the last one. `claims` is None where unchanged, else the whole new set."""

    generation: int
    phase: Phase
    added: tuple[tuple[int, bytes], ...] = ()
    withdrawn: tuple[int, ...] = ()
    claims: frozenset[int] | None = None
    load: Load = field(default_factory=Load)
    reads_seed: bool = False
