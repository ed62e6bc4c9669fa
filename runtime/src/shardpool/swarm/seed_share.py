"""Which pieces this replica reads from the seed, so that the pool as a whole reads each piece once.

Rendezvous hashing over the live members says who reads what. Members are the linked fillers that can read the seed, and in a pool too
large to be linked in full also the listed endpoints that are not known to be dead: the list is what every member shares. What a peer
holds, or claims to be reading, is left to it. The own share is read surest first: the pieces that the fewest unseen members could
still win, which keeps double reads rare while members see different lists.

Three things keep a share from lying about:
- A dead member's share falls to the next in line as soon as the link breaks or the dial fails.
- Whoever has read its own share helps linked members with theirs, next in line first.
- In a large pool the owner may be a stranger, and what it has read needs a while to come near. When the neighbours have announced nothing
  new for `takeover_seconds` times its place in line (or, while they do, for ten times as long), a member looks for the owner by dialling
  it: an owner that answers is one more source, one that does not is dead.

Who comes to a large pool that is under way, as a restarted member does, owns what others read while it was not there, and what has not
come near yet. It leaves its share to them for as long as it would leave that of a stranger.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from shardpool.swarm.bits import pick, size
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.rendezvous import key
from shardpool.swarm.view import View

_PATIENCE_WITH_NEWS = 10  # times as long is waited while peers announce new pieces
_UNDER_WAY = 0.25  # of the pieces are on offer: others began a while ago
_SAMPLES = 8  # pieces of others that are looked at for each read that could be started


@dataclass(frozen=True, slots=True)
class Reading:
    """What to do about the seed now: a piece to read, or a member to look for, or neither; `looked` at the shares of others."""

    piece: int | None = None
    look_for: str = ""
    looked: bool = False


class SeedShare:
    """Decides reads from the seed for one replica."""

    def __init__(self, view: View, options: SwarmOptions, rng: random.Random, started: float) -> None:
        self._view = view
        self._options = options
        self._rng = rng
        self._order: list[int] = []
        self._version = (0, -1)
        self._bits = 0
        self._eligible = True
        self._late: bool | None = None  # known at the first look at what peers have
        self.calm_since = started  # the last time that the pool lost a member
        self.news_at = started  # the last time that a peer announced something new
        self.typical_read = 0.0  # seconds of one read, running mean

    def set_members(self, fillers: set[str], readers: set[str]) -> None:
        """Who fills (`fillers`), and who of the pool can read the seed (`readers`), without this replica."""
        view = self._view
        view.firsts.update(fillers)
        limit = self._options.seed_readers
        if not limit:
            return
        elected = sorted(readers | {view.me}, key=key)[:limit]
        self._eligible = view.me in elected
        view.readers.update(elected)

    @property
    def claim_patience(self) -> float:
        """Seconds after which a claim that brought nothing is not respected any more."""
        return max(self._options.stall_seconds, 8 * self.typical_read)

    def next(self, now: float, idle: bool, others: bool) -> Reading:
        """What to read next. `idle`: peers have nothing to offer either; `others`: also look at what is not this replica's share."""
        view = self._view
        orphans = view.need & view.available.absent & ~view.digests.doubt
        if not orphans:
            return Reading()
        orphans &= ~view.claimed(now, self.claim_patience)
        if not orphans:
            return Reading()
        if self._late is None:
            self._late = self._joined_late()
        if self._eligible and not self._leaves_own(now):
            self._refresh()
            if orphans & self._bits:
                return Reading(piece=self._surest(orphans))
        return self._of_others(orphans, now, idle) if others else Reading()

    def _joined_late(self) -> bool:
        """Whether the pool was under way when this replica came, and is not all in sight: then its share was read before, likely."""
        view = self._view
        links = sum(1 for link in view.links.values() if link.info and not link.closing)
        return links < len(view.readers) - 1 and size(view.available.absent) < (1 - _UNDER_WAY) * view.plan.pieces

    def _leaves_own(self, now: float) -> bool:
        """Whether the own share is left to whoever read it, or to the next in line, for now."""
        return bool(self._late) and self._waited(now) < self._options.takeover_seconds

    def _waited(self, now: float) -> float:
        """Seconds without news from the neighbours; while there are some, a tenth of those in which no member was lost."""
        return max(now - max(self.calm_since, self.news_at), (now - self.calm_since) / _PATIENCE_WITH_NEWS)

    def _refresh(self) -> None:
        shares = self._view.readers
        version = (id(shares), shares.version)
        if self._version != version:
            self._version = version
            self._order = shares.owned()
            self._bits = self._view.bits_of(self._order)

    def _surest(self, orphans: int) -> int:
        view = self._view
        for group in self._order:
            found = view.pieces_of(group) & orphans
            if found:
                return pick(found, 0)
        raise AssertionError("the own share has a piece that none of its groups has")

    def _of_others(self, orphans: int, now: float, idle: bool) -> Reading:
        view, shares = self._view, self._view.readers
        linked = {link.member for link in view.links.values() if link.info and not link.closing}
        waited = self._waited(now)
        takeover = self._options.takeover_seconds
        for _ in range(_SAMPLES):
            piece = pick(orphans, self._rng.randrange(view.plan.pieces))
            leaders = shares.leaders(view.group_of(piece))
            place = leaders.index(view.me) if view.me in leaders else len(leaders)
            if not place and self._leaves_own(now):
                continue
            above = [name for name in leaders[:place] if name != view.me]
            strangers = [name for name in above if name not in linked]
            if not strangers:
                if self._eligible and (place <= 1 or (idle and waited >= takeover)):
                    return Reading(piece=piece, looked=True)
                if idle and waited >= takeover * (1 + place):
                    return Reading(piece=piece, looked=True)
            elif waited >= takeover * place or (idle and waited >= takeover * len(leaders)):
                return Reading(look_for=strangers[0], looked=True)
        return Reading(looked=True)


__all__ = ["Reading", "SeedShare"]
