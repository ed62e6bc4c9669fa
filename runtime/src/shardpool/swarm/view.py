"""What one replica knows of its pool: links, who holds what, what is still needed.

Only facts live here; `picker` and `seed_share` draw conclusions from them, and `scheduler` acts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardpool.swarm.availability import Availability
from shardpool.swarm.bits import members
from shardpool.swarm.digests import Digests
from shardpool.swarm.peer_link import PeerLink
from shardpool.swarm.rendezvous import LARGEST_GROUPS, Shares
from shardpool.swarm.state import Phase
from shardpool.swarm.transfer import Transfers


@dataclass(frozen=True, slots=True)
class Plan:
    """The outline as far as the scheduler needs it: number and lengths of pieces, and the outline's digest."""

    pieces: int
    length: Callable[[int], int]
    digest: bytes


class View:
    """The facts about the pieces of one shard. Sets of pieces are bits.

    `need`: not held and not under way; `held`: verified and in place; `missing`: not verified yet.
    """

    def __init__(self, me: str, plan: Plan, links: dict[int, PeerLink], seed_readers: int) -> None:
        self.me = me
        self.plan = plan
        self.piece_size = plan.length(0) if plan.pieces else 1
        self.links = links
        self.everything = (1 << plan.pieces) - 1
        self.need = self.missing = self.everything
        self.held = 0
        self.available = Availability(plan.pieces)
        self.digests = Digests(plan.pieces)
        self.transfers = Transfers()
        self.groups = max(1, min(plan.pieces, LARGEST_GROUPS))
        self.firsts = Shares(me, self.groups)  # who takes a scarce piece from its only source
        self.readers = self.firsts if not seed_readers else Shares(me, self.groups)  # who reads it from the seed
        self.ready_links = 0
        self.scarce_level = 1  # pieces with up to so many holders are scarce
        self.typical_wait = 0.0  # seconds from asking a peer to landing, running mean
        self.best_capacity = 0.0
        self._own = (-1, 0)
        self.claims_changed = True
        self._claimed = 0
        self._claimed_until = 0.0

    def rename(self, me: str) -> None:
        """This replica goes by another name among the members."""
        self.me = me
        same = self.readers is self.firsts
        self.firsts = Shares(me, self.groups)
        self.readers = self.firsts if same else Shares(me, self.groups)
        self._own = (-1, 0)

    def group_of(self, piece: int) -> int:
        """The group that a piece belongs to: runs of pieces, so that a share of storage is read in runs as well."""
        return piece * self.groups // self.plan.pieces

    def pieces_of(self, group: int) -> int:
        """The set of pieces of a group."""
        first = -(-group * self.plan.pieces // self.groups)
        end = -(-(group + 1) * self.plan.pieces // self.groups)
        return ((1 << (end - first)) - 1) << first

    def bits_of(self, groups: list[int]) -> int:
        """The set of pieces of some groups."""
        if self.groups == self.plan.pieces:
            packed = bytearray(self.plan.pieces // 8 + 1)
            for group in groups:
                packed[group >> 3] |= 1 << (group & 7)
            return int.from_bytes(packed, "little")
        found = 0
        for group in groups:
            found |= self.pieces_of(group)
        return found

    @property
    def own(self) -> int:
        """Pieces that this replica is the first to take from a single source."""
        if self._own[0] != self.firsts.version:
            self._own = (self.firsts.version, self.bits_of(self.firsts.owned()))
        return self._own[1]

    def complete(self) -> bool:
        """Every piece is verified and in place, and no digest is disputed."""
        return self.held == self.everything and not self.digests.doubt

    def want(self) -> int:
        """Pieces to ask peers for: needed and on offer."""
        return self.need & ~self.available.absent

    # Announcements

    def announce(self, link: PeerLink, piece: int, digest: bytes) -> bool:
        """A peer announced a piece; False if its digest contradicts what is known."""
        bit = 1 << piece
        if not self.digests.agrees(piece, digest):
            link.odd[piece] = digest
            return False
        if not link.mask & bit:
            link.odd.pop(piece, None)
            link.mask |= bit
            if not self.digests.doubt & bit:
                link.usable |= bit
                self.available.add(piece)
        return True

    def retract(self, link: PeerLink, piece: int) -> None:
        """A peer holds a piece no longer."""
        bit = 1 << piece
        link.odd.pop(piece, None)
        if link.usable & bit:
            link.usable ^= bit
            self.available.remove(piece)
        link.mask &= ~bit

    def shun(self, link: PeerLink, piece: int) -> None:
        """Do not ask this link for the piece again while the given-up request for it is not settled."""
        bit = 1 << piece
        if link.usable & bit:
            link.usable ^= bit
            self.available.remove(piece)

    def allow(self, link: PeerLink, piece: int) -> None:
        """The request that `shun` was about is settled."""
        bit = 1 << piece
        if link.mask & bit and not (link.usable | self.digests.doubt) & bit:
            link.usable |= bit
            self.available.add(piece)

    def retract_all(self, link: PeerLink) -> None:
        """A link ended."""
        self.available.remove_all(link.usable)
        link.usable = link.mask = link.claims = 0
        link.claimed_at.clear()
        self.claims_changed = True
        link.odd.clear()

    def question(self, piece: int) -> None:
        """Distrust every announcer of a piece."""
        self.digests.question(piece)
        bit = 1 << piece
        for link in self.links.values():
            if link.usable & bit:
                link.usable ^= bit
                self.available.remove(piece)

    def trust(self, piece: int) -> None:
        """The announcers of the agreed digest may be asked for the piece."""
        bit = 1 << piece
        for link in self.links.values():
            if link.mask & bit and not link.usable & bit:
                link.usable |= bit
                self.available.add(piece)

    def decide(self, piece: int, digest: bytes) -> list[PeerLink]:
        """The piece's digest is this, for good; returns the links that announced another one."""
        bit = 1 << piece
        liars: list[PeerLink] = []
        agreed = self.digests.get(piece)
        for link in self.links.values():
            said = agreed if link.mask & bit else link.odd.get(piece)
            if said is None or said == digest:
                if said is not None:
                    link.odd.pop(piece, None)
                    link.mask |= bit
                continue
            liars.append(link)
            self.retract(link, piece)
            link.odd[piece] = said
        self.digests.decide(piece, digest)
        self.trust(piece)
        return liars

    def dissolve(self) -> None:
        """Doubts that only rested on peers which are gone end."""
        for piece in members(self.digests.doubt):
            if not any(piece in link.odd for link in self.links.values()):
                self.digests.trust_again(piece)
                self.trust(piece)

    # Pieces

    def begin(self, piece: int) -> None:
        """A piece is under way."""
        self.need &= ~(1 << piece)

    def lack(self, piece: int) -> None:
        """A piece is not under way any more: needed again, unless it is verified or another transfer brings it."""
        bit = 1 << piece
        if self.missing & bit and not self.transfers.live(piece):
            self.need |= bit

    def verified(self, piece: int) -> None:
        """A piece is verified, though maybe not in place yet."""
        self.missing &= ~(1 << piece)
        self.need &= ~(1 << piece)

    def placed(self, piece: int) -> None:
        """A piece is verified and in place."""
        self.verified(piece)
        self.held |= 1 << piece

    def lost(self, piece: int) -> None:
        """A held piece turned out to be wrong."""
        bit = 1 << piece
        self.held &= ~bit
        self.missing |= bit
        if not self.transfers.live(piece):
            self.need |= bit

    # Members

    def fillers(self) -> list[PeerLink]:
        """Linked peers that are filling as well."""
        return [link for link in self.links.values() if link.info and not link.closing and link.phase is Phase.FILLING]

    def claimed(self, now: float, patience: float) -> int:
        """Pieces that a linked peer brings into the pool; a claim that is older than `patience` seconds is not respected."""
        if self.claims_changed or now > self._claimed_until:
            self.claims_changed = False
            self._claimed_until = float("inf")
            found = 0
            for link in self.links.values():
                for piece, since in link.claimed_at.items():
                    if now <= since + patience:
                        found |= 1 << piece
                        self._claimed_until = min(self._claimed_until, since + patience)
            self._claimed = found
        return self._claimed


__all__ = ["Plan", "View"]
