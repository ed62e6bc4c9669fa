"""In which order to try endpoints, and when to sleep (p2p.md, "Finding a source"; DESIGN.md, "Agree")."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from shardpool.discovery.base import Endpoint, Listing
from shardpool.retry import Backoff


def attempts(
    listing: Callable[[], Listing],
    *,
    retries: int,
    backoff_seconds: float,
    deadline: float,
    stop: threading.Event | None = None,
    rng: random.Random | None = None,
) -> Iterator[Endpoint]:
    """Yield endpoints to try, in 1 + `retries` rounds; whoever has found a source just stops iterating.

    A round tries every distinct endpoint once: those tried least so far come first, in random order otherwise so that
    receivers spread. Endpoints that appear while the round goes on belong to it. Only when none is left does the
    iterator sleep, about `backoff_seconds`, so a Service's shared address (each new connection to which may reach
    another pod) is tried once a round as upstream does. A round in which nobody is listed counts as one.

    Args:
        listing: who is known now, such as `Discovery.list`.
        retries: rounds after the first, `MX_K8S_SOURCE_RETRIES`.
        backoff_seconds: pause between rounds, `MX_K8S_SOURCE_BACKOFF_SECONDS`.
        deadline: a `time.monotonic()` value after which nothing is yielded and nothing slept.
        stop: setting it ends the iteration, also out of a pause.
        rng: source of order and jitter.
    """
    stop = stop or threading.Event()
    rng = rng or random.Random()
    pauses = Backoff(first=backoff_seconds, factor=1.0, longest=backoff_seconds).delays(rng)
    tries: Counter[Endpoint] = Counter()
    for round_number in range(1 + retries):
        if round_number:
            pause = min(next(pauses), deadline - time.monotonic())
            if pause > 0 and stop.wait(pause):
                return
        tried: set[Endpoint] = set()
        while untried := [endpoint for endpoint in listing().endpoints if endpoint not in tried]:
            rng.shuffle(untried)
            untried.sort(key=lambda endpoint: tries[endpoint])
            for endpoint in untried:
                if stop.is_set() or time.monotonic() >= deadline:
                    return
                tried.add(endpoint)
                tries[endpoint] += 1
                yield endpoint
        if stop.is_set() or time.monotonic() >= deadline:
            return
