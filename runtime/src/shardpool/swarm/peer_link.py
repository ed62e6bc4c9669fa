"""What the scheduler knows of one linked peer."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shardpool.swarm.peer_table import Candidate
from shardpool.swarm.state import Load, PeerInfo, Phase
from shardpool.swarm.transfer import Transfer

DEPTH = 2  # pieces asked of one source at once: one being sent, one waiting its turn
_DEEPEST = 16
_BUFFERED_SECONDS = 0.02  # what is asked of one source covers so much time at its measured rate
_FIRST_WORD_SECONDS = 1.0  # between the handshake and the first announcement
_WEIGHT = 0.3  # of the newest measurement in a running mean
_PLACE_KEPT_SECONDS = 1.0  # for which a link surely keeps its place among the readers after the last piece


@dataclass(slots=True)
class PeerLink:
    """A link, from the request to connect until it is closed.

    Pieces are sets of bits. `mask`: announced with the agreed digest; `usable`: those of them that may be asked for;
    `odd`: announced with another digest; `fresh`: on offer for so short a time that scarce ones are left to their owner;
    `lent`: refused as first copies, since other receivers were sent them; `lapsed`: those of them that may be asked for all the same.
    """

    number: int
    candidate: Candidate
    info: PeerInfo | None = None
    phase: Phase = Phase.FILLING
    load: Load = field(default_factory=Load)
    reads_seed: bool = False
    generation: int = 0
    opened_at: float = 0.0
    heard: bool = False  # announced something since it was opened
    mask: int = 0
    usable: int = 0
    odd: dict[int, bytes] = field(default_factory=dict)
    claims: int = 0
    claimed_at: dict[int, float] = field(default_factory=dict)  # since when each of `claims` is claimed
    fresh: int = 0
    fresh_since: deque[tuple[float, int]] = field(default_factory=deque)
    lent: int = 0
    lent_since: deque[tuple[float, int]] = field(default_factory=deque)
    lapsed: int = 0
    outstanding: dict[int, Transfer] = field(default_factory=dict)  # by piece, in the order they were asked for
    busy_until: float = 0.0
    last_progress: float = 0.0
    last_landed: float = 0.0
    rate: float = 0.0  # bytes per second while something was asked for; 0: not measured yet
    capacity: float = 0.0  # bytes per second that the peer seems to send to all its readers together
    depth: int = DEPTH  # pieces to ask for at once
    wait: float = 0.0  # seconds from asking to landing, running mean
    landed: int = 0  # bytes
    failures: int = 0  # in a row
    closing: bool = False
    alias: bool = False  # leads to this replica itself, or to a peer that is linked already
    reason: str = ""

    @property
    def instance(self) -> str:
        """The peer's instance; empty until it answered."""
        return self.info.party.instance if self.info else ""

    @property
    def name(self) -> str:
        """How logs and errors call the peer."""
        return self.candidate.endpoint.target

    @property
    def member(self) -> str:
        """The peer's key among the members of the pool."""
        return (self.info.party.endpoint if self.info else "") or self.name

    @property
    def crowded(self) -> bool:
        """The peer is complete and others read from it: fillers come first."""
        others = self.load.readers - (1 if self.outstanding else 0)
        return self.phase is Phase.READY and others > 0

    def full(self, now: float) -> bool:
        """The peer said that all its places are taken, by others: asking would only be answered with a refusal."""
        if not self.load.max_readers or self.load.readers < self.load.max_readers:
            return False
        has_place = self.outstanding or (self.landed and now <= self.last_landed + _PLACE_KEPT_SECONDS)
        return not has_place

    def askable(self, now: float) -> bool:
        """One more piece may be asked of the peer."""
        return not (self.closing or self.phase is Phase.DRAINING or self.busy_until > now or self.full(now))

    def expected(self, now: float) -> bool:
        """What the peer holds is about to be announced."""
        return bool(
            self.info and self.info.generation and not self.heard and now < self.opened_at + _FIRST_WORD_SECONDS
        )

    def offers(self, now: float, pieces: int) -> None:
        """The peer began to offer a set of pieces."""
        self.fresh |= pieces
        self.fresh_since.append((now, pieces))

    def ripen(self, now: float, patience: float) -> None:
        """Let what was offered `patience` seconds ago be fresh no longer."""
        while self.fresh_since and self.fresh_since[0][0] + patience <= now:
            self.fresh &= ~self.fresh_since.popleft()[1]

    def lends(self, now: float, pieces: int) -> None:
        """The peer has sent a set of pieces to others."""
        new = pieces & ~self.lent
        if new:
            self.lent |= new
            self.lent_since.append((now, new))

    def lapse(self, until: float) -> None:
        """What was lent at a time need not be left to those who were sent it any more."""
        while self.lent_since and self.lent_since[0][0] <= until:
            self.lapsed |= self.lent_since.popleft()[1]

    def measured(self, now: float, asked: float, length: int) -> None:
        """A piece of `length` bytes landed that was asked for at `asked`."""
        busy = max(now - max(asked, self.last_landed), 1e-6)
        rate, wait = length / busy, now - asked
        self.rate = rate if not self.rate else self.rate + _WEIGHT * (rate - self.rate)
        self.capacity = max(self.rate * max(1, self.load.readers), 0.95 * self.capacity)
        self.wait = wait if not self.wait else self.wait + _WEIGHT * (wait - self.wait)
        self.depth = min(_DEEPEST, DEPTH + int(_BUFFERED_SECONDS * self.rate / max(1, length)))
        self.last_landed = self.last_progress = now
        self.landed += length
        self.failures = 0


__all__ = ["DEPTH", "PeerLink"]
