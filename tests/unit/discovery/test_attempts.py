"""In which order endpoints are tried, and when nobody sleeps."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from shardpool.discovery import Endpoint, Listing
from shardpool.discovery.attempts import attempts

PODS = tuple(Endpoint(f"10.0.0.{i}", 6555) for i in range(20))
SERVICE = (Endpoint("10.96.0.1", 6555, shared=True),)


class Pauses(threading.Event):
    """A stop event that takes no time to wait for and remembers after how many attempts a pause was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.asked.append(timeout or 0.0)
        return self.is_set()


def tried(listing: Callable[[], Listing], pauses: threading.Event, retries: int = 5, seconds: float = 3600):
    return attempts(
        listing,
        retries=retries,
        backoff_seconds=0.5,
        deadline=time.monotonic() + seconds,
        stop=pauses,
        rng=random.Random(7),
    )


def test_every_distinct_endpoint_is_tried_before_any_pause() -> None:
    pauses = Pauses()
    first_round = list(itertools.islice(tried(lambda: Listing(PODS), pauses), len(PODS)))
    assert set(first_round) == set(PODS)
    assert pauses.asked == []


@pytest.mark.parametrize("good", PODS[::5])
def test_the_one_good_pod_of_twenty_is_found_without_a_pause(good: Endpoint) -> None:
    pauses = Pauses()
    found = next(endpoint for endpoint in tried(lambda: Listing(PODS), pauses) if endpoint == good)
    assert (found, pauses.asked) == (good, [])


def test_each_round_tries_everyone_once_and_pauses_lie_between_rounds() -> None:
    pauses = Pauses()
    assert Counter(tried(lambda: Listing(PODS), pauses, retries=2)) == dict.fromkeys(PODS, 3)
    assert len(pauses.asked) == 2
    assert all(0.5 * 0.75 <= pause <= 0.5 * 1.25 for pause in pauses.asked)


def test_service_address_is_tried_one_plus_retries_times() -> None:
    pauses = Pauses()
    assert list(tried(lambda: Listing(SERVICE), pauses, retries=5)) == list(SERVICE) * 6
    assert len(pauses.asked) == 5


def test_endpoint_that_appears_during_a_round_is_tried_in_it() -> None:
    pauses = Pauses()
    known = [PODS[0]]
    order = []
    for endpoint in tried(lambda: Listing(tuple(known)), pauses, retries=0):
        order.append(endpoint)
        if len(known) < 4:
            known.append(PODS[len(known)])
    assert order == list(PODS[:4])
    assert pauses.asked == []


def test_new_endpoints_go_before_those_that_were_tried() -> None:
    pauses = Pauses()
    rounds = iter([PODS[:3], PODS[:3], PODS[:6], PODS[:6]])
    order = list(tried(lambda: Listing(next(rounds)), pauses, retries=1))
    assert set(order[3:6]) == set(PODS[3:6])
    assert set(order[6:]) == set(PODS[:3])


def test_nobody_listed_takes_its_rounds_and_ends() -> None:
    pauses = Pauses()
    assert list(tried(lambda: Listing((), "not in DNS"), pauses, retries=3)) == []
    assert len(pauses.asked) == 3


def test_stop_ends_the_iteration_between_attempts_and_out_of_a_pause() -> None:
    stop = threading.Event()
    order = []
    for endpoint in tried(lambda: Listing(PODS), stop):
        order.append(endpoint)
        stop.set()
    assert len(order) == 1
    stop = threading.Event()
    iterator = attempts(
        lambda: Listing(()), retries=3, backoff_seconds=600, deadline=time.monotonic() + 3600, stop=stop
    )
    rest: list[list[Endpoint]] = []
    waiting = threading.Thread(target=lambda: rest.append(list(iterator)))
    waiting.start()
    stop.set()
    waiting.join(30)
    assert rest == [[]]


def test_nothing_is_yielded_after_the_deadline() -> None:
    assert list(tried(lambda: Listing(PODS), Pauses(), seconds=0)) == []
