"""How many reads from the seed go on at once."""

from __future__ import annotations

from shardpool.swarm.read_pace import ReadPace

MOST = 4
LENGTH = 1 << 20


def read(pace: ReadPace, now: float, seconds: float) -> float:
    """One read that begins at `now`; returns when it is over."""
    pace.measured(now + seconds, now, LENGTH)
    return now + seconds


def careful(pace: ReadPace) -> float:
    """The reads of a second each after which one is added; returns when they are over."""
    now = 0.0
    for _ in range(4):
        now = read(pace, now, 1.0)
    return now


def test_whoever_is_alone_reads_as_many_as_it_may() -> None:
    assert ReadPace(MOST).bound(0) == MOST


def test_replicas_that_start_together_begin_with_their_part() -> None:
    assert [ReadPace(MOST).bound(sharers) for sharers in (1, 3, 15)] == [2, 1, 1]


def test_reads_that_are_not_slowed_let_it_read_more_up_to_the_bound() -> None:
    pace = ReadPace(MOST)
    pace.bound(15)
    now = 0.0
    for _ in range(4 * MOST):
        now = read(pace, now, 1.0)
    assert pace.bound(15) == MOST


def test_the_first_read_more_is_not_added_before_a_few_went_well() -> None:
    pace = ReadPace(MOST)
    pace.bound(15)
    bounds = []
    now = 0.0
    for _ in range(4):
        bounds.append(pace.bound(15))
        now = read(pace, now, 1.0)
    assert bounds == [1, 1, 1, 1]
    assert pace.bound(15) == 2


def test_a_read_that_takes_twice_as_long_takes_one_back() -> None:
    pace = ReadPace(MOST)
    pace.bound(15)
    now = careful(pace)
    assert pace.bound(15) == 2
    now = read(pace, now, 2.0)
    assert pace.bound(15) == 1
    read(pace, now, 4.0)
    assert pace.bound(15) == 1  # one read always goes on


def test_after_each_retreat_it_tries_again_more_rarely() -> None:
    pace = ReadPace(MOST)
    pace.bound(15)
    now, steps = 0.0, []
    for _ in range(30):
        steps.append(pace.bound(15))
        now = read(pace, now, float(pace.bound(15)))  # two at once take twice as long
    assert set(steps) == {1, 2}
    assert steps[15:].count(2) < steps[:15].count(2)


def test_a_read_that_began_before_the_last_change_says_nothing() -> None:
    pace = ReadPace(MOST)
    pace.bound(15)
    now = careful(pace)
    pace.measured(now + 10.0, now - 0.5, LENGTH)
    assert pace.bound(15) == 2


def test_a_seed_that_became_slower_for_good_is_read_as_much_again() -> None:
    pace = ReadPace(MOST)
    pace.bound(15)
    now = 0.0
    for seconds in (1.0, 1.0, 1.0, *[10.0] * 200):
        now = read(pace, now, seconds)
    assert pace.bound(15) == MOST
