"""The scheduler and pieces: who is asked, what counts, whose memory it is, when a transfer is given up."""

from __future__ import annotations

from scheduler_desk import Desk, digest_of, of, update

from shardpool.errors import AbandonedError, LeaseError, PeerBusyError, PeerUnreachableError, PieceLentError
from shardpool.swarm.actions import SEED, Abandon, Keep, Withdraw
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.peer_link import DEPTH
from shardpool.swarm.scheduler import STRIKES
from shardpool.swarm.state import Load, Phase


def test_a_load_from_one_source_keeps_every_piece_and_ends() -> None:
    desk = Desk(8)
    desk.source(1)
    desk.finish(1)
    assert sorted(desk.kept()) == list(range(8))
    assert desk.end is not None
    assert desk.end.error is None


def test_a_shard_without_bytes_is_complete_at_once() -> None:
    desk = Desk(0)
    desk.plan(0)
    assert desk.end is not None
    assert desk.end.error is None


def test_what_the_store_holds_already_is_not_fetched() -> None:
    desk = Desk(0)
    desk.plan(3, held={0: digest_of(0), 2: digest_of(2)})
    desk.source(1)
    desk.wait(1)
    assert desk.asked(1) == [1]


def test_several_sources_are_read_from_at_once_and_no_piece_twice() -> None:
    desk = Desk(40)
    for peer in (1, 2, 3):
        desk.source(peer)
    desk.wait(1)
    asked = [desk.asked(peer) for peer in (1, 2, 3)]
    assert all(asked)
    together = [piece for pieces in asked for piece in pieces]
    assert len(together) == len(set(together))


def test_a_partial_source_is_asked_for_what_it_has() -> None:
    desk = Desk(8)
    desk.open(1)
    desk.announce(1, 3, 5)
    desk.wait(1)
    assert sorted(desk.asked(1)) == [3, 5]


def test_the_rarest_piece_is_asked_for_first() -> None:
    desk = Desk(8)
    for peer in (1, 2, 3):
        desk.open(peer)
    desk.announce(1, *range(7))
    desk.announce(2, *range(7))
    desk.announce(3, *range(8))
    # Piece 7 is scarce: it is left to its owner for a moment, then it comes before what others have as well.
    desk.wait(0.5)
    (follower,) = desk.requests(desk.land(3, desk.asked(3)[0])) or desk.requests(peer=3)[-1:]
    assert 7 in desk.asked(3) or follower.piece == 7


def test_a_wrong_piece_is_fetched_elsewhere_and_its_sender_dropped_at_the_second_strike() -> None:
    desk = Desk(8)
    desk.source(1)
    desk.wait(1)
    first, second = desk.asked(1)[:2]
    desk.land(1, first, wrong="!")
    assert not desk.closed(1)
    assert first not in desk.kept()
    desk.land(1, second, wrong="!")
    assert desk.closed(1)
    assert STRIKES == 2
    desk.close(1)
    desk.source(2)
    desk.finish(2)
    assert {first, second} <= set(desk.asked(2))
    assert desk.scheduler.tally.rejections["corrupt"] == 2


def test_a_dropped_instance_stays_dropped_and_its_successor_does_not() -> None:
    desk = Desk(8)
    desk.source(1)
    desk.wait(1)
    for piece in desk.asked(1)[:2]:
        desk.land(1, piece, wrong="!")
    desk.close(1)
    desk.wait(10)
    desk.open(1)
    assert desk.closed(1)
    desk.close(1)
    desk.wait(20)
    desk.open(1, instance="5" * 32)
    assert not desk.closed(1)


def test_a_busy_source_is_left_alone_for_as_long_as_it_asked() -> None:
    desk = Desk(8)
    desk.source(1)
    desk.wait(0.5)
    asked = desk.asked(1)
    for piece in asked:
        desk.fail(1, piece, PeerBusyError("busy", retry_after=4.0))
    assert not desk.requests(desk.wait(3.9))
    assert desk.requests(desk.wait(2.5))


