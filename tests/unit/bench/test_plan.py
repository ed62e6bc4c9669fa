"""The plan of the bench on shaped links: what is played, how often, what may share the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from netns.contenders import CONTENDERS
from netns.plan import STARTS, STEADY, Plan, Setting, makespan
from netns.play import FAULTS

PLAN = Plan(
    receivers=(1, 2, 4, 8, 16),
    starts=STARTS,
    contenders=tuple(CONTENDERS),
    faults=tuple(FAULTS),
    count=5,
    steady_count=2,
    bittorrent_count=5,
    staggered_count=3,
    lanes=4,
    rate=32.0,
    size=64 << 20,
    work=Path("work"),
    output=Path("output"),
    time_limit=60.0,
    keep_logs=None,
)


def test_every_setting_is_played_as_often_as_it_is_to_be() -> None:
    played = [setting for _, settings in PLAN.rounds() for setting in settings]
    for setting in PLAN.settings():
        assert played.count(setting) == PLAN.plays(setting)


def test_what_hardly_varies_is_played_less_often() -> None:
    assert PLAN.plays(Setting("warm", "simultaneous", 16)) == 5
    assert PLAN.plays(Setting("warm", "staggered", 16)) == 3
    assert [PLAN.plays(Setting(name, "simultaneous", 16)) for name in STEADY] == [2, 2]
    assert PLAN.plays(Setting("star", "simultaneous", 1, 2, "killed")) == 2
    assert PLAN.plays(Setting("warm", "simultaneous", 1, 2, "killed")) == 5


def test_a_round_is_shuffled_and_the_same_in_every_run() -> None:
    first, second = (list(PLAN.rounds()) for _ in range(2))
    assert first == second
    assert first[0][1] != PLAN.settings()


@pytest.mark.parametrize(
    ("setting", "light"),
    [
        (Setting("star", "simultaneous", 16), True),
        (Setting("whole", "staggered", 16), True),
        (Setting("warm", "simultaneous", 2), True),
        (Setting("warm", "simultaneous", 1, 2, "frozen"), True),
        (Setting("warm", "simultaneous", 4), False),
        (Setting("bittorrent", "staggered", 16), False),
    ],
    ids=str,
)
def test_only_plays_that_leave_the_processors_idle_share_the_machine(setting: Setting, light: bool) -> None:
    assert setting.light is light


def test_a_round_is_split_in_light_plays_the_longest_first_and_heavy_ones_in_its_order() -> None:
    _, settings = next(PLAN.rounds())
    beside, alone = PLAN.shares(settings)
    assert sorted(map(str, [*beside, *alone])) == sorted(map(str, settings))
    assert (beside[0].contender, beside[0].receivers) == ("star", 16)
    assert [setting.expected_copies for setting in beside] == sorted(
        (setting.expected_copies for setting in beside), reverse=True
    )
    assert list(alone) == [setting for setting in settings if not setting.light]


def test_with_one_lane_every_play_is_alone_in_the_order_of_its_round() -> None:
    _, settings = next(PLAN.rounds())
    assert replace(PLAN, lanes=1).shares(settings) == ([], settings)


@pytest.mark.parametrize(("lanes", "seconds"), [(1, 17.0), (2, 9.0), (3, 8.0)])
def test_a_free_lane_takes_the_next_play(lanes: int, seconds: float) -> None:
    assert makespan([8.0, 3.0, 3.0, 3.0], lanes) == seconds


def test_lanes_make_a_run_shorter() -> None:
    assert PLAN.expected_seconds < replace(PLAN, lanes=1).expected_seconds


def test_longer_plays_are_expected_to_be_longer() -> None:
    star, whole, pool = (Setting(name, "simultaneous", 16).expected_copies for name in ("star", "whole", "warm"))
    assert star > whole > pool


def test_receivers_start_at_once_or_spread_over_a_copy() -> None:
    assert Setting("warm", "simultaneous", 4).offsets(8.0) == [0.0] * 4
    assert Setting("warm", "staggered", 4).offsets(8.0) == [0.0, 2.0, 4.0, 6.0]


def test_there_are_hosts_for_the_largest_play_and_a_failing_source() -> None:
    assert PLAN.hosts == 18
    assert replace(PLAN, receivers=(1,)).hosts == 4
