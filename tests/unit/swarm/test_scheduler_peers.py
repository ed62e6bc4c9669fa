"""The scheduler and peers: whom it dials, when it waits, how a load without sources ends."""

from __future__ import annotations

import pytest
from scheduler_desk import ME, Desk, digest_of, endpoint, of, update

from shardpool.discovery.base import Endpoint
from shardpool.errors import (
    CatalogError,
    DeadlineExceededError,
    IntegrityError,
    MismatchError,
    NoSourceError,
    PeerUnreachableError,
    SeedError,
)
from shardpool.swarm.actions import Connect, RequestOutline, Resolve, Scan
from shardpool.swarm.digests import content_digest
from shardpool.swarm.peer_table import EVERY_PEER, degree
from shardpool.swarm.state import Phase

OTHER = MismatchError("identity: model_name differs", reason="identity")


def test_every_endpoint_is_tried_before_any_pause() -> None:
    desk = Desk(8)
    tried = desk.dialled(desk.list(*range(1, 11)))
    for peer in tried:
        assert not of(Resolve, desk.log[1:]), "no new round while one is untried"
        desk.close(peer, PeerUnreachableError("refused"))
    assert sorted(tried) == list(range(1, 11))
    again = desk.wait(2)
    assert of(Resolve, again)
    assert sorted(set(desk.dialled(again))) == sorted(tried)


def test_an_endpoint_that_does_not_answer_keeps_no_other_from_being_tried() -> None:
    desk = Desk(8)
    assert sorted(desk.dialled(desk.list(1, 2, 3))) == [1, 2, 3]


def test_a_pool_of_wrong_pods_is_searched_to_its_last_endpoint_without_a_pause() -> None:
    desk = Desk(8)
    desk.list(*range(1, 101))
    refused = 0
    while True:
        waiting = [n for n in desk.dialled(desk.log) if n not in desk.links]
        if not waiting:
            break
        for peer in waiting:
            desk.links[peer] = desk.link_of(peer)
            desk.close(peer, OTHER)
            refused += 1
    assert refused == 100
    assert desk.now == 0.0


def test_a_large_pool_is_not_linked_in_full() -> None:
    desk = Desk(8)
    desk.list(*range(1, 201))
    for peer in desk.dialled(desk.log):
        desk.open(peer)
    assert len(desk.links) == degree(200)
    assert degree(200) < EVERY_PEER


def test_this_replica_is_skipped_by_instance() -> None:
    desk = Desk(8)
    desk.list(1)
    link = desk.link_of(1)
    desk.scheduler.opened(desk.now, link, desk.info(1, instance=ME.instance))
    desk.act()
    desk.scheduler.closed(desk.now, link, None)
    assert not desk.dialled(desk.wait(20))


def test_a_link_to_itself_that_the_transport_refuses_is_not_tried_again() -> None:
    desk = Desk(8)
    desk.list(1)
    desk.close(1, MismatchError("itself", reason="self"))
    assert not desk.dialled(desk.wait(20))
    assert desk.scheduler.tally.rejected == {}


def test_a_second_address_of_a_linked_peer_is_not_used_until_the_first_is_gone() -> None:
    desk = Desk(8)
    desk.list(1, 2)
    desk.open(1, instance="7" * 32)
    desk.open(2, instance="7" * 32)
    assert desk.closed(2)
    desk.close(2)
    assert not desk.dialled(desk.wait(5))
    desk.close(1, PeerUnreachableError("reset"))
    assert 2 in desk.dialled(desk.wait(10))


def test_a_restarted_peer_is_agreed_with_again_at_once() -> None:
    desk = Desk(8)
    desk.open(1)
    again = desk.close(1, MismatchError("another instance", reason="instance"))
    assert desk.dialled(again) == [1]
    assert desk.dialled(desk.close(1, MismatchError("yet another", reason="instance"))) == [], "once a round"


def test_peers_replaced_by_new_addresses_are_found_while_running() -> None:
    desk = Desk(8)
    desk.source(1)
    desk.wait(1)
    desk.close(1, PeerUnreachableError("reset"))
    assert desk.dialled(desk.list(7, 8)) or desk.dialled(desk.wait(1))
    assert {7, 8} <= set(desk.dialled(desk.log))


def test_a_peer_that_calls_is_called_back_before_it_is_listed() -> None:
    desk = Desk()
    desk.list(1)
    desk.scheduler.met(desk.now, endpoint(2))
    assert desk.dialled(desk.act()) == [2]


