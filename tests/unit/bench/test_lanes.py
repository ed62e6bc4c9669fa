"""Lanes of the bench on shaped links: plays beside each other, and how they all end."""

from __future__ import annotations

import signal
import threading

import pytest
from netns.lanes import Company, share
from netns.machine import Stopped

SECONDS = 30.0


def test_every_play_is_made_once_and_in_its_order() -> None:
    made: list[int] = []
    share(range(7), 1, lambda lane, play: made.append(play), threading.Event())
    assert made == list(range(7))


def test_as_many_plays_as_lanes_are_made_at_once_each_on_a_lane_of_its_own() -> None:
    together = threading.Barrier(3)
    lanes: list[int] = []

    def make(lane: int, play: str) -> None:
        lanes.append(lane)
        together.wait(SECONDS)

    share("abc", 3, make, threading.Event())
    assert sorted(lanes) == [0, 1, 2]


def test_an_error_ends_the_plays_of_the_other_lanes_and_begins_no_more() -> None:
    stop, together = threading.Event(), threading.Barrier(2)
    begun: list[str] = []

    def make(lane: int, play: str) -> None:
        begun.append(play)
        together.wait(SECONDS)
        if play == "fails":
            raise ValueError(play)
        assert stop.wait(SECONDS)
        raise Stopped

    with pytest.raises(ValueError, match="fails"):
        share(["goes on", "fails", "never begun"], 2, make, stop)
    assert sorted(begun) == ["fails", "goes on"]


def test_an_interrupt_ends_the_plays_of_every_lane() -> None:
    stop, together = threading.Event(), threading.Barrier(2)
    main = threading.main_thread().ident
    assert main is not None
    ended: list[int] = []

    def make(lane: int, play: int) -> None:
        if together.wait(SECONDS) == 0:
            stop.wait(0.2)  # until the main thread, having begun both lanes, waits for them
            signal.pthread_kill(main, signal.SIGINT)
        assert stop.wait(SECONDS)
        ended.append(play)
        raise Stopped

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            share(range(5), 2, make, stop)
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(ended) == [0, 1]


def test_a_play_tells_the_most_that_were_made_at_once_meanwhile() -> None:
    company = Company()
    with company.of(0) as first:
        assert first() == 1
        with company.of(1):
            pass
        with company.of(2) as third, company.of(1):
            assert third() == 3
        assert first() == 3
    with company.of(0) as alone:
        assert alone() == 1
