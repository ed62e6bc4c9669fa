"""A look at what a peer says of itself and what it holds, without reading a byte of the model."""

from __future__ import annotations

import dataclasses
import json
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from blake3 import blake3

from shardpool.discovery.base import Endpoint
from shardpool.errors import MismatchError, ShardpoolError
from shardpool.settings import Settings
from shardpool.swarm.state import PeerInfo
from shardpool.transport.channel import open_channel
from shardpool.transport.client import PoolClient
from shardpool.transport.failures import from_rpc
from shardpool.wire.conversions import read_update

_AT_ONCE = 16
_UPDATE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Inspection:
    """What one endpoint answered. `held` is a number of pieces, `content_digest` is empty while pieces are missing."""

    endpoint: Endpoint
    info: PeerInfo | None = None
    held: int = 0
    held_bytes: int = 0
    content_digest: str = ""
    seconds: float = 0.0
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """For programs: plain values only."""
        if self.info is None:
            return {"endpoint": self.endpoint.target, "problem": self.problem}
        info, party = self.info, self.info.party
        return {
            "endpoint": self.endpoint.target,
            "instance": party.instance,
            "name": party.endpoint,
            "mx_source_id": party.mx_source_id,
            "identity": _identity(party.identity_json),
            "rank": party.rank,
            "world": party.world,
            "layout": party.layout,
            "phase": info.phase.name.lower(),
            "pieces": info.piece_count,
            "pieces_held": self.held,
            "pieces_claimed": len(info.claims),
            "piece_bytes": info.piece_size,
            "shard_bytes": info.shard_size,
            "held_bytes": self.held_bytes,
            "catalog_digest": party.catalog_digest.hex(),
            "content_digest": self.content_digest,
            "transports": list(info.transports),
            "readers": info.load.readers,
            "max_readers": info.load.max_readers,
            "egress_bytes_per_second": info.load.egress,
            "reads_seed": info.reads_seed,
            "answer_seconds": round(self.seconds, 4),
        }


def _identity(text: str) -> Any:
    """The identity's fields where they can be read; a peer may say anything."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def inspect_peers(endpoints: Sequence[Endpoint], settings: Settings) -> list[Inspection]:
    """Look at every endpoint, several at once; one that cannot be looked at has a `problem`."""
    if not endpoints:
        return []
    with ThreadPoolExecutor(min(len(endpoints), _AT_ONCE)) as threads:
        return list(threads.map(lambda endpoint: inspect_peer(endpoint, settings), endpoints))


def inspect_peer(endpoint: Endpoint, settings: Settings) -> Inspection:
    """Look at one endpoint: an answer within the connect deadline, the announcements within ten seconds more."""
    started = time.monotonic()
    try:
        with open_channel(endpoint, settings) as channel:
            client = PoolClient(channel, endpoint.target)
            info = client.state(None, settings.connect_seconds)
            seconds = time.monotonic() - started
            digests = _announced(client, info, endpoint)
    except ShardpoolError as error:
        return Inspection(endpoint, problem=str(error))
    held_bytes = len(digests) * info.piece_size
    if info.piece_count - 1 in digests:  # the last piece is shorter
        held_bytes -= info.piece_count * info.piece_size - info.shard_size
    content = ""
    if info.party.catalog_digest and len(digests) == info.piece_count:
        ordered = b"".join(digests[piece] for piece in range(info.piece_count))
        content = blake3(info.party.catalog_digest + ordered).hexdigest()
    return Inspection(endpoint, info, len(digests), held_bytes, content, seconds)


def _announced(client: PoolClient, info: PeerInfo, endpoint: Endpoint) -> dict[int, bytes]:
    """The pieces that the peer announced up to the generation of its answer."""
    if not info.generation:
        return {}
    # Announcements are for members of the pool, so that is how the question is put; it takes nothing and changes nothing.
    caller = dataclasses.replace(info.party, instance=secrets.token_hex(16), endpoint="inspect")
    digests: dict[int, bytes] = {}
    watch = client.watch(caller, info, timeout=_UPDATE_SECONDS)
    try:
        for message in watch:
            update = read_update(message, info.piece_count)
            digests.update(update.added)
            for piece in update.withdrawn:
                digests.pop(piece, None)
            if update.generation >= info.generation:
                return digests
    except grpc.RpcError as error:
        raise from_rpc(error, endpoint.target, "waiting for announcements") from error
    finally:
        watch.cancel()
    raise MismatchError(f"{endpoint.target} ended its announcements before it told everything", reason="protocol")
