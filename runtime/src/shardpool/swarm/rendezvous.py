"""Rendezvous hashing: which member of a pool answers for a group of pieces, agreed without a word.

Every member computes the same score for each (member, group); the highest score owns the group, and when its owner leaves, the next
highest follows, so that a departure moves nothing but the share of whoever left. A member's scores for all groups are one BLAKE3
output stream, and ownership is kept with one *blocker* for each group (any member with a higher score), so that a thousand
members and a thousand groups take about a millisecond, and a change of membership only touches the groups that it can affect.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable
from functools import lru_cache

from blake3 import blake3

LARGEST_GROUPS = 4096
_WORD = (1 << 64) - 1


@lru_cache(maxsize=4096)
def scores(member: str, groups: int) -> array[int]:
    """The scores (32 bits each) of a member for groups 0 to `groups` - 1."""
    found = array("I")
    found.frombytes(blake3(b"share\0" + member.encode()).digest(length=4 * groups))
    return found


@lru_cache(maxsize=65536)
def key(member: str) -> int:
    """64 bits that stand for a member."""
    return int.from_bytes(blake3(b"member\0" + member.encode()).digest(length=8), "little")


def affinity(one: str, other: str) -> int:
    """How much two members want to be neighbours; the same from either side, so that links come out mutual and degrees even."""
    mixed = key(one) ^ key(other)
    mixed = (mixed * 0x9E3779B97F4A7C15) & _WORD
    mixed ^= mixed >> 29
    mixed = (mixed * 0xBF58476D1CE4E5B9) & _WORD
    return mixed ^ (mixed >> 32)


class Shares:
    """Which groups `me` owns among the members known now. `me` is always a member."""

    def __init__(self, me: str, groups: int) -> None:
        self._me = me
        self._groups = groups
        self._mine = scores(me, groups)
        self._members: dict[str, array[int]] = {}
        self._blocked: dict[str, list[int]] = {}  # member -> groups whose known higher score is that member's
        self._owned = set(range(groups))
        self._leaders: dict[int, tuple[str, ...]] = {}
        self.version = 0

    def __contains__(self, member: str) -> bool:
        return member in self._members

    def __len__(self) -> int:
        return len(self._members) + 1

    def update(self, members: Iterable[str]) -> None:
        """Make these (and `me`) the members."""
        wanted = set(members) - {self._me}
        for member in self._members.keys() - wanted:
            self.remove(member)
        for member in wanted - self._members.keys():
            self.add(member)

    def add(self, member: str) -> None:
        """A member joins."""
        if member == self._me or member in self._members:
            return
        theirs = scores(member, self._groups)
        self._members[member] = theirs
        lost = [group for group in self._owned if self._above(member, theirs, group)]
        if lost:
            self._blocked[member] = lost
            self._owned.difference_update(lost)
        self._leaders.clear()
        self.version += 1

    def remove(self, member: str) -> None:
        """A member leaves."""
        if self._members.pop(member, None) is None:
            return
        for group in self._blocked.pop(member, ()):
            blocker = next((name for name, theirs in self._members.items() if self._above(name, theirs, group)), None)
            if blocker is None:
                self._owned.add(group)
            else:
                self._blocked.setdefault(blocker, []).append(group)
        self._leaders.clear()
        self.version += 1

    def owned(self) -> list[int]:
        """Groups that `me` owns, the surest first: those which the fewest unseen members could still win."""
        return sorted(self._owned, key=self._mine.__getitem__, reverse=True)

    def leaders(self, group: int) -> tuple[str, ...]:
        """The members (me included) with the three highest scores for a group, the owner first."""
        found = self._leaders.get(group)
        if found is None:
            table = self._members
            ranked = heapq.nlargest(3, [(theirs[group], name) for name, theirs in table.items()])
            ranked.append((self._mine[group], self._me))
            found = self._leaders[group] = tuple(name for _, name in sorted(ranked, reverse=True)[:3])
        return found

    def _above(self, member: str, theirs: array[int], group: int) -> bool:
        score, own = theirs[group], self._mine[group]
        return score > own or (score == own and member > self._me)


__all__ = ["LARGEST_GROUPS", "Shares", "affinity", "key", "scores"]
