"""The scheduler and the seed: who reads what, when a share is taken over, when peers' pieces are read from the seed after all."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from scheduler_desk import ME, Desk, endpoint, of

from shardpool.errors import NoSourceError, PeerBusyError, PeerUnreachableError, SeedError
from shardpool.swarm.actions import Claim, Connect, Resolve
from shardpool.swarm.peer_table import FEWEST
from shardpool.swarm.rendezvous import LARGEST_GROUPS, Shares, affinity

MANY = 64


def owner(piece: int, members: list[str], pieces: int = MANY) -> str:
    """Who owns a piece, by the plain definition: the highest score."""
    return (
        Shares(members[0], pieces).leaders(piece)[0]
        if len(members) == 1
        else _shares(members, pieces).leaders(piece)[0]
    )


def _shares(members: list[str], pieces: int) -> Shares:
    shares = Shares(members[0], pieces)
    shares.update(members[1:])
    return shares


NAMES = [endpoint(number).target for number in range(8)]


# Rendezvous


def test_members_agree_on_one_owner_for_each_group() -> None:
    owned = []
    for name in NAMES:
        shares = Shares(name, 200)
        shares.update(NAMES)
        owned.append(set(shares.owned()))
    assert sorted(group for share in owned for group in share) == list(range(200))


def test_a_departure_moves_nothing_but_the_share_of_who_left() -> None:
    shares = Shares(NAMES[0], 200)
    shares.update(NAMES)
    before = {group: shares.leaders(group) for group in range(200)}
    mine = set(shares.owned())
    shares.remove(NAMES[3])
    gained = set(shares.owned()) - mine
    assert mine <= set(shares.owned())
    assert gained == {g for g in range(200) if before[g][:2] == (NAMES[3], NAMES[0])}


def test_changes_in_any_order_lead_to_the_same_shares() -> None:
    rng = random.Random(3)
    shares = Shares(NAMES[0], 100)
    present: set[str] = set()
    for _ in range(200):
        name = rng.choice(NAMES[1:])
        if name in present:
            present.discard(name)
            shares.remove(name)
        else:
            present.add(name)
            shares.add(name)
        assert len(shares) == len(present) + 1
    fresh = Shares(NAMES[0], 100)
    fresh.update(sorted(present))
    assert shares.owned() == fresh.owned()
    assert [shares.leaders(g) for g in range(100)] == [fresh.leaders(g) for g in range(100)]


def test_the_own_share_comes_surest_first() -> None:
    alone = Shares(NAMES[0], 300)
    order = alone.owned()
    alone.update(NAMES)
    kept = set(alone.owned())
    first, last = order[:60], order[-60:]
    assert sum(g in kept for g in first) > 3 * sum(g in kept for g in last)


def test_affinity_is_mutual() -> None:
    assert all(affinity(a, b) == affinity(b, a) for a in NAMES for b in NAMES)


def test_large_shards_are_shared_in_groups() -> None:
    desk = Desk(3 * LARGEST_GROUPS)
    view = desk.scheduler._view
    assert view is not None
    covered = 0
    for group in range(view.groups):
        pieces = view.pieces_of(group)
        assert not covered & pieces
        covered |= pieces
    assert covered == view.everything
    assert all(view.pieces_of(view.group_of(p)) >> p & 1 for p in (0, 1, 5000, 3 * LARGEST_GROUPS - 1))


# Shares of storage


def reading(desk: Desk, limit: int = 1000) -> list[int]:
    """Let every read succeed until nothing more is read; the pieces, in order."""
    done: list[int] = []
    for _ in range(limit):
        due = [piece for piece in desk.reads() if piece not in done]
        if not due:
            break
        done.append(due[0])
        desk.read(due[0])
    return done


def test_alone_a_replica_reads_everything() -> None:
    desk = Desk(8, reads_seed=True, seed_concurrency=3)
    desk.list(0)
    assert len(desk.reads()) == 3
    reading(desk)
    assert sorted(desk.kept()) == list(range(8))
    assert desk.end is not None


def test_the_first_read_waits_until_the_first_peers_answered() -> None:
    desk = Desk(8, reads_seed=True, settle_seconds=2.0)
    desk.list(0, 1, final=True)
    assert desk.reads() == []
    desk.close(0, PeerUnreachableError("itself"))
    assert desk.reads() == []
    desk.open(1, reads_seed=True)
    assert desk.reads()


def test_the_first_read_waits_for_a_list_that_has_the_replica_itself() -> None:
    desk = Desk(8, reads_seed=True, first_look_seconds=8.0)
    desk.list(1)
    desk.close(1, PeerUnreachableError("reset"))
    looks = of(Resolve, desk.wait(3.0))
    assert len(looks) >= 5, "it looks again while it waits"
    assert desk.reads() == []
    desk.list(0)
    assert desk.reads(), "it is alone, and knows it"


def test_the_first_read_waits_for_a_list_that_has_stopped_growing() -> None:
    desk = Desk(8, reads_seed=True, first_look_seconds=8.0)
    for peers in ((0, 1), (0, 1, 2), (0, 1, 2, 3)):
        desk.list(*peers)
        desk.wait(0.4)
        assert desk.reads() == []
    desk.scheduler.met(desk.now, endpoint(4))
    desk.wait(0.4)
    desk.list(0, 1, 2, 3)
    assert desk.reads() == [], "a peer called that the list did not have"
    desk.wait(0.2)
    desk.list(0, 1, 2, 3, 4)
    for peer in (1, 2, 3, 4):
        desk.open(peer, reads_seed=True)
    assert desk.reads()


def test_a_replica_that_no_list_has_waits_a_bounded_time() -> None:
    desk = Desk(8, reads_seed=True, first_look_seconds=8.0)
    desk.list()
    assert desk.reads(desk.wait(7.9)) == []
    assert not desk.scheduler.unlisted
    assert desk.reads(desk.wait(0.2))
    assert desk.scheduler.unlisted, "which is said"


def test_a_replica_that_is_listed_or_looks_for_nobody_is_not_said_to_be_missing() -> None:
    listed = Desk(8, first_look_seconds=8.0)
    listed.list(0, 1)
    listed.wait(10.0)
    assert not listed.scheduler.unlisted, "it was listed, if with another that may have come since"
    alone = Desk(8, reads_seed=True, first_look_seconds=0.0)
    alone.wait(1.0)
    assert alone.reads()
    assert not alone.scheduler.unlisted


def test_a_replica_without_a_seed_looks_on_and_links_in_full_as_soon_as_the_pool_is_known() -> None:
    desk = Desk(8, first_look_seconds=8.0)
    peers = {endpoint(number): number for number in range(1, 25)}
    dialled = of(Connect, desk.list(0, *peers.values()))
    assert len(dialled) == FEWEST, "it may be one of a large pool"
    for dial in dialled:
        desk.open(peers[dial.endpoint])
    desk.announce(peers[dialled[0].endpoint], *range(8))
    assert of(Resolve, desk.wait(0.8))
    dialled += of(Connect, desk.list(0, *peers.values()))
    assert {dial.endpoint for dial in dialled} >= peers.keys()


def test_a_list_that_cannot_change_and_addresses_of_services_are_not_waited_for() -> None:
    fixed = Desk(8, reads_seed=True, first_look_seconds=8.0)
    fixed.list(final=True)
    assert fixed.reads()
    service = Desk(8, reads_seed=True, first_look_seconds=8.0)
    service.scheduler.listed(0.0, [replace(endpoint(1), shared=True)])
    service.wait(1.0)
    service.scheduler.listed(service.now, [replace(endpoint(1), shared=True)])
    service.act()
    assert service.reads()


def test_a_replica_that_only_receives_expects_itself_in_no_list() -> None:
    desk = Desk(8, reads_seed=True, first_look_seconds=8.0, passes_on=False)
    desk.list(1)
    desk.close(1, PeerUnreachableError("reset"))
    desk.wait(0.6)
    desk.list(1)
    assert desk.reads()


def test_a_pool_that_cannot_be_listed_delays_the_first_read_by_a_bounded_time() -> None:
    desk = Desk(8, reads_seed=True, settle_seconds=2.0)
    desk.list(problem="SERVFAIL")
    assert desk.reads(desk.wait(1.9)) == []
    assert desk.reads(desk.wait(0.2))


def test_a_replica_reads_its_own_share_first_and_leaves_what_others_have_or_claim() -> None:
    desk = Desk(MANY, reads_seed=True, seed_concurrency=1)
    desk.list(1)
    desk.open(1, reads_seed=True)
    mine = {p for p in range(MANY) if owner(p, [ME.endpoint, endpoint(1).target]) == ME.endpoint}
    held, claimed = sorted(mine)[:2]
    desk.announce(1, held, claims=frozenset({claimed}), reads_seed=True)
    done: list[int] = []
    while len(done) < len(mine) - 4:
        piece = desk.reads()[-1]
        done.append(piece)
        desk.read(piece)
    assert set(done[2:]) <= mine - {held, claimed} or set(done) <= mine


def test_what_is_read_is_claimed() -> None:
    desk = Desk(8, reads_seed=True, seed_concurrency=2)
    desk.list(0)
    claims = of(Claim, desk.log)[-1].pieces
    assert {p for p in range(8) if claims >> p & 1} == set(desk.reads())


def test_the_share_of_a_dead_member_is_taken_over() -> None:
    desk = Desk(MANY, reads_seed=True, seed_concurrency=1)
    desk.open(1, reads_seed=True)
    desk.announce(1, reads_seed=True, claims=frozenset(range(MANY)))
    desk.wait(0.5)
    for piece in desk.reads():
        desk.read(piece)
    before = len(desk.reads())
    desk.wait(5)
    assert len(desk.reads()) == before, "all is claimed by a live member"
    desk.close(1, PeerUnreachableError("reset"))
    reading(desk)
    assert len(desk.kept()) == MANY


def test_a_claim_that_brings_nothing_is_not_respected_for_ever() -> None:
    desk = Desk(4, reads_seed=True, stall_seconds=5.0)
    desk.open(1, reads_seed=True)
    desk.announce(1, reads_seed=True, claims=frozenset(range(4)))
    for piece in desk.reads():
        desk.read(piece)
    desk.wait(20)
    reading(desk)
    for _ in range(20):
        desk.wait(1)
        reading(desk)
    assert len(desk.kept()) == 4


def test_a_claim_that_hangs_is_not_refreshed_by_the_claims_that_follow() -> None:
    desk = Desk(4, reads_seed=True, stall_seconds=5.0)
    desk.list(1)
    desk.open(1, reads_seed=True, claims=frozenset({2}))
    for second in range(20):
        desk.announce(1, reads_seed=True, claims=frozenset({2, (0, 1, 3)[second % 3]}))
        reading(desk)
        desk.wait(1)
    assert 2 in desk.kept()


def test_who_has_read_its_share_helps_a_linked_member_with_the_rest() -> None:
    desk = Desk(MANY, reads_seed=True, seed_concurrency=1)
    desk.open(1, reads_seed=True)
    done: set[int] = set()
    for _ in range(400):
        due = [piece for piece in desk.reads() if piece not in done]
        for piece in due:
            done.add(piece)
            desk.read(piece)
        desk.wait(0.2)
        if desk.end:
            break
    assert done == set(range(MANY))


def test_the_owner_of_a_lost_piece_in_a_large_pool_is_looked_for() -> None:
    desk = Desk(MANY, reads_seed=True, seed_concurrency=1, takeover_seconds=2.0)
    desk.list(*range(1, 61))
    for peer in desk.dialled(desk.log):
        desk.open(peer, reads_seed=True)
    # Nobody near has anything; the owners are strangers.
    reading(desk)
    known = {c.endpoint for c in of(Connect, desk.log)}
    looked = [c.endpoint for c in of(Connect, desk.wait(30)) if c.endpoint not in known]
    assert looked, "after its time the next in line dials the owner"


def test_only_so_many_members_read_the_seed() -> None:
    readers = 0
    for number in range(6):
        desk = Desk(MANY, reads_seed=True, seed_readers=2, settle_seconds=1.0)
        # The same six members as seen by each of them.
        desk.scheduler._me = endpoint(number).target
        assert desk.scheduler._view is not None
        desk.scheduler._view.rename(endpoint(number).target)
        others = [peer for peer in range(6) if peer != number]
        desk.list(*others, final=True)
        for peer in others:
            desk.open(peer, reads_seed=True)
        desk.wait(0.5)
        readers += bool(desk.reads())
    assert readers == 2


def test_a_member_that_cannot_read_the_seed_owns_no_share() -> None:
    desk = Desk(8, reads_seed=True, seed_concurrency=8)
    desk.list(1)
    desk.open(1, reads_seed=False)
    assert len(desk.reads()) == 8


# Failures and fallbacks


def test_a_read_that_fails_for_now_is_tried_again() -> None:
    desk = Desk(2, reads_seed=True, seed_concurrency=1)
    desk.list(0)
    piece = desk.reads()[0]
    desk.scheduler.seed_failed(desk.now, piece, SeedError("503", transient=True), transient=True)
    assert desk.reads(desk.act()) == []
    assert desk.reads(desk.wait(2)) == [piece]


def test_a_seed_that_fails_for_good_is_named_by_the_error() -> None:
    desk = Desk(2, reads_seed=True, seed_concurrency=1, wait_for_peers_seconds=3.0)
    desk.list(0)
    desk.scheduler.seed_failed(desk.now, desk.reads()[0], SeedError("403 forbidden"), transient=False)
    desk.wait(5)
    assert isinstance(desk.error, NoSourceError)
    assert "403 forbidden" in str(desk.error)


def test_pieces_that_peers_offer_are_not_read_from_the_seed() -> None:
    desk = Desk(8, reads_seed=True, settle_seconds=1.0)
    desk.list(1)
    desk.source(1)
    desk.finish(1)
    assert desk.reads() == []


def test_peers_that_stay_busy_are_replaced_by_the_seed_for_what_is_missing() -> None:
    desk = Desk(4, reads_seed=True, stall_seconds=5.0, settle_seconds=1.0)
    desk.list(1)
    desk.source(1)
    for _ in range(100):
        for link in list(desk.scheduler._links.values()):
            for piece in list(link.outstanding):
                desk.fail(1, piece, PeerBusyError("busy", retry_after=1.0))
        desk.wait(0.2)
        for piece in desk.reads():
            desk.read(piece)
        if desk.end:
            break
    assert desk.end is not None
    assert desk.end.error is None
    assert sum(desk.scheduler.tally.fallbacks.values()) >= 1


@pytest.mark.parametrize("landed", [0, 2])
def test_near_the_deadline_the_seed_helps_slow_peers(landed: int) -> None:
    desk = Desk(MANY, reads_seed=True, deadline=100.0, stall_seconds=1000.0, settle_seconds=1.0)
    desk.list(1)
    desk.source(1)
    for piece in desk.asked(1)[:landed]:
        desk.land(1, piece)
    desk.wait(49)
    early = len(desk.reads())
    desk.wait(3)
    assert len(desk.reads()) > early
    assert "the deadline is near" in desk.scheduler.tally.fallbacks
