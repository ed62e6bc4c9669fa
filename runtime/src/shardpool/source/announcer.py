"""When watchers of a replica's state are told, and what.

A piece that lands is news for every peer, and telling it costs a message each and several hand-overs between threads. So one thread
follows the state and rings for the watchers: a few at a time, in turn, whoever was told least recently first. What came meanwhile shares
one message. That bounds what telling costs however many watch, and the first to hear can already fetch the piece and pass it on, which
is more than its holder can send in that time. Claims do not wait for their turn: until they are known, somebody else may read the same piece.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Load, Phase
from shardpool.wire.conversions import RECORDS_PER_UPDATE, records_to_update, write_update

LOOK_AGAIN_SECONDS = 10.0
_BETWEEN_SECONDS = 0.03
_TOLD_AT_ONCE = 2  # 67 messages a second

Claims = frozenset[int]


@dataclass(frozen=True, slots=True)
class Facts:
    """What an announcement says besides pieces."""

    claims: Claims
    phase: Phase
    readers: int
    outline_known: bool


@dataclass(frozen=True, slots=True)
class Announcement:
    """A `StateUpdate`, encoded. Whoever has it knows `facts` and everything up to `generation`; there may be `more`."""

    encoded: bytes
    generation: int
    facts: Facts
    more: bool
    news: bool  # it has records of pieces


class Bell:
    """What one watcher waits for."""

    __slots__ = ("_queue", "_rung")

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rung = False

    def ring(self) -> None:
        """Let the watcher look; rings that it has not heard yet count once."""
        if not self._rung:
            self._rung = True
            self._queue.put(None)

    def wait(self, timeout: float) -> bool:
        """Wait for a ring, at most `timeout` seconds; whether it rang."""
        try:
            self._queue.get(timeout=timeout)
        except queue.Empty:
            return False
        self._rung = False  # before the watcher looks: a ring from now on is for what it may miss
        return True


class Announcer:
    """Rings for the watchers of a state. Its thread starts with the first of them and ends once the state is woken while `stopping`."""

    def __init__(self, state: ReplicaState, stopping: threading.Event) -> None:
        self._state = state
        self._stopping = stopping
        self._lock = threading.Lock()
        self._turns: list[Bell] = []  # told least recently first
        self._thread: threading.Thread | None = None
        self._closed = False
        self._encoded_at = -1
        self._encoded: dict[tuple[int, Claims | None], Announcement] = {}

    @contextmanager
    def watch(self) -> Iterator[Bell]:
        """A bell that rings when there may be something new."""
        bell = Bell()
        with self._lock:
            self._turns.append(bell)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
                self._thread.start()
        try:
            yield bell
        finally:
            with self._lock:
                self._turns.remove(bell)

    def since(self, generation: int, claims: Claims | None) -> Announcement:
        """What to tell somebody who knows all up to a generation, and these claims."""
        version = self._state.version
        key = (generation, claims)
        with self._lock:
            if version != self._encoded_at:
                self._encoded_at = version
                self._encoded.clear()
            found = self._encoded.get(key)
        if found is None:
            found = self._encode(generation, claims)
            with self._lock:
                # What was encoded later than it was looked up holds at least as much.
                if version == self._encoded_at:
                    self._encoded[key] = found
        return found

    def close(self) -> None:
        """End the thread, and with it every wait for a bell."""
        with self._lock:
            self._closed, thread = True, self._thread
        if thread is not None:
            self._state.wake()
            thread.join()

    def _facts(self, load: Load) -> Facts:
        state = self._state
        return Facts(state.claims, state.phase, load.readers, state.holdings is not None)

    def _encode(self, generation: int, told: Claims | None) -> Announcement:
        state = self._state
        load = state.load()
        facts = self._facts(load)
        records: Sequence[tuple[int, bytes]] = ()
        more = False
        if state.holdings is not None:
            generation, records = state.holdings.since(generation, RECORDS_PER_UPDATE)
            more = generation < state.holdings.generation
        claims = facts.claims if facts.claims != told else None
        update = records_to_update(records, generation, facts.phase, load, reads_seed=state.reads_seed, claims=claims)
        message = write_update(update, outline_known=facts.outline_known)
        return Announcement(message.SerializeToString(), generation, facts, more, bool(records))

    def _run(self) -> None:
        state = self._state
        seen = -1
        told: tuple[int, Facts] | None = None
        untold = 0  # watchers, from the first of the turns on
        due = 0.0
        while not (self._stopping.is_set() or self._closed):
            state.wait(seen, max(due - time.monotonic(), 0.0) if untold else LOOK_AGAIN_SECONDS)
            seen = state.version
            generation = state.holdings.generation if state.holdings is not None else 0
            news = (generation, self._facts(state.load()))
            urgent = told is None or _urgent(news[1], told[1])
            if news != told:
                told, untold = news, len(self._turns)
            if untold and (urgent or time.monotonic() >= due):
                untold = self._ring(untold, untold if urgent else _TOLD_AT_ONCE)
                due = time.monotonic() + _BETWEEN_SECONDS
        self._ring(len(self._turns), len(self._turns))

    def _ring(self, untold: int, most: int) -> int:
        """Ring for the next watchers; how many are left."""
        with self._lock:
            turns = self._turns[: min(untold, most)]
            self._turns = self._turns[len(turns) :] + turns
        for bell in turns:
            bell.ring()
        return untold - len(turns) if turns else 0


def _urgent(facts: Facts, before: Facts) -> bool:
    """Whether something must not wait for its turn: what others might do as well, and what they wait for."""
    return (
        bool(facts.claims - before.claims)
        or facts.phase is not before.phase
        or facts.outline_known is not before.outline_known
    )
