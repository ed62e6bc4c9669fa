"""When a replica knows its pool well enough to read the seed.

Replicas that start together read the seed once in all only if they know of one another, and DNS tells late: a replica that reads while it
sees nobody reads what others read too, and of a thousand each does. So before its first read a replica waits for a list that

- has the replica's own address: one that has not is older than the replica, and cannot have those who started with it;
- and, where it has others too, did not grow for a moment: neither by another look nor by a call from a peer that it does not have.

A list that cannot change, or whose addresses stand for many peers each, is taken as it is. The wait has a bound: a replica may be in no
list at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from shardpool.discovery.base import Endpoint

_QUIET_SECONDS = 0.5  # for so long a list with others must not have grown
_AGAIN_SECONDS = 0.5  # between lookups while the look lasts


class FirstLook:
    """The first look of one replica at its pool. Times in seconds of any monotonic clock.

    Args:
        me: this replica's `host:port`, empty if it was not told.
        now: when the load begins.
        longest: seconds after which the look is over whatever was seen.
        rng: where jitter comes from: those that start together need not ask together.
    """

    def __init__(self, me: str, now: float, longest: float, rng: random.Random) -> None:
        self._me = me
        self._until = now + longest
        self._grown = now
        self._rng = rng
        self._due = now + self._pause()
        self._seen: set[str] = set()
        self._itself = not me or longest <= 0  # whether a list has this replica, or none is expected to
        self._over = False
        self.missed = False  # the time was over, and no list had this replica

    def listed(self, now: float, endpoints: Sequence[Endpoint], *, problem: str, final: bool) -> None:
        """The pool was listed; `problem` says why the list may be incomplete, `final` that it cannot change."""
        if self._over or problem:
            return
        found = {endpoint.target for endpoint in endpoints if not endpoint.shared}
        self._see(now, found)
        alone = found <= {self._me}
        self._itself = not self._me or self._me in found or (bool(endpoints) and not found)
        self._over = final or (self._itself and (alone or now >= self._grown + _QUIET_SECONDS))

    def met(self, now: float, endpoint: Endpoint) -> None:
        """A peer called: if no list had it, they are late."""
        if not self._over:
            self._see(now, {endpoint.target})

    def over(self, now: float) -> bool:
        """Whether the pool is known as well as it will be."""
        if not self._over and now >= self._until:
            self._over, self.missed = True, not self._itself
        return self._over

    def ask(self, now: float) -> bool:
        """Whether to list the pool once more now, while the look lasts."""
        if now < self._due:
            return False
        self._due = now + self._pause()
        return True

    @property
    def wake_at(self) -> float:
        """When to look again."""
        return min(self._until, self._due)

    def _pause(self) -> float:
        return _AGAIN_SECONDS * (1 + 0.5 * self._rng.random())

    def _see(self, now: float, found: set[str]) -> None:
        if not found <= self._seen:
            self._seen |= found
            self._grown = now


__all__ = ["FirstLook"]