def test_a_peer_that_calls_and_is_linked_is_not_dialled_again() -> None:
    desk = Desk()
    desk.open(1)
    desk.scheduler.met(desk.now, endpoint(1))
    desk.scheduler.met(desk.now, endpoint(0))
    assert not desk.dialled(desk.act())


def test_callers_are_not_called_back_where_no_peers_are_wanted() -> None:
    desk = Desk(meets_callers=False)
    desk.scheduler.met(desk.now, endpoint(1))
    assert not desk.dialled(desk.act())


def test_what_calls_without_being_listed_is_bounded() -> None:
    desk = Desk()
    for peer in range(2, 200):
        desk.scheduler.met(desk.now, endpoint(peer))
    assert len(desk.dialled(desk.act())) <= 32


def test_a_failed_listing_makes_no_endpoint_unknown() -> None:
    desk = Desk(8)
    desk.list(1, 2)
    desk.open(1)
    desk.close(2, PeerUnreachableError("refused"))
    desk.list(problem="SERVFAIL")
    assert 2 in desk.dialled(desk.wait(5))


def test_a_shared_address_is_dialled_again_to_reach_other_peers() -> None:
    desk = Desk(8)
    shared = Endpoint("service", 1, shared=True)
    desk.scheduler.listed(0.0, [shared], "")
    desk.act()
    first = of(Connect, desk.log)[-1].link
    desk.scheduler.closed(desk.now, first, OTHER)
    assert [c.endpoint for c in of(Connect, desk.wait(3))][:1] == [shared]


def test_a_peer_with_another_catalog_is_refused_by_name() -> None:
    desk = Desk(8)
    desk.open(1, outline=b"x" * 32)
    assert desk.closed(1)
    assert "catalog differs" in desk.scheduler.tally.rejected[endpoint(1).target]


def test_a_peer_that_learns_another_outline_later_is_refused_then() -> None:
    desk = Desk(8)
    link = desk.open(1, outline=b"", outline_size=0)
    desk.scheduler.opened(desk.now, link, desk.info(1, outline=b"x" * 32))
    desk.act()
    assert desk.closed(1)


# The outline


def test_the_outline_is_asked_of_a_peer_with_the_most_common_one() -> None:
    desk = Desk(0, settle_seconds=1.0)
    desk.list(1, 2, 3)
    desk.open(1, outline=b"x" * 32)
    desk.open(2)
    desk.open(3)
    (asked,) = of(RequestOutline, desk.log)
    assert asked.link in (desk.links[2], desk.links[3])


def test_a_refused_outline_is_asked_of_another_peer_and_its_sender_dropped() -> None:
    desk = Desk(0)
    desk.list(1, 2)
    desk.open(1)
    desk.open(2)
    first = of(RequestOutline, desk.log)[0].link
    desk.scheduler.outline_refused(desk.now, first, CatalogError("overlap"))
    desk.act()
    assert of(RequestOutline, desk.log)[1].link != first


def test_an_outline_that_does_not_come_is_asked_of_another_peer() -> None:
    desk = Desk(0, stall_seconds=3.0)
    desk.list(1, 2)
    desk.open(1)
    desk.open(2)
    desk.wait(4)
    assert len({asked.link for asked in of(RequestOutline, desk.log)}) == 2


def test_announcements_before_the_outline_are_not_lost() -> None:
    desk = Desk(0)
    desk.open(1)
    desk.announce(1, 2, 3)
    desk.plan(8)
    desk.wait(1)
    assert sorted(desk.asked(1)) == [2, 3]


def test_the_seed_is_scanned_when_no_peer_has_the_outline() -> None:
    desk = Desk(0, reads_seed=True)
    desk.list(1)
    desk.close(1, PeerUnreachableError("refused"))
    assert len(of(Scan, desk.log)) == 1


# Ends


def test_no_peer_listed_and_no_seed_ends_with_one_line_after_the_wait() -> None:
    desk = Desk(8, wait_for_peers_seconds=30.0)
    desk.list(problem="SERVFAIL")
    desk.wait(29)
    assert desk.end is None
    desk.wait(2)
    assert isinstance(desk.error, NoSourceError)
    assert "SERVFAIL" in str(desk.error)
    assert "\n" not in str(desk.error)


