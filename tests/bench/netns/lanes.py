"""Plays beside each other: a lane is a network of its own, on which one play is made at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TypeVar

from netns.contenders import CONTENDERS
from netns.machine import BenchError, Stopped
from netns.network import Network
from netns.payload import Payload
from netns.plan import Plan, Setting
from netns.play import Outcome, play
from netns.stage import Stage

SLACK_SECONDS = 60.0
Keep = Callable[[int, Setting, Outcome], None]
T = TypeVar("T")
KeepLogs = Callable[[Stage, str], None]


class Lanes:
    """The networks of a run. Plays that leave the processors nearly idle share the machine, one on each; the others have it alone."""

    def __init__(self, plan: Plan, payload: Payload, folder: Path, networks: Sequence[Network]) -> None:
        self._plan = plan
        self._payload = payload
        self._folder = folder
        self._networks = networks
        self._until = time.monotonic() + plan.time_limit
        self._stop = threading.Event()
        self._company = Company()

    def play(self, number: int, settings: Sequence[Setting], keep: Keep, keep_logs: KeepLogs) -> None:
        """Make a round of plays; `keep` gets each outcome in the thread of its lane."""

        def one(lane: int, setting: Setting) -> None:
            name = f"{number}-{setting}".replace(" ", "-").replace(",", "")
            keep(number, setting, self._one(lane, setting, lambda stage: keep_logs(stage, name)))

        beside, alone = self._plan.shares(settings)
        share(beside, len(self._networks), one, self._stop)
        for setting in alone:
            one(0, setting)

    def _one(self, lane: int, setting: Setting, keep_logs: Callable[[Stage], None]) -> Outcome:
        if time.monotonic() > self._until:
            raise BenchError(f"not done after {self._plan.time_limit:.0f} s: lower --count or raise --time-limit")
        plan, folder = self._plan, self._folder / f"stage{lane}"
        limit = plan.copy_seconds * (setting.receivers + 1) * 2 + SLACK_SECONDS
        with (
            self._company.of(lane) as beside,
            Stage(self._networks[lane], self._payload, folder, setting.sources, setting.receivers, self._stop) as stage,
        ):
            try:
                contender = CONTENDERS[setting.contender](stage)
                offsets = setting.offsets(plan.copy_seconds)
                outcome = play(stage, contender, setting.start, offsets, limit, setting.fault)
            finally:
                keep_logs(stage)
            return dataclasses.replace(outcome, beside=beside())


class Company:
    """Counts how many plays are made at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._most: dict[int, int] = {}

    @contextlib.contextmanager
    def of(self, lane: int) -> Iterator[Callable[[], int]]:
        """Be at play; what is given tells the most that were so at once since then, this one among them."""
        with self._lock:
            self._most[lane] = 0
            for other, most in self._most.items():
                self._most[other] = max(most, len(self._most))
        try:
            yield lambda: self._most[lane]
        finally:
            with self._lock:
                del self._most[lane]


def share(plays: Sequence[T], lanes: int, make: Callable[[int, T], None], stop: threading.Event) -> None:
    """Make all plays in their order, one at a time on each lane.

    An error of one of them, and whatever is raised in this thread meanwhile (Ctrl-C), sets `stop`: no play is begun after it, those that run
    are to raise Stopped soon, and when they have ended the error is raised here.
    """
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    for one in plays:
        waiting.put(one)

    def lane(number: int) -> None:
        try:
            with contextlib.suppress(queue.Empty, Stopped):
                while not stop.is_set():
                    make(number, waiting.get_nowait())
        except BaseException:
            stop.set()
            raise

    pool = ThreadPoolExecutor(lanes)
    try:
        for done in as_completed([pool.submit(lane, number) for number in range(lanes)]):
            done.result()
    except BaseException:
        stop.set()
        raise
    finally:
        pool.shutdown()
