"""What a link tells of a peer: who it is, what it has, why it is not used."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Callable

import pytest
from pool_peers import PATIENCE, Conversation, Shard, Source, make_party, make_shard

from shardpool.discovery.base import Endpoint
from shardpool.errors import (
    AbandonedError,
    MismatchError,
    PeerBusyError,
    PeerUnreachableError,
    PieceLentError,
    TransportError,
)
from shardpool.model.catalog import Catalog
from shardpool.swarm.state import Phase

Start = Callable[..., Source]
Connect = Callable[..., Conversation]


def _settle(conversation: Conversation, pieces: set[int]) -> dict[int, tuple[object, ...]]:
    outcomes: dict[int, tuple[object, ...]] = {}
    while set(outcomes) != pieces:
        event = conversation.told.next("landed", "failed")
        assert event[1] not in outcomes, f"piece {event[1]} was settled twice"
        outcomes[event[1]] = event
    return outcomes


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_whole_shard_moves_and_both_ends_leave_nothing(
    address: str, shard: Shard, start_source: Start, connect: Connect, no_thread_left: None
) -> None:
    source = start_source(shard, bind_host=address)
    talk = connect(source.endpoint)
    assert talk.told.next()[0] == "opened"
    rooms = {}
    for piece in range(shard.catalog.pieces):
        rooms[piece], views = shard.destination(piece)
        talk.link.request(piece, views)
    outcomes = _settle(talk, set(rooms))
    for piece, room in rooms.items():
        assert outcomes[piece] == ("landed", piece, shard.digest(piece))
        assert bytes(room) == shard.piece(piece)
    assert talk.told.received == len(shard.data)
    assert source.server.meter.total == len(shard.data)
    talk.transport.close()
    source.server.stop()


def test_the_default_address_serves_ipv4_and_ipv6(shard: Shard, start_source: Start, connect: Connect) -> None:
    source = start_source(shard, bind_host="")
    for host in ("127.0.0.1", "::1"):
        assert connect(Endpoint(host, source.server.port)).told.next()[0] == "opened"


def test_a_source_learns_of_whoever_watches_it_where_the_caller_says_its_own_address(
    shard: Shard, start_source: Start, connect: Connect
) -> None:
    source = start_source(shard)
    met: queue.SimpleQueue[Endpoint] = queue.SimpleQueue()
    source.state.set_met(met.put)
    connect(source.endpoint, make_party(endpoint="10.1.2.3:6555")).told.next("updated")
    connect(source.endpoint, make_party(endpoint="127.0.0.1:6555")).told.next("updated")
    assert met.get(timeout=PATIENCE) == Endpoint("127.0.0.1", 6555)
    assert met.empty()


def test_announcements_carry_what_is_held_and_then_each_change(
    shard: Shard, start_source: Start, connect: Connect
) -> None:
    source = start_source(shard, held=[1, 2])
    told = connect(source.endpoint).told
    first = told.next("updated")[1]
    assert dict(first.added) == {1: shard.digest(1), 2: shard.digest(2)}
    assert first.claims == frozenset()
    source.state.set_claims(frozenset({5, 6}))
    assert told.next("updated")[1].claims == {5, 6}
    source.state.hold(3, shard.digest(3))
    update = told.next("updated")[1]
    assert update.added == ((3, shard.digest(3)),)
    assert update.claims is None, "unchanged claims are not repeated"
    source.state.withdraw(2)
    assert told.next("updated")[1].withdrawn == (2,)
    source.state.set_phase(Phase.DRAINING)
    assert told.next("updated")[1].phase is Phase.DRAINING


def test_many_pieces_are_announced_in_bounded_messages(start_source: Start, connect: Connect) -> None:
    shard = make_shard(pieces=9000, piece_size=64, short=1)
    told = connect(start_source(shard).endpoint).told
    pieces: dict[int, bytes] = {}
    while len(pieces) < 9000:
        update = told.next("updated")[1]
        assert len(update.added) <= 4096
        pieces.update(update.added)
    assert pieces[8999] == shard.digest(8999)


def test_an_outline_that_becomes_known_later_is_told_by_opening_again(
    shard: Shard, start_source: Start, connect: Connect
) -> None:
    source = start_source(None)
    told = connect(source.endpoint).told
    assert told.next("opened")[1].outline_size == 0
    source.state.set_outline(shard.catalog)
    info = told.next("opened")[1]
    assert (info.party.catalog_digest, info.piece_count) == (shard.catalog.digest, shard.catalog.pieces)
    source.state.hold(4, shard.digest(4))
    while not (update := told.next("updated")[1]).added:
        pass
    assert update.added == ((4, shard.digest(4)),)


def test_the_outline_is_fetched_as_it_is_encoded(shard: Shard, start_source: Start, connect: Connect) -> None:
    talk = connect(start_source(shard).endpoint)
    talk.told.next("opened")
    talk.link.request_outline()
    assert Catalog.decode(talk.told.next("outline")[1]) == shard.catalog


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (
            {"mx_source_id": "fedcba9876543210", "identity_json": '{"model_name":"org/other"}'},
            ("identity", "0123456789abcdef", "fedcba9876543210", "org/model", "org/other"),
        ),
        ({"rank": 1, "world": 2}, ("rank", "1 of 2", "0 of 1")),
        ({"layout": "striped"}, ("catalog", "striped", "whole")),
        ({"catalog_digest": b"x" * 32}, ("catalog", (b"x" * 32).hex())),
    ],
)
def test_a_peer_of_another_pool_is_refused_with_both_sides(
    changes: dict[str, object], refusal: tuple[str, ...], shard: Shard, start_source: Start, connect: Connect
) -> None:
    talk = connect(start_source(shard).endpoint, make_party(**changes))
    error = talk.told.next("closed")[1]
    assert isinstance(error, MismatchError)
    assert error.reason == refusal[0]
    for text in refusal[1:]:
        assert text in str(error)
    assert "\n" not in str(error)
    assert not any(event[0] == "opened" for event in talk.told.seen)


def test_a_process_does_not_read_from_itself(shard: Shard, start_source: Start, connect: Connect) -> None:
    source = start_source(shard)
    error = connect(source.endpoint, source.state.party()).told.next("closed")[1]
    assert isinstance(error, MismatchError)
    assert error.reason == "self"


def test_a_full_source_says_when_to_come_back(shard: Shard, start_source: Start, connect: Connect) -> None:
    source = start_source(shard, max_readers=1)
    first, second = connect(source.endpoint), connect(source.endpoint)
    for talk in (first, second):
        talk.told.next("opened")
    first.link.request(0, shard.destination(0)[1])
    assert first.told.next("landed", "failed")[0] == "landed"
    second.link.request(0, shard.destination(0)[1])
    error = second.told.next("landed", "failed")[2]
    assert isinstance(error, PeerBusyError)
    assert 0 < error.retry_after <= 5
    first.link.close()
    first.told.next("closed")
    assert source.server.leases.wait_until_none(10)
    second.link.request(0, shard.destination(0)[1])
    assert second.told.next("landed", "failed")[0] == "landed"


def test_an_idle_reader_gives_its_place_back_and_may_come_again(
    shard: Shard, start_source: Start, connect: Connect
) -> None:
    source = start_source(shard)
    talk = connect(source.endpoint)
    talk.told.next("opened")
    for _ in range(2):
        talk.link.request(3, shard.destination(3)[1])
        assert talk.told.next("landed", "failed")[0] == "landed"
        assert len(source.server.leases) == 1
        assert source.server.leases.wait_until_none(10), "the idle lease was not given back"
    assert {event[0] for event in talk.told.rest()} <= {"updated"}


def test_a_piece_that_is_not_held_fails_alone(shard: Shard, start_source: Start, connect: Connect) -> None:
    talk = connect(start_source(shard, held=[0, 2]).endpoint)
    talk.told.next("opened")
    for piece in (0, 1, 2):
        talk.link.request(piece, shard.destination(piece)[1])
    outcomes = _settle(talk, {0, 1, 2})
    assert [outcomes[piece][0] for piece in (0, 1, 2)] == ["landed", "failed", "landed"]
    assert isinstance(outcomes[1][2], TransportError)


def test_an_abandoned_piece_is_settled_and_never_written_again(start_source: Start, connect: Connect) -> None:
    shard = make_shard(pieces=4, piece_size=1 << 22)
    source = start_source(shard, egress_limit_mbps=40)
    talk = connect(source.endpoint)
    talk.told.next("opened")
    rooms = {}
    for piece in range(3):
        rooms[piece], views = shard.destination(piece)
        talk.link.request(piece, views)
    talk.link.abandon(0)
    talk.link.abandon(1)
    outcomes = _settle(talk, {0, 1})
    assert all(isinstance(outcomes[piece][2], AbandonedError) for piece in (0, 1))
    before = bytes(rooms[0])
    source.server.set_egress_limit(0)
    again, views = shard.destination(0)
    talk.link.request(0, views)
    outcomes = _settle(talk, {0, 2})
    assert [outcomes[piece][0] for piece in (0, 2)] == ["landed", "landed"]
    assert bytes(again) == shard.piece(0)
    assert bytes(rooms[0]) == before
    assert bytes(rooms[1]) == bytes(len(rooms[1]))
    assert source.server.meter.total < len(shard.data), "a piece that was given up was sent all the same"


def test_closing_settles_everything_before_it_is_told(start_source: Start, connect: Connect) -> None:
    shard = make_shard(pieces=6, piece_size=1 << 20)
    source = start_source(shard, egress_limit_mbps=8)
    talk = connect(source.endpoint)
    talk.told.next("opened")
    for piece in range(6):
        talk.link.request(piece, shard.destination(piece)[1])
    talk.link.close()
    assert talk.told.next("closed")[1] is None
    settled = [event[1] for event in talk.told.seen if event[0] in ("landed", "failed")]
    assert sorted(settled) == list(range(6))
    talk.link.request(0, shard.destination(0)[1])
    assert isinstance(talk.told.next("failed")[2], AbandonedError)
    assert source.server.leases.wait_until_none(10)


def test_requests_that_make_no_sense_are_errors_of_the_caller(
    shard: Shard, start_source: Start, connect: Connect
) -> None:
    talk = connect(start_source(shard).endpoint)
    talk.told.next("opened")
    room, views = shard.destination(0)
    for piece, destination in ((99, views), (-1, views), (0, [memoryview(room)[1:]])):
        with pytest.raises(ValueError, match="piece"):
            talk.link.request(piece, destination)


def test_a_source_that_stops_closes_the_link_and_fails_what_is_under_way(start_source: Start, connect: Connect) -> None:
    shard = make_shard(pieces=4, piece_size=1 << 20)
    source = start_source(shard, egress_limit_mbps=8)
    talk = connect(source.endpoint)
    talk.told.next("opened")
    talk.link.request(0, shard.destination(0)[1])
    talk.told.next("updated")
    source.server.stop()
    error = talk.told.next("closed")[1]
    assert isinstance(error, (PeerUnreachableError, TransportError))
    assert [event[0] for event in talk.told.seen if event[0] in ("landed", "failed")] == ["failed"]


def test_a_source_that_restarted_at_the_same_address_is_not_taken_for_the_old_one(
    shard: Shard, start_source: Start, connect: Connect
) -> None:
    first = start_source(shard)
    talk = connect(first.endpoint)
    old = talk.told.next("opened")[1].party.instance
    first.server.stop()
    talk.told.next("closed")
    second = start_source(shard, port=first.server.port)
    again = connect(second.endpoint)
    assert again.told.next("opened")[1].party.instance != old


def test_calls_for_another_instance_are_refused(shard: Shard, start_source: Start, connect: Connect) -> None:
    from shardpool.settings import Settings
    from shardpool.transport.channel import open_channel
    from shardpool.transport.client import PoolClient

    source = start_source(shard)
    with open_channel(source.endpoint, Settings()) as channel:
        client = PoolClient(channel, "source")
        info = client.state(None, 5)
        stale = dataclasses.replace(info, party=dataclasses.replace(info.party, instance="0" * 32))
        calls = (
            lambda: client.acquire(make_party(), stale, "stream", 5),
            lambda: client.outline(make_party(), stale, 5),
        )
        for call in calls:
            with pytest.raises(MismatchError) as caught:
                call()
            assert caught.value.reason == "instance"


def test_a_draining_source_lets_leased_reads_finish_and_takes_no_new_ones(
    start_source: Start, connect: Connect
) -> None:
    shard = make_shard(pieces=4, piece_size=1 << 20)
    source = start_source(shard, egress_limit_mbps=30)
    leased, late = connect(source.endpoint), connect(source.endpoint)
    for talk in (leased, late):
        talk.told.next("opened")
    for piece in range(3):
        leased.link.request(piece, shard.destination(piece)[1])
    leased.told.next("landed")

    drained: list[bool] = []
    thread = threading.Thread(target=lambda: drained.append(source.server.drain(20)))
    thread.start()
    while late.told.next("updated")[1].phase is not Phase.DRAINING:
        pass
    late.link.request(0, shard.destination(0)[1])
    assert isinstance(late.told.next("landed", "failed")[2], TransportError)
    _settle(leased, {1, 2})
    thread.join(30)
    assert drained == [True]
    assert [event[0] for event in leased.told.seen if event[0] in ("landed", "failed")] == ["landed"] * 3


def _watchers(source: Source, connect: Connect) -> list[Conversation]:
    """Two receivers that a source knows."""
    talks = [connect(source.endpoint, make_party()) for _ in range(2)]
    for talk in talks:
        talk.told.next("updated")
    return talks


def test_a_complete_source_gives_each_first_copy_to_one_receiver(
    shard: Shard, start_source: Start, connect: Connect
) -> None:
    source = start_source(shard)
    one, other = _watchers(source, connect)
    for piece in (0, 1):
        one.link.request(piece, shard.destination(piece)[1], first=True)
    _settle(one, {0, 1})
    for piece in (0, 2):
        other.link.request(piece, shard.destination(piece)[1], first=True)
    outcomes = _settle(other, {0, 2})
    assert outcomes[2] == ("landed", 2, shard.digest(2))
    error = outcomes[0][2]
    assert isinstance(error, PieceLentError)
    assert error.lent == 0b11
    sent = source.server.meter.total
    assert sent == sum(shard.catalog.piece_length(piece) for piece in (0, 1, 2))
    other.link.request(0, shard.destination(0)[1])
    assert _settle(other, {0})[0] == ("landed", 0, shard.digest(0)), "without conditions it sends what it holds"


def test_a_source_lends_again_what_a_receiver_that_left_was_sent(
    shard: Shard, start_source: Start, connect: Connect
) -> None:
    source = start_source(shard)
    one, other = _watchers(source, connect)
    one.link.request(0, shard.destination(0)[1], first=True)
    _settle(one, {0})
    one.link.close()
    one.told.next("closed")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        other.link.request(0, shard.destination(0)[1], first=True)
        outcome = _settle(other, {0})[0]
        if outcome[0] == "landed":
            break
        assert isinstance(outcome[2], PieceLentError)
    assert outcome == ("landed", 0, shard.digest(0))


def test_a_source_that_is_still_filling_sends_to_everybody(shard: Shard, start_source: Start, connect: Connect) -> None:
    source = start_source(shard, held=[0])
    for talk in _watchers(source, connect):
        talk.link.request(0, shard.destination(0)[1], first=True)
        assert _settle(talk, {0})[0] == ("landed", 0, shard.digest(0))
