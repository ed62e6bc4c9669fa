"""Messages of shardpool.v1 to and from `swarm.state`. What a peer sent is bounded here before anything believes it.

Every `read_*` raises MismatchError with reason `protocol` when a message breaks a bound or contradicts itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shardpool.errors import MismatchError
from shardpool.model.catalog import DIGEST_SIZE, LARGEST_PIECE
from shardpool.model.limits import DEFAULT_LIMITS
from shardpool.swarm.state import PROTOCOL, Load, Party, PeerInfo, PeerUpdate, Phase
from shardpool.wire import pool

MOST_REGIONS = 65_536
LARGEST_NIXL_METADATA = 16 * 1024**2
MOST_TRANSPORTS = 8
LONGEST_TEXT = 1024
LONGEST_IDENTITY = 64 * 1024
RECORDS_PER_UPDATE = 4096
"""Pieces that one announcement carries at most."""

_INSTANCE = re.compile(r"[0-9a-f]{32}")
_SOURCE_ID = re.compile(r"[0-9a-f]{16}")
_UNSAFE = re.compile(r"[^\x20-\x7e]")


def printable(text: str, limit: int = 300) -> str:
    """A peer's words, made fit for one line of a log or terminal."""
    text = _UNSAFE.sub("?", text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise MismatchError(f"the peer sent {what}", reason="protocol", hint="it may run another version of shardpool")


def write_party(party: Party) -> pool.Party:
    """A party as a message."""
    return pool.Party(
        protocol=party.protocol,
        instance=party.instance,
        mx_source_id=party.mx_source_id,
        rank=party.rank,
        world=party.world,
        layout=party.layout,
        catalog_digest=party.catalog_digest,
        endpoint=party.endpoint,
        identity_json=party.identity_json,
    )


def read_party(message: pool.Party) -> Party:
    """A party from a message."""
    _require(
        message.protocol == PROTOCOL,
        f"protocol version {message.protocol}, this side speaks {PROTOCOL}",
    )
    _require(bool(_INSTANCE.fullmatch(message.instance)), f"the instance {printable(message.instance, 40)!r}")
    _require(bool(_SOURCE_ID.fullmatch(message.mx_source_id)), f"the source id {printable(message.mx_source_id, 40)!r}")
    _require(message.rank < message.world <= 65_536, f"rank {message.rank} of a world of {message.world}")
    _require(len(message.layout) <= 64, f"a layout's name of {len(message.layout)} characters")
    _require(len(message.endpoint) <= LONGEST_TEXT, f"an endpoint of {len(message.endpoint)} characters")
    _require(len(message.identity_json) <= LONGEST_IDENTITY, f"an identity of {len(message.identity_json)} characters")
    _require(
        len(message.catalog_digest) in (0, DIGEST_SIZE), f"a catalog digest of {len(message.catalog_digest)} bytes"
    )
    return Party(
        instance=message.instance,
        mx_source_id=message.mx_source_id,
        identity_json=message.identity_json,
        rank=message.rank,
        world=message.world,
        layout=message.layout,
        endpoint=printable(message.endpoint),
        catalog_digest=message.catalog_digest,
        protocol=message.protocol,
    )


def write_update(update: PeerUpdate, *, outline_known: bool) -> pool.StateUpdate:
    """An announcement as a message."""
    return pool.StateUpdate(
        generation=update.generation,
        phase=pool.Phase.Name(update.phase.value),
        pieces=[piece for piece, _ in update.added],
        digests=b"".join(digest for _, digest in update.added),
        withdrawn=update.withdrawn,
        claims_changed=update.claims is not None,
        claims=sorted(update.claims or ()),
        readers=update.load.readers,
        max_readers=update.load.max_readers,
        egress_bytes_per_second=update.load.egress,
        reads_seed=update.reads_seed,
        outline_known=outline_known,
    )


def _read_phase(number: int) -> Phase:
    _require(number in (1, 2, 3), f"phase {number}")
    return Phase(number)


def _read_pieces(pieces: Iterable[int], piece_count: int) -> tuple[int, ...]:
    read = tuple(pieces)
    _require(len(set(read)) == len(read), "a piece twice in one list")
    _require(not read or max(read) < piece_count, f"piece {max(read, default=0)} of {piece_count}")
    return read


def _read_load(message: pool.StateUpdate) -> Load:
    return Load(message.readers, message.max_readers, message.egress_bytes_per_second)


def read_update(message: pool.StateUpdate, piece_count: int) -> PeerUpdate:
    """An announcement from a message, for a shard of `piece_count` pieces (0 while the outline is not known)."""
    _require(len(message.pieces) <= RECORDS_PER_UPDATE, f"{len(message.pieces)} pieces in one announcement")
    _require(len(message.withdrawn) <= RECORDS_PER_UPDATE, f"{len(message.withdrawn)} withdrawals in one announcement")
    _require(len(message.claims) <= piece_count, f"{len(message.claims)} claims on {piece_count} pieces")
    _require(
        len(message.digests) == DIGEST_SIZE * len(message.pieces),
        f"{len(message.digests)} bytes of digests for {len(message.pieces)} pieces",
    )
    pieces = _read_pieces(message.pieces, piece_count)
    digests = message.digests
    return PeerUpdate(
        generation=message.generation,
        phase=_read_phase(message.phase),
        added=tuple((piece, digests[DIGEST_SIZE * n : DIGEST_SIZE * (n + 1)]) for n, piece in enumerate(pieces)),
        withdrawn=_read_pieces(message.withdrawn, piece_count),
        claims=frozenset(_read_pieces(message.claims, piece_count)) if message.claims_changed else None,
        load=_read_load(message),
        reads_seed=message.reads_seed,
    )


def write_info(info: PeerInfo) -> pool.StateResponse:
    """The answer to a handshake as a message."""
    update = PeerUpdate(info.generation, info.phase, claims=info.claims, load=info.load, reads_seed=info.reads_seed)
    return pool.StateResponse(
        source=write_party(info.party),
        piece_count=info.piece_count,
        piece_size=info.piece_size,
        shard_size=info.shard_size,
        outline_size=info.outline_size,
        transports=info.transports,
        state=write_update(update, outline_known=bool(info.outline_size)),
    )


def read_info(message: pool.StateResponse) -> PeerInfo:
    """The answer to a handshake from a message."""
    party = read_party(message.source)
    count, size, shard, outline = message.piece_count, message.piece_size, message.shard_size, message.outline_size
    if outline == 0:
        _require(count == size == shard == 0, "a shard's size but no outline")
        _require(not party.catalog_digest, "a catalog's digest but no outline")
    else:
        _require(outline <= DEFAULT_LIMITS.encoded_bytes, f"an outline of {outline} bytes")
        _require(shard <= DEFAULT_LIMITS.total_bytes, f"a shard of {shard} bytes")
        _require(0 < size <= LARGEST_PIECE, f"a piece size of {size} bytes")
        _require(
            count == -(-shard // size) and count <= DEFAULT_LIMITS.pieces, f"{count} pieces of {size} in {shard} bytes"
        )
        _require(len(party.catalog_digest) == DIGEST_SIZE, "an outline but no catalog digest")
    _require(len(message.transports) <= MOST_TRANSPORTS, f"{len(message.transports)} transports")
    update = read_update(message.state, count)
    _require(not update.added and not update.withdrawn, "pieces in its answer to the handshake")
    return PeerInfo(
        party=party,
        phase=update.phase,
        piece_count=count,
        piece_size=size,
        shard_size=shard,
        outline_size=outline,
        transports=tuple(printable(name, 32) for name in message.transports),
        generation=update.generation,
        claims=update.claims or frozenset(),
        load=update.load,
        reads_seed=update.reads_seed,
    )


def records_to_update(
    records: Sequence[tuple[int, bytes]],
    generation: int,
    phase: Phase,
    load: Load,
    *,
    reads_seed: bool,
    claims: frozenset[int] | None = None,
) -> PeerUpdate:
    """Fold records of `Holdings.since` into one announcement: for each piece only what is true at the end."""
    last = dict(records)
    return PeerUpdate(
        generation=generation,
        phase=phase,
        added=tuple((piece, digest) for piece, digest in last.items() if digest),
        withdrawn=tuple(piece for piece, digest in last.items() if not digest),
        claims=claims,
        load=load,
        reads_seed=reads_seed,
    )


def difference(ours: Party, theirs: Party) -> MismatchError | None:
    """Why two parties cannot share pieces: the first of self, protocol, identity, rank, layout, catalog; None if they can."""
    if ours.instance == theirs.instance:
        return MismatchError("the peer is this process itself", reason="self")
    if ours.protocol != theirs.protocol:
        return MismatchError(f"protocol: ours {ours.protocol}, theirs {theirs.protocol}", reason="protocol")
    if ours.mx_source_id != theirs.mx_source_id:
        from shardpool.identity import explain_difference

        fields = printable(explain_difference(ours.identity_json, theirs.identity_json), 1000)
        text = f"mx_source_id: ours {ours.mx_source_id}, theirs {theirs.mx_source_id} ({fields})"
        return MismatchError(text, reason="identity", hint="it serves another model, revision or topology")
    if (ours.rank, ours.world) != (theirs.rank, theirs.world):
        text = f"rank: ours {ours.rank} of {ours.world}, theirs {theirs.rank} of {theirs.world}"
        return MismatchError(text, reason="rank", hint="check the Service's port and selector for this rank")
    if ours.layout != theirs.layout:
        text = f"layout: ours {ours.layout}, theirs {printable(theirs.layout, 64)}"
        return MismatchError(text, reason="catalog")
    if ours.catalog_digest and theirs.catalog_digest and ours.catalog_digest != theirs.catalog_digest:
        text = f"catalog: ours {ours.catalog_digest.hex()}, theirs {theirs.catalog_digest.hex()}"
        return MismatchError(text, reason="catalog", hint="the files of the two differ although their identity is one")
    return None
