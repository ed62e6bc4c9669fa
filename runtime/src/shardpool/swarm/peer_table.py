"""Which endpoints are known, which were tried, and when they may be tried again.

A *round* tries every distinct endpoint once, without a pause between them. Only when all have been tried, and more peers are wanted,
comes a pause with jitter and the next round. In a pool larger than the wanted number of links an endpoint's turn follows from its
affinity, so that the replicas form a well-mixed graph of small degree whatever the order that DNS lists them in.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shardpool.discovery.base import Endpoint
from shardpool.retry import Backoff
from shardpool.swarm.rendezvous import affinity

EVERY_PEER = 32  # a pool of up to so many other members is linked in full
FEWEST = 16  # links in a larger one, at least
_MOST_UNLISTED = 32  # endpoints that are known only because a peer called from there
_DIALS = 32  # connections being opened at once


def degree(peers: int) -> int:
    """How many peers a replica wants to be linked to in a pool of `peers` others: all of a small one, 2 log2 of a large one."""
    return peers if peers <= EVERY_PEER else max(FEWEST, 2 * math.ceil(math.log2(peers)))


class Standing(enum.Enum):
    """What is known of an endpoint in this round."""

    UNTRIED = enum.auto()
    CONNECTING = enum.auto()
    LINKED = enum.auto()
    TRIED = enum.auto()  # refused or failed in this round
    ALIAS = enum.auto()  # this replica itself, or a further address of a linked peer


_IDLE = (Standing.UNTRIED, Standing.TRIED, Standing.ALIAS)


@dataclass(slots=True)
class Candidate:
    """An endpoint. `reason` says why it is not in use, `dead` that it is not counted as a live member of the pool."""

    endpoint: Endpoint
    turn: int
    standing: Standing = Standing.UNTRIED
    listed: bool = True
    dead: bool = False
    reason: str = ""
    itself: bool = False
    repeated: bool = False  # tried for a second time in this round
    links: set[int] = field(default_factory=set)


class PeerTable:
    """The endpoints of a pool, as one replica knows them.

    Args:
        me: this replica's own key, by which affinities are computed.
        backoff: pauses between rounds.
        rng: where jitter comes from.
    """

    def __init__(self, me: str, backoff: Backoff, rng: random.Random) -> None:
        self._me = me
        self._delays = backoff.delays(rng)
        self._backoff, self._rng = backoff, rng
        self._known: dict[Endpoint, Candidate] = {}
        self._untried: list[Candidate] = []  # the best turn last
        self._connecting = 0
        self._round_at: float | None = None
        self.rounds = 0
        self.problem = ""
        self._wanted = (-1, 0)
        self.version = 0  # raised when the set of live members may have changed

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._known.values())

    def get(self, endpoint: Endpoint) -> Candidate:
        """The candidate of a known endpoint."""
        return self._known[endpoint]

    @property
    def wanted(self) -> int:
        """How many links are wanted."""
        if self._wanted[0] != self.version:
            aliases = sum(1 for c in self._known.values() if c.standing is Standing.ALIAS)
            self._wanted = (self.version, degree(len(self._known) - aliases))
        return self._wanted[1]

    @property
    def untried(self) -> bool:
        """Some endpoint has not been tried in this round."""
        return bool(self._untried)

    @property
    def connecting(self) -> int:
        """How many connections are being opened."""
        return self._connecting

    def listed(self, endpoints: Iterable[Endpoint], problem: str) -> None:
        """The pool was listed. A listing that failed does not make known endpoints unknown."""
        self.problem = problem
        found = set(endpoints)
        changed = False
        for endpoint in sorted(found - self._known.keys()):
            candidate = Candidate(endpoint, affinity(self._me, endpoint.target))
            self._known[endpoint] = candidate
            self._untried.append(candidate)
            changed = True
        if changed:
            self._sort()
        for endpoint, candidate in list(self._known.items()):
            listed = endpoint in found
            if listed != candidate.listed and not (problem and not listed):
                candidate.listed = listed
                changed = True
            if not candidate.listed and candidate.standing in _IDLE:
                if candidate.standing is Standing.UNTRIED:
                    self._untried.remove(candidate)
                del self._known[endpoint]
        if changed:
            self.version += 1

    def met(self, endpoint: Endpoint) -> None:
        """A peer called that may be dialled at an endpoint which the listing may not have yet."""
        known = self._known.get(endpoint)
        if known is None:
            if sum(1 for candidate in self._known.values() if not candidate.listed) >= _MOST_UNLISTED:
                return
            known = self._known[endpoint] = Candidate(endpoint, affinity(self._me, endpoint.target), listed=False)
        elif known.standing is Standing.TRIED and not known.repeated:
            known.standing, known.repeated, known.dead = Standing.UNTRIED, True, False
        else:
            return
        self._untried.append(known)
        self._sort()
        self.version += 1

    def dial(self, links: int, wanted: int) -> list[Candidate]:
        """Endpoints to connect to now, so that `wanted` links come about; they are marked as connecting."""
        chosen: list[Candidate] = []
        while self._untried and self._connecting < _DIALS and links + self._connecting < wanted:
            chosen.append(self._begin(self._untried.pop()))
        return chosen

    def dial_now(self, name: str) -> Candidate | None:
        """Connect to the endpoint of this name out of turn, if it is untried."""
        for candidate in self._untried:
            if candidate.endpoint.target == name:
                self._untried.remove(candidate)
                return self._begin(candidate)
        return None

    def linked(self, candidate: Candidate, link: int) -> None:
        """A connection was opened and its peer is in use."""
        self._end(candidate)
        candidate.standing, candidate.reason, candidate.dead = Standing.LINKED, "", False
        candidate.links.add(link)
        self.version += 1

    def prospered(self) -> None:
        """A peer delivered: pauses are short again."""
        self._delays = self._backoff.delays(self._rng)

    def failed(self, candidate: Candidate, link: int, reason: str, *, again: bool = False) -> None:
        """A connection was not opened, or has ended. `again`: it may be tried once more within this round."""
        self._end(candidate)
        candidate.links.discard(link)
        candidate.reason, candidate.dead = reason, True
        if candidate.links:
            return
        if not candidate.listed:
            self._known.pop(candidate.endpoint, None)
        elif again and not candidate.repeated:
            candidate.standing, candidate.repeated = Standing.UNTRIED, True
            self._untried.append(candidate)
            self._sort()
        else:
            candidate.standing = Standing.TRIED
        self.version += 1

    def alias(self, candidate: Candidate, *, itself: bool) -> None:
        """The endpoint leads to this replica itself, or to a peer that is linked already."""
        self._end(candidate)
        candidate.itself = itself
        candidate.dead = True
        if candidate.endpoint.shared:
            candidate.standing = Standing.LINKED if candidate.links else Standing.TRIED
        else:
            candidate.standing = Standing.ALIAS
        self.version += 1

    def free_aliases(self) -> None:
        """A linked peer ended: what led to it as well may lead to its successor."""
        for candidate in self._known.values():
            if candidate.standing is Standing.ALIAS and not candidate.itself:
                candidate.standing = Standing.TRIED

    def next_round(self, now: float, lacking: bool) -> bool:
        """Whether a new round begins now: all were tried, more are wanted (`lacking`), and the pause is over."""
        if not lacking or self._untried or self._connecting:
            self._round_at = None
            return False
        if self._round_at is None:
            self._round_at = now + next(self._delays)
        if now < self._round_at:
            return False
        self._round_at = None
        self.rounds += 1
        for candidate in self._known.values():
            candidate.repeated = False
            if candidate.standing is Standing.TRIED or (
                candidate.standing is Standing.LINKED and candidate.endpoint.shared
            ):
                if candidate.standing is Standing.TRIED:
                    candidate.standing = Standing.UNTRIED
                self._untried.append(candidate)
        self._sort()
        return True

    @property
    def round_at(self) -> float | None:
        """When the next round begins, if that is all that is waited for."""
        return self._round_at

    def live(self) -> list[str]:
        """Names of listed endpoints that are not linked and not known to be dead: members as far as can be known."""
        return [
            c.endpoint.target
            for c in self._known.values()
            if c.listed
            and not c.dead
            and not c.endpoint.shared
            and c.standing in (Standing.UNTRIED, Standing.CONNECTING)
        ]

    def reasons(self) -> dict[str, str]:
        """Why each endpoint that is not in use is not, by its target."""
        return {c.endpoint.target: c.reason for c in self._known.values() if c.reason and not c.links}

    def _begin(self, candidate: Candidate) -> Candidate:
        candidate.standing = Standing.CONNECTING
        self._connecting += 1
        return candidate

    def _end(self, candidate: Candidate) -> None:
        if candidate.standing is Standing.CONNECTING:
            self._connecting -= 1
            candidate.standing = Standing.LINKED if candidate.links else Standing.TRIED

    def _sort(self) -> None:
        self._untried.sort(key=lambda c: c.turn)


__all__ = ["EVERY_PEER", "FEWEST", "Candidate", "PeerTable", "Standing", "degree"]