def test_a_refused_reader_comes_back_as_soon_as_a_place_is_announced() -> None:
    desk = Desk(8)
    desk.source(1, load=Load(readers=7, max_readers=8))
    desk.wait(0.5)
    for piece in desk.asked(1):
        desk.fail(1, piece, PeerBusyError("busy", retry_after=4.0))
    assert desk.requests(desk.announce(1, load=Load(readers=7, max_readers=8), phase=Phase.READY), peer=1)


def test_a_source_without_a_place_is_not_asked_until_it_has_one() -> None:
    desk = Desk(8)
    full = Load(readers=8, max_readers=8)
    desk.source(1, load=full)
    assert not desk.requests(desk.wait(5))
    assert desk.requests(desk.announce(1, load=Load(readers=7, max_readers=8), phase=Phase.READY), peer=1)


def test_a_full_source_that_this_replica_reads_from_goes_on_being_asked() -> None:
    desk = Desk(8)
    desk.source(1)
    desk.wait(0.5)
    first = desk.asked(1)[0]
    desk.announce(1, load=Load(readers=8, max_readers=8), phase=Phase.READY)
    assert desk.requests(desk.land(1, first), peer=1)


def test_while_one_source_is_busy_another_is_asked() -> None:
    desk = Desk(2)
    desk.source(1)
    desk.wait(1)
    piece = desk.asked(1)[0]
    desk.fail(1, piece, PeerBusyError("busy", retry_after=4.0))
    desk.source(2)
    desk.wait(1)
    assert piece in desk.asked(2)


def test_a_link_without_a_byte_of_progress_is_closed_and_its_pieces_are_asked_for_elsewhere() -> None:
    desk = Desk(2, stall_seconds=5.0)
    desk.source(1)
    desk.wait(1)
    assert sorted(desk.asked(1)) == [0, 1]
    desk.source(2)
    desk.wait(3.5)
    desk.scheduler.progress(desk.now, desk.links[1], desk.asked(1)[0], 1)
    desk.wait(4.9)
    assert not desk.closed(1), "a byte arrived less than five seconds ago"
    desk.wait(0.2)
    assert desk.closed(1)
    assert sorted(set(desk.asked(2))) == [0, 1]


def test_a_piece_that_does_not_come_while_others_do_is_given_up_and_may_be_asked_for_again() -> None:
    desk = Desk(3, stall_seconds=2.0)
    desk.source(1)
    desk.wait(0.5)
    stuck, other = desk.asked(1)[:2]
    for _ in range(60):
        desk.wait(0.5)
        desk.scheduler.progress(desk.now, desk.links[1], other, 1)
        if desk.abandoned(1):
            break
    assert desk.abandoned(1) == [stuck]
    assert not desk.closed(1)
    desk.fail(1, stuck, AbandonedError("given up"))
    desk.land(1, other)
    desk.wait(1)
    assert desk.asked(1).count(stuck) == 2


def test_memory_that_an_abandoned_transfer_may_write_to_is_not_used_again() -> None:
    desk = Desk(1, stall_seconds=5.0)
    desk.source(1)
    desk.wait(6)
    assert desk.closed(1)
    desk.source(2)
    desk.wait(1)
    (again,) = desk.requests(peer=2)
    assert again.scratch
    assert not of(Keep, desk.land(2, 0)), "the first transfer still owns the place"
    settled = desk.fail(1, 0, AbandonedError("given up"))
    assert of(Keep, settled) == [Keep(0, digest_of(0), desk.links[2], True)]


def test_a_first_copy_that_lands_after_all_frees_the_place_for_the_second() -> None:
    desk = Desk(1, stall_seconds=5.0)
    desk.source(1)
    desk.wait(6)
    desk.source(2)
    desk.wait(1)
    desk.land(2, 0)
    assert desk.kept() == []
    desk.land(1, 0)
    assert desk.kept() == [0]
    assert desk.end is not None
    assert desk.end.error is None


def test_a_slow_last_piece_is_asked_for_twice_and_the_loser_given_up() -> None:
    desk = Desk(2)
    desk.source(1)
    desk.wait(0.5)
    desk.land(1, desk.asked(1)[0])
    last = desk.asked(1)[1]
    desk.source(2)
    desk.wait(5)
    (again,) = desk.requests(peer=2)
    assert (again.piece, again.scratch) == (last, True)
    assert Abandon(desk.links[1], last) in desk.land(2, last)


