"""Who sends what: the load of one shard as a pure state machine.

No clock, no thread, no socket: events come in with the time `now` (seconds of any monotonic clock), `actions(now)` says what to do, and
`wake_at` when to call again if nothing happens before. The same events with the same times and the same random seed give the same
actions.

A source is a peer that announced a piece, complete or still filling; the seed is one more source, for what no live peer has or is
about to have (`seed_share`). What to ask whom is `picker`'s business, which endpoints to dial `peer_table`'s. This module holds the
rules about trust and time:

- A piece counts when its digest is the announced one. A sender whose piece differs is struck, and dropped at the second strike.
- When announcements contradict each other, every announcer is distrusted for that piece and the seed decides; liars are struck.
- A link that brings no byte for `stall_seconds` while something is asked of it is closed; its pieces are asked for elsewhere at once.
- A slow last piece is asked for a second time elsewhere, into other memory; the first copy to arrive is kept.
- The load ends complete, or with one typed error that names every peer and why it was not used, at the deadline at the latest.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from shardpool.discovery.base import Endpoint
from shardpool.errors import (
    AbandonedError,
    CatalogError,
    DeadlineExceededError,
    IntegrityError,
    MismatchError,
    NoSourceError,
    PeerBusyError,
    PieceLentError,
    ShardpoolError,
)
from shardpool.retry import Backoff
from shardpool.swarm.actions import (
    SEED,
    Abandon,
    Action,
    Claim,
    Close,
    Connect,
    Discard,
    Finish,
    Keep,
    ReadSeed,
    Request,
    RequestOutline,
    Resolve,
    Scan,
    Withdraw,
)
from shardpool.swarm.bits import bit_set, members, pick, size
from shardpool.swarm.digests import content_digest
from shardpool.swarm.first_look import FirstLook
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.peer_link import PeerLink
from shardpool.swarm.peer_table import EVERY_PEER, FEWEST, Candidate, PeerTable
from shardpool.swarm.picker import Picker, lent_patience, patience
from shardpool.swarm.read_pace import ReadPace
from shardpool.swarm.seed_share import SeedShare
from shardpool.swarm.state import Party, PeerInfo, PeerUpdate, Phase
from shardpool.swarm.transfer import Parked, Transfer
from shardpool.swarm.view import Plan, View

STRIKES = 2
_FAILURES = 3  # requests in a row that may fail without a landing before the link is given up
_LARGEST_PIECE = 1 << 20  # number of a claimed piece, while the outline is not known
_SEED_FAILURES = 5  # reads in a row
_BUSY_PATIENCE = 3  # stall times for which busy peers are waited for before the seed is read instead
_SHORTEST_WAKE = 0.0005
_LOOK_AGAIN = 0.1  # seconds between looks at the shares of others
_BACKLOG = 256  # announcements kept while the outline is not known


@dataclass(slots=True)
class Tally:
    """What the load cost, for its summary."""

    bytes_from: dict[str, int] = field(default_factory=lambda: {"peer": 0, "seed": 0, "resume": 0})
    refetched: int = 0
    peers_used: set[str] = field(default_factory=set)
    rejected: dict[str, str] = field(default_factory=dict)  # target -> reason
    rejections: dict[str, int] = field(default_factory=dict)  # reason's label -> count
    fallbacks: dict[str, int] = field(
        default_factory=dict
    )  # reason -> pieces read from the seed though peers offered them


class Scheduler:
    """One load of one rank.

    Args:
        party: this replica; `endpoint` is its key among the members of the pool.
        options: bounds and habits.
        reads_seed: there is a seed to read from.
        now, deadline: when the load begins, and when it must be over.
        rng: the only source of chance.
    """

    def __init__(
        self, party: Party, options: SwarmOptions, *, reads_seed: bool, now: float, deadline: float, rng: random.Random
    ) -> None:
        self.tally = Tally()
        self.finished = False
        self._party = party
        self._me = party.endpoint or party.instance
        self._options = options
        self._reads_seed = reads_seed
        self._seed_problem = ""
        self._rng = rng
        self._started, self._deadline = now, deadline
        self._table = PeerTable(
            self._me,
            Backoff(options.round_seconds, 2.0, max(options.round_seconds, options.longest_round_seconds)),
            rng,
        )
        self._links: dict[int, PeerLink] = {}
        self._next_link = 0
        self._instances: dict[str, int] = {}
        self._strikes: dict[str, int] = {}
        self._banned: dict[str, str] = {}
        self._mismatches: dict[str, MismatchError] = {}
        self._view: View | None = None
        self._share: SeedShare | None = None
        self._pace = ReadPace(options.seed_concurrency)
        self._sharers = 0  # other replicas that may be reading the seed
        self._outline_from: int | None = None
        self._outline_asked = 0.0
        self._scanned = False
        self._backlog: dict[int, deque[PeerUpdate]] = {}
        self._first_look = FirstLook(party.endpoint if options.passes_on else "", now, options.first_look_seconds, rng)
        self._looked_at: float | None = None  # when it was over
        self._members_of = (-1, -1)
        self._members_version = 0
        self._claims = 0
        self._seed_pause = 0.0
        self._seed_failures = 0
        self._look_at = 0.0
        self._last_opened = now
        self._useful_at = now
        self._stall_at = now
        self._peer_landed_at = now
        self._starving_since: float | None = None
        self._anchored = False
        self._from_seed = 0
        self._out: list[Action] = [Resolve()]
        self._wake = now
        self._dirty = True  # something happened that may lead to a decision
        self._waiting = False  # nothing more can be asked of peers now
        self._hungry = True  # more could be asked for than there was on offer

    # Events: the pool

    def listed(self, now: float, endpoints: Iterable[Endpoint], problem: str = "", final: bool = False) -> None:
        """The pool was listed; `problem` says why the list may be incomplete, `final` that it cannot change."""
        self._dirty = True
        endpoints = tuple(endpoints)
        self._first_look.listed(now, endpoints, problem=problem, final=final)
        self._table.listed(endpoints, problem)

    def met(self, now: float, endpoint: Endpoint) -> None:
        """A peer of this pool called; it can be dialled here."""
        if endpoint.target != self._me and self._options.meets_callers:
            self._dirty = True
            self._first_look.met(now, endpoint)
            self._table.met(endpoint)

    def opened(self, now: float, number: int, info: PeerInfo) -> None:
        """A link's peer answered the handshake."""
        self._dirty = True
        link = self._links.get(number)
        if link is None or link.closing:
            return
        instance = info.party.instance
        known = self._instances.get(instance)
        if known == number:
            # It learnt its outline since it was asked first.
            link.info = info
            if self._view and info.party.catalog_digest not in (b"", self._view.plan.digest):
                self._reject(link, self._catalog_differs(info.party.catalog_digest), "catalog")
        elif instance == self._party.instance or known is not None:
            if instance == self._party.instance:
                self._learn_own_name(link.candidate.endpoint)
            link.alias = True
            self._table.alias(link.candidate, itself=instance == self._party.instance)
            self._end(link)
        elif instance in self._banned:
            self._reject(link, self._banned[instance], "corrupt")
        elif self._view and info.party.catalog_digest not in (b"", self._view.plan.digest):
            self._reject(link, self._catalog_differs(info.party.catalog_digest), "catalog")
        else:
            link.info, link.phase, link.load, link.reads_seed = info, info.phase, info.load, info.reads_seed
            link.last_progress = link.opened_at = self._last_opened = now
            self._set_claims(now, link, info.claims)
            self._instances[instance] = number
            self._mismatches.pop(link.name, None)
            self.tally.rejected.pop(link.name, None)
            self._table.linked(link.candidate, number)
            self._count_ready()
            self._members_version += 1

    def _learn_own_name(self, endpoint: Endpoint) -> None:
        """A replica that was not told its address learns under which name its peers know it."""
        if self._party.endpoint or endpoint.shared or self._me != self._party.instance:
            return
        self._me = endpoint.target
        if self._view:
            self._view.rename(self._me)
        self._members_version += 1

    def updated(self, now: float, number: int, update: PeerUpdate) -> None:
        """A peer announced something."""
        link = self._links.get(number)
        if link is None or link.info is None or link.closing:
            return
        self._dirty = self._dirty or not link.heard
        link.load, link.generation, link.heard = update.load, update.generation, True
        if link.busy_until > now and update.load.readers < update.load.max_readers:
            link.busy_until = now  # it has a place again, sooner than it said
        self._dirty = self._dirty or self._hungry or bool(update.withdrawn)
        if update.phase is not link.phase or update.reads_seed != link.reads_seed:
            link.phase, link.reads_seed = update.phase, update.reads_seed
            self._count_ready()
            self._members_version += 1
            self._dirty = True
        if update.claims is not None:
            self._set_claims(now, link, update.claims)
        view = self._view
        if view is None:
            if update.added or update.withdrawn:
                kept = self._backlog.setdefault(number, deque())
                kept.append(update)
                if len(kept) > _BACKLOG:
                    self._reject(link, "announces without end while the outline is not known", "protocol")
            return
        self._announced(now, link, view, update)

    def closed(self, now: float, number: int, error: ShardpoolError | None) -> None:
        """A link ended; all its pieces were settled before."""
        self._dirty = True
        link = self._links.pop(number, None)
        if link is None:
            return
        self._backlog.pop(number, None)
        if self._outline_from == number:
            self._outline_from = None
        opened = link.info is not None and self._instances.get(link.instance) == number
        if opened:
            del self._instances[link.instance]
            self._table.free_aliases()
        view = self._view
        if view:
            # A transport that forgets to settle a piece must not hang the load; its memory stays taken.
            for piece in list(link.outstanding):
                self._give_up(view, link, piece)
            view.retract_all(link)
            if link.instance in self._banned:
                view.dissolve()
            self._count_ready()
            for other in self._links.values():
                other.lapse(now)  # what others were sent may have gone with it
        if self._share and opened:
            self._share.calm_since = now
        self._members_version += 1
        if isinstance(error, MismatchError) and error.reason == "self":
            self._learn_own_name(link.candidate.endpoint)
            self._table.alias(link.candidate, itself=True)
            return
        if link.alias:
            return
        reason, label, again = self._why(link, error)
        if error is not None and not link.reason:
            self._count_rejection(link.name, reason, label)
        self._table.failed(link.candidate, number, reason, again=again)

    # Events: the outline

    def planned(
        self,
        now: float,
        *,
        pieces: int,
        length: Callable[[int], int],
        digest: bytes,
        held: Mapping[int, bytes],
        resumed: int = 0,
    ) -> None:
        """The outline is known: `pieces` of `length(piece)` bytes; `held` were found in the store and verified (`resumed` bytes)."""
        self._dirty = True
        plan = Plan(pieces, length, digest)
        self._view = view = View(self._me, plan, self._links, self._options.seed_readers)
        self._share = SeedShare(view, self._options, self._rng, now)
        self._outline_from = None
        self.tally.bytes_from["resume"] += resumed
        for piece, found in held.items():
            view.digests.agrees(piece, found)
            view.placed(piece)
        self._count_ready()
        self._members_version += 1
        for link in list(self._links.values()):
            if link.info and not link.closing and link.info.party.catalog_digest not in (b"", digest):
                self._reject(link, self._catalog_differs(link.info.party.catalog_digest), "catalog")
        for number, updates in self._backlog.items():
            for update in updates:
                link = self._links[number]
                if not link.closing:
                    self._announced(now, link, view, update)
        self._backlog.clear()

    def outline_refused(self, now: float, number: int, error: CatalogError) -> None:
        """The outline that a link sent breaks a rule, or is not the one that its peer announced."""
        self._dirty = True
        link = self._links.get(number)
        if self._outline_from == number:
            self._outline_from = None
        if link is not None and not link.closing:
            if link.instance:
                self._banned[link.instance] = str(error)
            self._reject(link, str(error), "catalog")

    # Events: pieces

    def progress(self, now: float, number: int, piece: int, received: int) -> None:
        """`received` more bytes of a piece arrived over a link."""
        link = self._links.get(number)
        if link is None or self._view is None:
            return
        link.last_progress = now
        transfer = self._view.transfers.get(number, piece)
        if transfer is not None:
            transfer.received += received
            transfer.last_progress = now

    def landed(self, now: float, number: int, piece: int, digest: bytes) -> None:
        """A piece arrived over a link, and these bytes have this digest."""
        self._dirty = True
        view = self._view
        transfer = view.transfers.settle(number, piece) if view else None
        if view is None or transfer is None:
            return
        link = self._links.get(number)
        length = view.plan.length(piece)
        if link is not None:
            link.outstanding.pop(piece, None)
            if not transfer.given_up:
                link.measured(now, transfer.asked, length)
                view.typical_wait += (0.2 if view.typical_wait else 1.0) * (now - transfer.asked - view.typical_wait)
                view.best_capacity = max(link.capacity, view.best_capacity * 0.99)
        self._peer_landed_at = self._useful_at = now
        if not view.missing >> piece & 1:
            self.tally.refetched += 1
            self._drop(view, transfer)
        elif view.digests.doubt >> piece & 1:
            self._drop(view, transfer)
        elif digest != view.digests.get(piece):
            self._drop(view, transfer)
            self.tally.refetched += 1
            if link is not None:
                self._strike(link, f"piece {piece} has digest {digest.hex()[:16]}, not the announced one")
        else:
            self.tally.bytes_from["peer"] += length
            if link is not None:
                self.tally.peers_used.add(link.name)
            self._table.prospered()
            self._accept(view, transfer, digest)

    def failed(self, now: float, number: int, piece: int, error: ShardpoolError) -> None:
        """A piece will not arrive over a link, and nothing writes to its memory any more."""
        self._dirty = True
        view = self._view
        transfer = view.transfers.settle(number, piece) if view else None
        if view is None or transfer is None:
            return
        link = self._links.get(number)
        if link is not None:
            link.outstanding.pop(piece, None)
            if transfer.given_up and not link.closing:
                view.allow(link, piece)
        self._drop(view, transfer)
        if link is None or link.closing or transfer.given_up or isinstance(error, AbandonedError):
            return
        if isinstance(error, PieceLentError):
            link.lends(now, error.lent & view.everything | 1 << piece)
            return
        if isinstance(error, PeerBusyError):
            # Spread the return of those who were sent away together.
            if now >= link.busy_until:
                self._count_rejection(link.name, "", "busy", final=False)
            link.busy_until = max(link.busy_until, now + error.retry_after * (1 + 0.5 * self._rng.random()))
            return
        self.tally.refetched += transfer.received > 0
        link.failures += 1
        if link.failures >= _FAILURES:
            self._reject(link, f"{link.failures} reads in a row failed, the last with: {error}", "unreachable")

    def seed_landed(self, now: float, piece: int, digest: bytes) -> None:
        """A piece was read from the seed, and has this digest."""
        self._dirty = True
        view, share = self._view, self._share
        transfer = view.transfers.settle(SEED, piece) if view else None
        if view is None or share is None or transfer is None:
            return
        self._seed_failures = 0
        self._useful_at = now
        took = now - transfer.asked
        share.typical_read += (0.2 if share.typical_read else 1.0) * (took - share.typical_read)
        self._pace.measured(now, transfer.asked, view.plan.length(piece))
        self._from_seed |= 1 << piece
        held = view.digests.get(piece) if view.held >> piece & 1 else None
        disputed = bool(view.digests.doubt >> piece & 1)
        for link in view.decide(piece, digest):
            self._strike(link, f"announces another digest for piece {piece} than the seed's bytes have")
        if held is not None and held != digest:
            view.lost(piece)
            self._out.append(Withdraw(piece))
        if view.missing >> piece & 1:
            self.tally.bytes_from["seed"] += view.plan.length(piece)
            self._accept(view, transfer, digest)
        else:
            if not disputed:
                self.tally.refetched += 1
            self._drop(view, transfer)
            if disputed:
                view.placed(piece)

    def seed_failed(self, now: float, piece: int, error: ShardpoolError, *, transient: bool) -> None:
        """A read from the seed failed."""
        self._dirty = True
        view = self._view
        transfer = view.transfers.settle(SEED, piece) if view else None
        if view is None or transfer is None:
            return
        self._drop(view, transfer)
        self._seed_failures += 1
        self._seed_problem = str(error)
        if not transient or self._seed_failures >= _SEED_FAILURES:
            self._reads_seed = False
            self._members_version += 1
        else:
            self._seed_pause = now + min(5.0, 0.2 * 2**self._seed_failures) * (1 + 0.25 * self._rng.random())

    def seed_lost(self, now: float, error: ShardpoolError) -> None:
        """The seed cannot be used in this load."""
        self._dirty = True
        self._reads_seed = False
        self._seed_problem = str(error)
        self._members_version += 1
        self._useful_at = now

    # Decisions

    @property
    def wake_at(self) -> float:
        """When `actions` wants to be called again if nothing happens before."""
        return self._wake

    @property
    def unlisted(self) -> bool:
        """The first look at the pool ended by its time, and no list had this replica."""
        return self._first_look.missed

    @property
    def reads_seed(self) -> bool:
        """Whether the seed is still a source."""
        return self._reads_seed

    @property
    def held(self) -> int:
        """Pieces verified and in place, as bits."""
        return self._view.held if self._view else 0

    def actions(self, now: float) -> list[Action]:
        """What to do now. To be called after each event or batch of events, and at `wake_at`."""
        if not self.finished and (self._dirty or now >= self._wake):
            self._dirty = False
            self._wake = now + self._options.longest_wake
            if now >= self._deadline:
                self._finish(DeadlineExceededError(self._unfinished("the deadline passed"), hint=self._hint()))
            else:
                self._decide(now)
                # A due time that rounding puts into the past must not make its caller spin.
                self._wake = max(min(self._wake, self._deadline), now + _SHORTEST_WAKE)
        out, self._out = self._out, []
        return out

    def fail(self, error: ShardpoolError) -> None:
        """The driver met an error that ends the load (the store failed, or it was told to stop)."""
        if not self.finished:
            self._finish(error)

    def _decide(self, now: float) -> None:
        view, share = self._view, self._share
        self._check_stalls(now)
        if view is None or share is None:
            self._dial(now, lacking=True)
            self._seek_outline(now)
        else:
            if view.complete() and self._conclude(now, view):
                return
            self._update_members(view, share)
            self._request(now, view)
            idle = not view.transfers.active and not view.want()
            self._read_seed(now, view, share, idle)
            self._repeat_slow(now, view)
            starving = bool(view.need) and not view.want()
            if not starving:
                self._starving_since = None
            elif self._starving_since is None:
                self._starving_since = now
            self._dial(now, lacking=False)
            self._announce_claims(view)
        self._check_hope(now)

    def _wake_by(self, when: float) -> None:
        self._wake = min(self._wake, when)

    # Links

    def _dial(self, now: float, *, lacking: bool) -> None:
        table = self._table
        wanted = table.wanted
        if not self._first_look.over(now):
            wanted = min(wanted, FEWEST)  # it may turn out to be a large pool, whose links are to come out even
            if self._first_look.ask(now):
                self._out.append(Resolve())
            self._wake_by(self._first_look.wake_at)
        starving = self._starving_since
        if starving is not None and now - starving > 1:
            # The neighbours have nothing new: look further, up to twice the degree.
            wanted = min(2 * wanted, wanted + 2 * int(now - starving))
        links = len(self._instances)
        for candidate in table.dial(links, wanted):
            self._connect(candidate)
        lacking = lacking or links < wanted
        if table.next_round(now, lacking):
            self._out.append(Resolve())
            for candidate in table.dial(links, wanted):
                self._connect(candidate)
        if table.round_at is not None:
            self._wake_by(table.round_at)

    def _connect(self, candidate: Candidate) -> None:
        number = self._next_link
        self._next_link += 1
        self._links[number] = PeerLink(number, candidate)
        self._out.append(Connect(number, candidate.endpoint))

    def _check_stalls(self, now: float) -> None:
        limit = self._options.stall_seconds
        view = self._view
        if view is None or not view.transfers.active:
            return
        if now < self._stall_at:
            self._wake_by(self._stall_at)
            return
        self._stall_at = now + limit
        for link in list(self._links.values()):
            if not link.outstanding or link.closing:
                continue
            first = next(iter(link.outstanding.values()))
            since = max(link.last_progress, first.asked)
            if now >= since + limit:
                self._reject(link, f"no byte in {limit:g} s while {len(link.outstanding)} pieces were due", "stalled")
                continue
            self._stall_at = min(self._stall_at, since + limit)
            if now >= max(first.last_progress, first.asked, link.last_landed) + 3 * limit:
                # Others come through, this one does not.
                link.failures += 1
                view.shun(link, first.piece)
                self._give_up(view, link, first.piece)
                self._out.append(Abandon(link.number, first.piece))
        self._wake_by(self._stall_at)

    def _reject(self, link: PeerLink, reason: str, label: str) -> None:
        link.reason = reason
        self._count_rejection(link.name, reason, label)
        self._end(link)

    def _end(self, link: PeerLink) -> None:
        """Close a link; what it carries is asked for elsewhere without waiting for its memory."""
        if link.closing:
            return
        link.closing = True
        view = self._view
        if view:
            view.retract_all(link)
            for piece in list(link.outstanding):
                self._give_up(view, link, piece)
            self._count_ready()
        self._members_version += 1
        self._out.append(Close(link.number))

    def _give_up(self, view: View, link: PeerLink, piece: int) -> None:
        link.outstanding.pop(piece, None)
        transfer = view.transfers.get(link.number, piece)
        if transfer is not None and not transfer.given_up:
            self.tally.refetched += transfer.received > 0 and bool(view.missing >> piece & 1)
            view.transfers.give_up(transfer)
        view.lack(piece)

    def _strike(self, link: PeerLink, reason: str) -> None:
        strikes = self._strikes[link.instance] = self._strikes.get(link.instance, 0) + 1
        if strikes >= STRIKES and not link.closing:
            self._banned[link.instance] = f"dropped after {strikes} strikes: {reason}"
            self._reject(link, self._banned[link.instance], "corrupt")
            if self._view:
                self._view.dissolve()
        else:
            self._count_rejection(link.name, reason, "corrupt", final=False)

    def _why(self, link: PeerLink, error: ShardpoolError | None) -> tuple[str, str, bool]:
        """Why a link ended: text, label of the metric, and whether to try the endpoint again at once."""
        if link.reason:
            return link.reason, "", False
        if isinstance(error, MismatchError):
            self._mismatches[link.name] = error
            # Another instance answers at the address now: agree again.
            return str(error), error.reason, error.reason == "instance"
        if isinstance(error, PeerBusyError):
            return str(error), "busy", False
        if isinstance(error, CatalogError):
            return str(error), "protocol", False
        if error is not None:
            return str(error), "unreachable", False
        return "", "", False

    def _count_rejection(self, name: str, reason: str, label: str, *, final: bool = True) -> None:
        if label:
            self.tally.rejections[label] = self.tally.rejections.get(label, 0) + 1
        if final:
            self.tally.rejected[name] = reason

    def _count_ready(self) -> None:
        view = self._view
        if view is None:
            return
        phases = [link.phase for link in self._links.values() if link.info and not link.closing]
        ready, fillers = phases.count(Phase.READY), phases.count(Phase.FILLING) + 1
        view.ready_links = ready
        # What only complete replicas hold is scarce when they are fewer than those who want it.
        view.scarce_level = (ready if ready < fillers else 0) if ready else 1

    def _catalog_differs(self, theirs: bytes) -> str:
        ours = self._view.plan.digest.hex()[:16] if self._view else "?"
        return f"catalog differs: ours is {ours}, theirs is {theirs.hex()[:16]}"

    # The outline

    def _seek_outline(self, now: float) -> None:
        if self._outline_from is not None:
            link = self._links.get(self._outline_from)
            if link is not None and now - self._outline_asked >= self._options.stall_seconds:
                self._reject(link, "the outline did not come in time", "stalled")
                self._outline_from = None
            else:
                self._wake_by(self._outline_asked + self._options.stall_seconds)
                return
        offers = [
            link
            for link in self._links.values()
            if link.info and not link.closing and link.info.outline_size and link.info.party.catalog_digest
        ]
        if not offers:
            if self._reads_seed and not self._scanned and self._settled(now):
                self._scanned = True
                self._out.append(Scan())
            return
        if self._table.connecting and now - self._started < self._options.settle_seconds:
            return  # wait for the other handshakes: the most common digest is the pool's
        votes: dict[bytes, int] = {}
        for link in offers:
            assert link.info
            votes[link.info.party.catalog_digest] = votes.get(link.info.party.catalog_digest, 0) + 1
        chosen = max(offers, key=lambda link: (votes[link.info.party.catalog_digest], -link.number))  # type: ignore[union-attr]
        self._outline_from, self._outline_asked = chosen.number, now
        self._out.append(RequestOutline(chosen.number))
        self._wake_by(now + self._options.stall_seconds)

    # Announcements

    def _announced(self, now: float, link: PeerLink, view: View, update: PeerUpdate) -> None:
        pieces = view.plan.pieces
        fresh = 0
        for piece, digest in update.added:
            if not 0 <= piece < pieces:
                self._reject(link, f"announces piece {piece} of {pieces}", "protocol")
                return
            if view.announce(link, piece, digest):
                fresh |= 1 << piece
            elif view.digests.decided(piece) or self._anchored:
                self._strike(link, f"announces another digest for piece {piece} than was established")
                if link.closing:
                    return
            else:
                view.question(piece)
                self._dirty = True
        for piece in update.withdrawn:
            if 0 <= piece < pieces:
                view.retract(link, piece)
                fresh &= ~(1 << piece)
        if fresh & view.missing:
            link.offers(now, fresh)
            if self._share:
                self._share.news_at = now
        if self._options.content_digest and not self._anchored and update.added:
            self._anchor(link, view)

    def _anchor(self, link: PeerLink, view: View) -> None:
        """A peer whose complete list of digests gives the pinned content digest settles every piece; another complete list is refused."""
        if size(link.mask) + len(link.odd) < view.plan.pieces:
            return
        complete = view.digests.complete(link.odd, link.mask)
        if complete is None:
            return
        found = content_digest(view.plan.digest, complete)
        if found != self._options.content_digest:
            text = f"content digest {found.hex()[:16]} is not the pinned {self._options.content_digest.hex()[:16]}"
            self._banned[link.instance] = text
            self._reject(link, text, "corrupt")
            view.dissolve()
            return
        self._anchored = self._dirty = True
        for piece, digest in enumerate(complete):
            held = view.digests.get(piece) if view.held >> piece & 1 else None
            for liar in view.decide(piece, digest):
                self._strike(liar, f"announces another digest for piece {piece} than the pinned content has")
            if held is not None and held != digest:
                view.lost(piece)
                self._out.append(Withdraw(piece))

    def _set_claims(self, now: float, link: PeerLink, claims: Iterable[int]) -> None:
        bound = self._view.plan.pieces if self._view else _LARGEST_PIECE
        before = link.claimed_at
        link.claimed_at = {piece: before.get(piece, now) for piece in claims if 0 <= piece < bound}
        link.claims = bit_set(link.claimed_at)
        if self._view:
            self._view.claims_changed = True

    # Pieces

    def _request(self, now: float, view: View) -> None:
        self._hungry = False
        if view.need:
            claimed = view.claimed(now, self._share.claim_patience if self._share else self._options.stall_seconds)
            picker = Picker(view, self._options, self._rng, now, claimed)
            for link, piece, scarce in picker.choose():
                self._ask(
                    now, view, link, piece, first=scarce and self._options.passes_on and link.phase is Phase.READY
                )
                # Where only some see some, claims of this kind would be many and of little use.
                if scarce and len(self._table) <= EVERY_PEER + 1:
                    view.transfers.bringing |= 1 << piece
            self._waiting = picker.hungry
            self._hungry = picker.hungry or (self._reads_seed and bool(view.need & view.available.absent))
        want = view.want()
        if not want:
            return
        self._useful_at = now
        if not self._hungry:
            return
        lent_for = lent_patience(view, self._options)
        for link in self._links.values():
            if not link.usable & want or link.closing:
                continue
            link.lapse(now - lent_for)
            if link.lent_since:
                self._wake_by(link.lent_since[0][0] + lent_for)
            if link.busy_until > now:
                self._wake_by(link.busy_until)
            elif link.fresh_since:
                link.ripen(now, patience(view, link))
                if link.fresh_since:
                    self._wake_by(link.fresh_since[0][0] + patience(view, link))

    def _ask(self, now: float, view: View, link: PeerLink, piece: int, *, first: bool = False) -> None:
        transfer = view.transfers.begin(link.number, piece, now)
        view.begin(piece)
        link.outstanding[piece] = transfer
        self._out.append(Request(link.number, piece, transfer.scratch, first))
        self._stall_at = min(self._stall_at, now + self._options.stall_seconds)
        self._wake_by(self._stall_at)

    def _accept(self, view: View, transfer: Transfer, digest: bytes) -> None:
        """A transfer brought verified bytes."""
        piece = transfer.piece
        if view.transfers.reading >> piece & 1:
            self._give_up_reading(view, piece)
        if transfer.scratch and not view.transfers.place_free(piece):
            view.transfers.parked[piece] = Parked(transfer.source, digest)
            view.verified(piece)
        else:
            self._keep(view, piece, digest, transfer.source, transfer.scratch)
        for other in view.transfers.live(piece):
            view.transfers.give_up(other)
            link = self._links.get(other.source)
            if link is not None:
                link.outstanding.pop(piece, None)
            self._out.append(Abandon(other.source, piece))

    def _give_up_reading(self, view: View, piece: int) -> None:
        """A read from the seed can be given up at once, whatever the seed does."""
        read = view.transfers.settle(SEED, piece)
        if read is not None:
            self._out.append(Abandon(SEED, piece))
            if read.scratch:
                self._out.append(Discard(piece, SEED))

    def _keep(self, view: View, piece: int, digest: bytes, source: int, scratch: bool) -> None:
        self._out.append(Keep(piece, digest, source, scratch))
        view.digests.agrees(piece, digest)
        view.placed(piece)
        parked = view.transfers.parked.pop(piece, None)
        if parked is not None and parked.source != source:
            self._out.append(Discard(piece, parked.source))

    def _drop(self, view: View, transfer: Transfer) -> None:
        """A settled transfer brought nothing: free its memory, use what was parked, or need the piece again."""
        piece = transfer.piece
        if transfer.scratch:
            self._out.append(Discard(piece, transfer.source))
        parked = view.transfers.parked.get(piece)
        if parked is not None and view.transfers.place_free(piece):
            self._keep(view, piece, parked.digest, parked.source, scratch=True)
        elif parked is None:
            view.lack(piece)

    def _repeat_slow(self, now: float, view: View) -> None:
        """Ask for slow last pieces once more, elsewhere."""
        if (view.want() and not self._waiting) or not len(view.transfers) or not view.missing:
            return
        late = max(2 * view.typical_wait, 0.02) if view.typical_wait else 1.0
        read_late = max(1.0, 2 * self._share.typical_read if self._share else 0.0)
        room = max(2, self._options.window - view.transfers.active)
        again = float("inf")
        for transfer in sorted(view.transfers, key=lambda t: t.asked):
            piece = transfer.piece
            if transfer.given_up or not view.missing >> piece & 1 or room <= 0 or len(view.transfers.live(piece)) > 1:
                continue
            due = transfer.asked + (read_late if transfer.source == SEED else late)
            if now < due:
                again = min(again, due)
                continue
            again = min(again, now + max(late / 2, 0.02))
            best = self._another_source(now, view, piece)
            length = view.plan.length(piece)
            spent = now - transfer.asked
            left = spent * (length - transfer.received) / transfer.received if transfer.received else float("inf")
            if best is not None and left > (best.wait or late):
                room -= 1
                self._ask(now, view, best, piece)
        self._wake_by(again)

    def _another_source(self, now: float, view: View, piece: int) -> PeerLink | None:
        """The best source for a piece apart from those that are asked for it already."""
        asked = {other.source for other in view.transfers.of(piece)}
        others = [
            link
            for link in self._links.values()
            if link.usable >> piece & 1 and link.number not in asked and link.askable(now) and len(link.outstanding) < 2
        ]
        return min(others, key=lambda link: (len(link.outstanding), -link.rate, link.number), default=None)

    # The seed

    def _update_members(self, view: View, share: SeedShare) -> None:
        version = (self._table.version, self._members_version)
        if version == self._members_of:
            return
        self._members_of = version
        unseen = {name for name in self._table.live() if name != self._me}
        fillers = {link.member for link in view.fillers() if link.reads_seed or not self._reads_seed}
        others = fillers | unseen
        share.set_members(others, others)
        self._sharers = len(others)

    def _settled(self, now: float) -> bool:
        """The first look at the pool is over, and the first peers answered or failed to."""
        if not self._first_look.over(now):
            return False
        if self._looked_at is None:
            self._looked_at = now
        until = self._looked_at + self._options.settle_seconds
        table = self._table
        if now >= until or len(self._instances) >= (table.wanted + 1) // 2 or not (table.untried or table.connecting):
            return True
        self._wake_by(until)
        return False

    def _read_seed(self, now: float, view: View, share: SeedShare, idle: bool) -> None:
        if not self._reads_seed or not view.missing | view.digests.doubt:
            return
        reading = view.transfers.reading
        room = self._pace.bound(self._sharers) - size(reading)
        if now < self._seed_pause:
            self._wake_by(self._seed_pause)
            return
        if room <= 0 or not self._settled(now):
            return
        if now < self._last_opened + 1.0 and any(link.expected(now) for link in self._links.values()):
            self._wake_by(now + _LOOK_AGAIN)
            return
        if view.digests.doubt and not view.digests.doubt & reading:
            # One at a time: each answer may unmask a liar, and with it end the other doubts that it caused.
            self._read(now, view, next(members(view.digests.doubt)))
            room -= 1
        while room > 0:
            others = now >= self._look_at
            choice = share.next(now, idle, others)
            if choice.looked:
                self._look_at = now + _LOOK_AGAIN
            if choice.look_for and len(self._instances) < 2 * self._table.wanted:
                found = self._table.dial_now(choice.look_for)
                if found is not None:
                    self._connect(found)
            if choice.piece is None:
                break
            self._read(now, view, choice.piece)
            room -= 1
        if room > 0 and view.need:
            self._fall_back(now, view, idle)
            if view.need & view.available.absent:
                self._wake_by(max(self._look_at, now + _LOOK_AGAIN / 2))

    def _fall_back(self, now: float, view: View, idle: bool) -> None:
        """Peers offer what is missing but do not bring it, or not in time: read from the seed after all."""
        want = view.want()
        if not want:
            return
        waited = now - self._peer_landed_at
        reason = ""
        if not view.transfers.active and waited >= _BUSY_PATIENCE * self._options.stall_seconds:
            reason = "peers are busy"
        elif now - self._started >= (self._deadline - self._started) / 2:
            done = size(view.held)
            left = view.plan.pieces - done
            pace = done / max(now - self._started, 1e-9)
            if pace * (self._deadline - now) < left:
                reason = "the deadline is near"
        if reason:
            piece = pick(want, self._rng.randrange(view.plan.pieces))
            self.tally.fallbacks[reason] = self.tally.fallbacks.get(reason, 0) + 1
            self._read(now, view, piece)
            self._wake_by(now + _LOOK_AGAIN)

    def _read(self, now: float, view: View, piece: int) -> None:
        transfer = view.transfers.begin(SEED, piece, now)
        # A piece that is held is read for comparison only: its place is in use.
        transfer.scratch = transfer.scratch or bool(view.held >> piece & 1)
        view.begin(piece)
        self._out.append(ReadSeed(piece, transfer.scratch))

    def _announce_claims(self, view: View) -> None:
        claims = view.transfers.reading | view.transfers.bringing
        if claims != self._claims:
            self._claims = claims
            self._out.append(Claim(claims))

    # The end

    def _conclude(self, now: float, view: View) -> bool:
        """Every piece is in place; whether that is the end. With a pinned content digest the whole must have it."""
        pinned = self._options.content_digest
        if pinned and not self._anchored:
            found = content_digest(view.plan.digest, [view.digests.get(p) or b"" for p in range(view.plan.pieces)])
            if found != pinned:
                suspects = view.digests.undecided(view.held) & ~self._from_seed
                if self._reads_seed and suspects:
                    for piece in members(suspects):
                        view.question(piece)
                    return False
                self._finish(
                    IntegrityError(
                        f"the content digest is {found.hex()}, not the pinned {pinned.hex()}",
                        hint="check SHARDPOOL_CONTENT_DIGEST and the seed; `shardpool inspect` shows what peers hold",
                    )
                )
                return True
        self._finish(None)
        return True

    def _check_hope(self, now: float) -> None:
        if self.finished:
            return
        view = self._view
        if self._reads_seed or (view is not None and view.transfers.active):
            self._useful_at = now
            return
        if any(link.info and not link.closing and (link.claims or link.reads_seed) for link in self._links.values()):
            # Whoever can read the seed is about to have something.
            self._useful_at = now
            return
        if view is None and self._outline_from is not None:
            self._useful_at = now
        until = self._useful_at + self._options.wait_for_peers_seconds
        if now < until:
            self._wake_by(until)
            return
        reasons = self._table.reasons()
        if reasons and all(name in self._mismatches for name in reasons) and not self._instances:
            labels = {self._mismatches[name].reason for name in reasons}
            self._finish(
                MismatchError(
                    self._unfinished("every endpoint belongs to another pool"),
                    reason=labels.pop() if len(labels) == 1 else "identity",
                    hint="compare model, revision and layout on both sides",
                )
            )
        else:
            self._finish(NoSourceError(self._unfinished("no source is left"), hint=self._hint()))

    def _unfinished(self, why: str) -> str:
        """One line: what is missing, and why each peer was not used."""
        view = self._view
        lack = f"{size(view.missing)} of {view.plan.pieces} pieces missing" if view else "the outline is not known"
        parts = [f"{why}: {lack}"]
        if view and view.digests.doubt:
            disputed = ", ".join(str(p) for p in list(members(view.digests.doubt))[:5])
            parts.append(f"peers announce different digests for piece {disputed} and no seed decides")
        if self._seed_problem:
            parts.append(f"seed: {self._seed_problem}")
        if self._table.problem:
            parts.append(f"peers could not be listed: {self._table.problem}")
        tried = dict(self.tally.rejected)
        tried.update(self._table.reasons())
        for link in self._links.values():
            if link.info and not link.closing:
                tried[link.name] = "busy" if link.busy_until > self._useful_at else "holds nothing that is missing"
                if view and link.usable & view.missing:
                    tried[link.name] = "too slow" if link.landed else "did not answer in time"
            elif link.info is None and not link.closing:
                tried[link.name] = "has not answered yet"
        if tried:
            parts.append("peers: " + ", ".join(f"{name} ({reason})" for name, reason in sorted(tried.items())))
        else:
            parts.append("no peer was ever listed")
        return "; ".join(parts)

    def _hint(self) -> str:
        return "`shardpool doctor` checks DNS, ports and identities; a seed lets a replica go on without peers"

    def _finish(self, error: ShardpoolError | None) -> None:
        self.finished = True
        self._wake = float("inf")
        self._out.append(Finish(error))


__all__ = ["STRIKES", "Scheduler", "Tally"]
