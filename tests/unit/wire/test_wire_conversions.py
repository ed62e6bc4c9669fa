"""What peers say survives the wire, and is bounded before it is believed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from shardpool.errors import MismatchError
from shardpool.swarm.state import Load, Party, PeerInfo, PeerUpdate, Phase
from shardpool.wire import pool
from shardpool.wire.conversions import (
    difference,
    printable,
    read_info,
    read_party,
    read_update,
    records_to_update,
    write_info,
    write_party,
    write_update,
)

PARTY = Party(
    instance="0123456789abcdef" * 2,
    mx_source_id="0123456789abcdef",
    identity_json="{}",
    rank=1,
    world=4,
    layout="striped",
    endpoint="10.0.0.1:6556",
    catalog_digest=bytes(range(32)),
)
INFO = PeerInfo(
    party=PARTY,
    phase=Phase.FILLING,
    piece_count=5,
    piece_size=1 << 18,
    shard_size=4 * (1 << 18) + 1,
    outline_size=1000,
    transports=("nixl", "stream"),
    generation=3,
    claims=frozenset({1, 4}),
    load=Load(2, 8, 1_000_000),
    reads_seed=True,
)
UPDATE = PeerUpdate(
    9, Phase.READY, ((0, b"a" * 32), (4, b"b" * 32)), (2,), frozenset({3}), Load(1, 2, 3), reads_seed=True
)


def test_parties_answers_and_announcements_come_out_as_they_went_in() -> None:
    assert read_party(pool.Party.FromString(write_party(PARTY).SerializeToString())) == PARTY
    assert read_info(pool.StateResponse.FromString(write_info(INFO).SerializeToString())) == INFO
    message = write_update(UPDATE, outline_known=True).SerializeToString()
    assert read_update(pool.StateUpdate.FromString(message), 5) == UPDATE


def test_unchanged_claims_are_told_apart_from_none() -> None:
    unchanged = dataclasses.replace(UPDATE, claims=None)
    none = dataclasses.replace(UPDATE, claims=frozenset())
    assert read_update(write_update(unchanged, outline_known=True), 5).claims is None
    assert read_update(write_update(none, outline_known=True), 5).claims == frozenset()


def test_a_replica_without_an_outline_has_no_counts() -> None:
    early = dataclasses.replace(
        INFO,
        party=dataclasses.replace(PARTY, catalog_digest=b""),
        piece_count=0,
        piece_size=0,
        shard_size=0,
        outline_size=0,
        claims=frozenset(),
    )
    assert read_info(write_info(early)) == early


def test_an_empty_shard_is_a_shard() -> None:
    empty = dataclasses.replace(INFO, piece_count=0, shard_size=0, claims=frozenset())
    assert read_info(write_info(empty)) == empty


@pytest.mark.parametrize(
    "changes",
    [
        {"instance": "ABCDEF0123456789" * 2},
        {"instance": "0" * 31},
        {"mx_source_id": ""},
        {"rank": 4},
        {"world": 65_537},
        {"protocol": 0},
        {"layout": "x" * 65},
        {"endpoint": "x" * 1025},
        {"identity_json": "x" * 65_537},
        {"catalog_digest": b"x" * 31},
    ],
    ids=str,
)
def test_a_party_out_of_bounds_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MismatchError) as caught:
        read_party(write_party(dataclasses.replace(PARTY, **changes)))
    assert caught.value.reason == "protocol"


def test_records_fold_to_what_is_true_at_the_end() -> None:
    records = [(1, b"a" * 32), (2, b"b" * 32), (1, b""), (2, b""), (2, b"c" * 32)]
    update = records_to_update(records, 5, Phase.FILLING, Load(), reads_seed=False)
    assert update.added == ((2, b"c" * 32),)
    assert update.withdrawn == (1,)


def test_words_of_a_peer_fit_one_line() -> None:
    assert printable("a\nb\x1b[31m\u202e") == "a?b?[31m?"
    assert len(printable("x" * 10_000)) == 300


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"instance": PARTY.instance}, "self"),
        ({"protocol": 2}, "protocol"),
        ({"mx_source_id": "f" * 16}, "identity"),
        ({"rank": 0}, "rank"),
        ({"world": 8}, "rank"),
        ({"layout": "whole"}, "catalog"),
        ({"catalog_digest": bytes(32)}, "catalog"),
    ],
    ids=str,
)
def test_a_difference_names_its_reason(changes: dict[str, Any], reason: str) -> None:
    theirs = dataclasses.replace(PARTY, **{"instance": "f" * 32} | changes)
    error = difference(PARTY, theirs)
    assert error is not None
    assert error.reason == reason


def test_an_outline_that_one_side_does_not_know_is_no_difference() -> None:
    for ours, theirs in ((PARTY.catalog_digest, b""), (b"", PARTY.catalog_digest), (b"", b"")):
        mine = dataclasses.replace(PARTY, catalog_digest=ours)
        other = dataclasses.replace(PARTY, instance="f" * 32, catalog_digest=theirs)
        assert difference(mine, other) is None