def test_a_piece_under_way_at_good_speed_is_not_asked_for_twice() -> None:
    desk = Desk(2)
    desk.source(1)
    desk.wait(1)
    desk.land(1, desk.asked(1)[0])
    desk.source(2)
    desk.wait(0.2)
    assert not desk.requests(peer=2)


def test_a_lost_connection_costs_the_pieces_in_flight_only() -> None:
    desk = Desk(8)
    desk.source(1)
    desk.wait(1)
    kept, *lost = desk.asked(1)
    desk.land(1, kept)
    lost = [piece for piece in desk.asked(1) if piece != kept]
    desk.source(2)
    for piece in lost:
        desk.fail(1, piece, PeerUnreachableError("reset"))
    desk.close(1, PeerUnreachableError("reset"))
    desk.finish(2)
    assert kept not in desk.asked(2)
    assert set(lost) <= set(desk.asked(2))


def test_reads_that_fail_again_and_again_end_the_link() -> None:
    desk = Desk(40)
    desk.source(1)
    desk.wait(1)
    for _ in range(3):
        desk.fail(1, [r.piece for r in desk.requests(peer=1)][-1], LeaseError("expired"))
        desk.wait(0.1)
    assert desk.closed(1)


def test_a_draining_source_is_asked_for_nothing_new() -> None:
    desk = Desk(40)
    desk.source(1)
    desk.wait(1)
    before = desk.asked(1)
    desk.announce(1, phase=Phase.DRAINING, added=())
    desk.land(1, before[0])
    desk.wait(5)
    assert desk.asked(1) == before


def test_a_withdrawn_piece_is_not_asked_for() -> None:
    desk = Desk(8)
    desk.open(1)
    desk.announce(1, 4, withdrawn=(4,))
    desk.wait(2)
    assert desk.asked(1) == []


def test_a_complete_replica_that_others_read_from_comes_last_while_fillers_can_serve() -> None:
    desk = Desk(40)
    fillers = range(2, 8)
    desk.list(1, *fillers)
    desk.open(1, phase=Phase.READY)
    for peer in fillers:
        desk.open(peer)
    for peer in fillers:
        desk.scheduler.updated(desk.now, desk.links[peer], update(range(40)))
    busy = Load(readers=5, max_readers=8)
    desk.announce(1, *range(40), phase=Phase.READY, load=busy)
    assert sum(len(desk.asked(peer)) for peer in fillers) == DEPTH * SwarmOptions().sources
    assert desk.asked(1) == []


def test_an_announcement_out_of_range_ends_the_link() -> None:
    desk = Desk(8)
    desk.open(1)
    desk.announce(1, 8)
    assert desk.closed(1)
    assert desk.scheduler.tally.rejections == {"protocol": 1}


# Digests that contradict each other


def test_contradicting_announcements_distrust_both_and_the_seed_decides() -> None:
    desk = Desk(4, reads_seed=True, seed_concurrency=1)
    desk.list(1, 2)
    desk.open(1)
    desk.open(2)
    desk.scheduler.updated(desk.now, desk.links[1], update([3], wrong="lie"))
    desk.scheduler.updated(desk.now, desk.links[2], update([3]))
    desk.act()
    desk.wait(0.5)
    assert 3 not in desk.asked(1) + desk.asked(2)
    while 3 not in desk.reads():
        desk.read(desk.reads()[-1])
    desk.read(3)
    assert 3 in desk.kept()
    assert desk.scheduler.tally.rejections == {"corrupt": 1}


def test_a_held_piece_that_the_seed_contradicts_is_withdrawn_and_replaced() -> None:
    desk = Desk(2, reads_seed=True, seed_concurrency=1)
    desk.list(0)  # this replica itself
    desk.open(1)
    desk.announce(1, 0, wrong="lie", added=((0, digest_of(0, wrong="lie")),))
    desk.wait(1)
    assert 0 in desk.asked(1)
    desk.land(1, 0, wrong="lie")
    assert 0 in desk.kept()
    desk.open(2)
    desk.announce(2, 0)
    for _ in range(3):
        if desk.reads() and desk.reads()[-1] == 1:
            desk.read(1)
        desk.wait(0.5)
    assert 0 in desk.reads()
    done = desk.read(0)
    assert of(Withdraw, done) == [Withdraw(0)]
    assert of(Keep, done) == [Keep(0, digest_of(0), SEED, True)]
    assert desk.end is not None
    assert desk.end.error is None