def test_an_error_names_every_peer_and_why_it_was_not_used() -> None:
    desk = Desk(8, wait_for_peers_seconds=10.0)
    desk.list(1, 2, 3)
    desk.close(1, OTHER)
    desk.close(2, PeerUnreachableError("connection refused"))
    desk.open(3)
    for _ in range(40):
        desk.wait(0.5)
        for peer, error in ((1, OTHER), (2, PeerUnreachableError("connection refused"))):
            if desk.link_of(peer) in desk.scheduler._links:
                desk.close(peer, error)
    assert isinstance(desk.error, NoSourceError)
    for text in ("10.0.0.1:1", "model_name differs", "10.0.0.2:1", "connection refused", "10.0.0.3:1", "holds nothing"):
        assert text in str(desk.error)


def test_endpoints_that_all_belong_to_another_pool_give_a_mismatch_with_its_reason() -> None:
    desk = Desk(8, wait_for_peers_seconds=5.0)
    desk.list(1, 2)
    for _ in range(40):
        for peer in (1, 2):
            if desk.link_of(peer) in desk.scheduler._links:
                desk.close(peer, OTHER)
        desk.wait(0.5)
    assert isinstance(desk.error, MismatchError)
    assert desk.error.reason == "identity"
    assert "model_name differs" in str(desk.error)


def test_the_deadline_ends_a_load_whatever_is_under_way() -> None:
    desk = Desk(8, deadline=20.0, stall_seconds=100.0)
    desk.source(1)
    desk.wait(21)
    assert isinstance(desk.error, DeadlineExceededError)
    assert "8 of 8 pieces missing" in str(desk.error)


def test_peers_that_can_read_the_seed_are_waited_for() -> None:
    desk = Desk(8, wait_for_peers_seconds=5.0)
    desk.open(1, reads_seed=True)
    desk.wait(60)
    assert desk.end is None


def test_a_disputed_piece_without_a_seed_is_named() -> None:
    desk = Desk(2, wait_for_peers_seconds=5.0)
    desk.list(1, 2)
    desk.open(1)
    desk.open(2)
    desk.scheduler.updated(0.0, desk.links[1], update([0]))
    desk.scheduler.updated(0.0, desk.links[2], update([0], wrong="lie"))
    desk.act()
    desk.wait(10)
    assert isinstance(desk.error, NoSourceError)
    assert "different digests for piece 0" in str(desk.error)


# A pinned content digest

PINNED = content_digest(b"o" * 32, [digest_of(piece) for piece in range(4)])


def test_a_complete_list_that_is_not_the_pinned_content_is_refused_before_anything_is_read() -> None:
    desk = Desk(4, content_digest=PINNED)
    desk.open(1, phase=Phase.READY)
    desk.announce(1, *range(4), wrong="lie", phase=Phase.READY)
    desk.wait(1)
    assert desk.closed(1)
    assert desk.asked(1) == []


def test_the_pinned_content_decides_between_contradicting_peers() -> None:
    desk = Desk(4, content_digest=PINNED)
    desk.open(1)
    desk.open(2, phase=Phase.READY)
    desk.scheduler.updated(desk.now, desk.links[1], update([2], wrong="lie"))
    desk.announce(2, *range(4), phase=Phase.READY)
    desk.finish(2)
    assert 2 not in desk.asked(1)
    assert 2 in desk.asked(2)
    assert desk.end is not None
    assert desk.end.error is None


def test_other_content_than_the_pinned_is_an_integrity_error() -> None:
    desk = Desk(2, content_digest=PINNED)
    desk.open(1)
    desk.announce(1, 0, wrong="lie")
    desk.wait(1)
    desk.land(1, 0, wrong="lie")
    desk.open(2)
    desk.announce(2, 1)
    desk.wait(1)
    desk.land(2, 1)
    assert isinstance(desk.error, IntegrityError)
    assert PINNED.hex() in str(desk.error)


def test_a_seed_that_is_lost_leaves_the_peers() -> None:
    desk = Desk(8, reads_seed=True, wait_for_peers_seconds=5.0)
    desk.scheduler.seed_lost(0.0, SeedError("no such bucket"))
    desk.list(1)
    desk.close(1, PeerUnreachableError("refused"))
    desk.source(2)
    desk.wait(1)
    assert desk.asked(2)


@pytest.mark.parametrize("error", [None, SeedError("boom")])
def test_an_end_asked_for_is_final(error: SeedError | None) -> None:
    desk = Desk(8)
    desk.scheduler.fail(error or SeedError("other"))
    desk.act()
    desk.scheduler.fail(SeedError("later"))
    desk.act()
    assert desk.error is not None
    assert "later" not in str(desk.error)
