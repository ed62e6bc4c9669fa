"""Which piece to ask which peer for next.

Rarest first, with three amendments. A *scarce* piece (on offer at one place only, or at complete replicas only) is brought into the pool
by one receiver: at once by the member that owns it by rendezvous, by another one when nobody has claimed it a moment later. The single
source then sends each piece about once, and the first receivers pass it on. Complete replicas that others read from come last while
fillers can serve. Few sources are read from at once, the ones that are expected to deliver first, so that a piece arrives soon and can
be passed on. What a source refused as lent to another receiver is left to the pool for a while.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from shardpool.swarm.bits import pick
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.peer_link import DEPTH, PeerLink
from shardpool.swarm.view import View

_LOOKS = 4
_MUCH_BETTER = 0.6  # times the expected delay of the slowest source in use
_LAGGING = 4.0  # times the typical wait: such a transfer occupies no place in the window
_PASSED_ON = 4  # times the typical wait
_SHORTEST_PATIENCE, _LONGEST_PATIENCE = 0.01, 0.1


def patience(view: View, link: PeerLink) -> float:
    """Seconds for which a scarce piece of this source is left to its owner, who claims it within a round trip or two."""
    return min(_LONGEST_PATIENCE, max(_SHORTEST_PATIENCE, 2 * view.typical_wait)) * (
        1 + link.candidate.turn % 1024 / 1024
    )


def lent_patience(view: View, options: SwarmOptions) -> float:
    """Seconds for which what a source lent to others is left to them: what it takes them to get it and to pass it on."""
    usual = _PASSED_ON * view.typical_wait if view.typical_wait else options.stall_seconds
    return min(options.stall_seconds, max(_LONGEST_PATIENCE, usual))


class Picker:
    """Chooses requests for one dispatch; made anew each time, for `now`. `claimed` are pieces that others bring into the pool."""

    def __init__(self, view: View, options: SwarmOptions, rng: random.Random, now: float, claimed: int) -> None:
        self._view = view
        self._patience = lent_patience(view, options)
        self._rng = rng
        self._now = now
        self._claimed = claimed
        self._room = 0
        self._order: list[PeerLink] = []
        self._depths: dict[int, int] = {}
        lagging = _LAGGING * view.typical_wait if view.typical_wait else float("inf")
        counted, busy = 0, set()
        deeper = 0
        for link in view.links.values():
            if not link.outstanding:
                continue
            current = False
            for transfer in link.outstanding.values():
                if now - transfer.asked <= lagging:
                    counted += 1
                    current = True
            if current:
                busy.add(link.number)
            deeper += link.depth - DEPTH
        self._room = options.window + deeper - counted
        self._sources = options.sources - len(busy)
        self._busy = busy

    @property
    def hungry(self) -> bool:
        """More could be asked for than is on offer."""
        return self._room > 0

    def choose(self) -> list[tuple[PeerLink, int, bool]]:
        """Requests to make now: whom to ask, for what, and whether that is to be claimed since the piece is scarce."""
        view = self._view
        want = view.want()
        if self._room <= 0 or not want:
            return []
        self._rank(want)
        chosen: list[tuple[PeerLink, int, bool]] = []
        while self._room > 0 and self._order and want:
            found = self._next(want)
            if found is None:
                break
            link, piece, _ = found
            chosen.append(found)
            want &= ~(1 << piece)
            self._take(link)
        return chosen

    def _rank(self, want: int) -> None:
        """Order the sources by when they are expected to deliver one more piece.

        Those that are read from already are kept, unless an idle one promises much more.
        """
        keyed: list[tuple[bool, float, int, PeerLink]] = []
        busy: list[float] = []
        links: Iterable[PeerLink] = self._view.links.values()
        if self._sources <= 0 and len(self._view.links) > len(self._busy) + _LOOKS:
            # Enough are read from: a few others are looked at each time, in case they are better.
            idle = [link for link in links if link.number not in self._busy]
            links = [link for link in links if link.number in self._busy] + self._rng.sample(idle, _LOOKS)
        for link in links:
            if not link.usable & want or not self._open(link):
                continue
            cost = self._cost(link)
            keyed.append((link.crowded, cost, link.number, link))
            if link.number in self._busy:
                busy.append(cost)
        if self._sources <= 0 and busy:
            slowest = max(busy)
            keyed = [
                e
                for e in keyed
                if (e[2] in self._busy and (self._sources == 0 or e[1] < slowest)) or e[1] < _MUCH_BETTER * slowest
            ]
        keyed.sort()
        self._order = [entry[3] for entry in keyed]

    def _open(self, link: PeerLink) -> bool:
        if not link.askable(self._now):
            return False
        limit = self._depths.get(link.number)
        if limit is None:
            limit = self._depths[link.number] = link.depth - len(link.outstanding)
        return limit > 0

    def _cost(self, link: PeerLink) -> float:
        """Seconds until a source would deliver one more piece, in pieces' bytes; +- a tenth, so that receivers do not all choose alike."""
        promised = (link.capacity or self._view.best_capacity or 1.0) / (link.load.readers + 1)
        rate = link.rate if link.outstanding and link.rate else promised
        return (len(link.outstanding) + 1) * (0.9 + 0.2 * self._rng.random()) / rate

    def _next(self, want: int) -> tuple[PeerLink, int, bool] | None:
        view = self._view
        levels = view.available.levels
        scarce = min(view.scarce_level, len(levels) - 1)
        free = want & ~self._claimed
        # What this replica owns of what is scarce.
        for level in range(1, scarce + 1):
            found = self._at(levels[level] & free & view.own, scarce=True)
            if found:
                return found
        # Then the rarest first, from whoever is not needed more by others.
        for level in range(1, len(levels)):
            if level > scarce:
                found = self._at(levels[level] & want, crowded=False)
            elif not view.ready_links:
                found = self._at(levels[level] & free, scarce=True, ripe=True, crowded=False)
            if found:
                return found
        # Then anything, from anybody.
        for level in range(1, len(levels)):
            rare = level <= scarce
            found = self._at(levels[level] & (free if rare else want), scarce=rare, ripe=rare)
            if found:
                return found
        # Then what was lent to others a while ago, and still is not on offer elsewhere.
        for link in self._order:
            link.lapse(self._now - self._patience)
            offered = link.usable & link.lapsed & want
            if offered:
                return link, pick(offered, self._rng.randrange(view.plan.pieces)), False
        return None

    def _at(
        self, pieces: int, *, scarce: bool = False, ripe: bool = False, crowded: bool = True
    ) -> tuple[PeerLink, int, bool] | None:
        if not pieces:
            return None
        for link in self._order:
            if link.crowded and not crowded:
                continue
            offered = link.usable & pieces
            if scarce:
                offered &= ~link.lent
            if offered and ripe:
                link.ripen(self._now, patience(self._view, link))
                offered &= ~link.fresh
            if offered:
                return link, pick(offered, self._rng.randrange(self._view.plan.pieces)), scarce
        return None

    def _take(self, link: PeerLink) -> None:
        self._room -= 1
        self._depths[link.number] -= 1
        order = self._order
        order.remove(link)
        if link.number not in self._busy:
            self._busy.add(link.number)
            self._sources -= 1
            if self._sources <= 0:
                self._order = order = [other for other in order if other.number in self._busy]
        if self._depths[link.number] > 0:
            order.append(link)


__all__ = ["Picker", "lent_patience", "patience"]