def test_a_liar_is_dropped_after_two_lies_and_its_other_contradictions_end_with_it() -> None:
    desk = Desk(20, reads_seed=True, seed_concurrency=1)
    desk.open(1)
    desk.open(2)
    desk.announce(2, *range(20))
    desk.announce(1, *range(20), wrong="lie")
    reads = 0
    while not desk.closed(1):
        desk.wait(0.2)
        desk.read(desk.reads()[-1])
        reads += 1
        assert reads <= 3, "two lies are enough"
    desk.wait(1)
    assert len(set(desk.asked(2))) >= 10 or len(desk.reads()) < 6, "the honest peer is trusted again"


# First copies


def only_source(pieces: int = 8, **options: object) -> Desk:
    """One complete source and one other receiver, which has nothing."""
    desk = Desk(pieces, stall_seconds=10.0, **options)
    desk.list(1, 2)
    desk.open(1, phase=Phase.READY)
    desk.open(2)
    desk.announce(2)
    desk.announce(1, *range(pieces), phase=Phase.READY)
    desk.wait(1.0)
    return desk


def test_what_a_complete_source_alone_offers_is_asked_for_as_a_first_copy() -> None:
    desk = only_source()
    assert desk.requests()
    assert all(request.first for request in desk.requests())


def test_what_others_offer_too_and_what_is_not_passed_on_is_asked_for_without_conditions() -> None:
    desk = Desk(8)
    desk.list(1, 2, 3)
    desk.open(1, phase=Phase.READY)
    desk.open(2)
    desk.open(3)
    desk.announce(2, *range(8))
    desk.announce(3, *range(8))
    assert desk.requests()
    assert not any(request.first for request in desk.requests())
    assert not any(request.first for request in only_source(passes_on=False).requests())


def test_a_piece_that_was_lent_is_left_to_the_pool_and_another_one_asked_for() -> None:
    desk = only_source()
    first = desk.asked(1)[0]
    lent = {first, *[piece for piece in range(8) if piece not in desk.asked(1)][:3]}
    desk.fail(1, first, PieceLentError("lent", lent=sum(1 << piece for piece in lent)))
    for _ in range(8):
        for piece in desk.asked(1):
            if piece not in desk.kept() and piece not in lent:
                desk.land(1, piece)
    assert not set(desk.asked(1)[1:]) & lent, "none of them is asked for, refused or not"
    assert sorted(desk.kept()) == sorted(set(range(8)) - lent)
    assert desk.scheduler.tally.refetched == 0
    assert not desk.closed(1)
    since = len(desk.log)
    desk.announce(2, *lent)
    offered = desk.requests(desk.log[since:])
    assert {request.piece for request in offered} == lent, "two offer them now, and either may be asked"
    assert not any(request.first for request in offered)


def test_a_lent_piece_that_nobody_passes_on_is_asked_for_again_after_a_while() -> None:
    desk = only_source(2)
    for piece in desk.asked(1):
        desk.fail(1, piece, PieceLentError("lent", lent=0b11))
    assert not desk.requests(desk.wait(9.5))
    again = desk.requests(desk.wait(1.0), peer=1)
    assert sorted(request.piece for request in again) == [0, 1]
    assert not any(request.first for request in again)


def test_a_lent_piece_is_asked_for_again_at_once_when_a_member_is_lost() -> None:
    desk = only_source(2)
    for piece in desk.asked(1):
        desk.fail(1, piece, PieceLentError("lent", lent=0b11))
    desk.close(2, PeerUnreachableError("reset"))
    assert sorted(request.piece for request in desk.requests(desk.act() or desk.log, peer=1)[-2:]) == [0, 1]
