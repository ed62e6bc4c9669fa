"""A replica's own state as peers may learn it: what the source answers with and what the driver of a load writes."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from shardpool.model.holdings import Holdings
from shardpool.swarm.state import Load, Party, PeerInfo, Phase

if TYPE_CHECKING:
    from shardpool.discovery.base import Endpoint
    from shardpool.model.catalog import Catalog


class ReplicaState:
    """The thread-safe state of one rank's process.

    Every change raises `version` and wakes whoever is in `wait`. Pieces are added and withdrawn through this object (`hold`, `withdraw`),
    so that one wait covers phase, claims, outline and holdings.

    Args:
        party: how this process names itself; its `catalog_digest` is filled in here once the outline is known.
        transports: names of the transports that the source offers.
        reads_seed: whether this replica can read the seed.
    """

    def __init__(self, party: Party, *, transports: tuple[str, ...] = (), reads_seed: bool = False) -> None:
        self._changed = threading.Condition()
        self._party = party
        self._transports = transports
        self._reads_seed = reads_seed
        self._phase = Phase.FILLING
        self._claims: frozenset[int] = frozenset()
        self._holdings: Holdings | None = None
        self._catalog: Catalog | None = None
        self._outline = b""
        self._load: Callable[[], Load] = Load
        self._version = 0
        self._subscribers: list[Callable[[], None]] = []
        self._met: Callable[[Endpoint], None] | None = None

    # What may be learnt

    def party(self) -> Party:
        """How this process names itself now."""
        return self._party

    @property
    def phase(self) -> Phase:
        """Filling, ready or draining."""
        return self._phase

    @property
    def holdings(self) -> Holdings | None:
        """The verified pieces; None while the outline is not known. Read it; change it through `hold` and `withdraw`."""
        return self._holdings

    @property
    def outline(self) -> bytes:
        """The encoded outline; empty while it is not known."""
        return self._outline

    @property
    def catalog(self) -> Catalog | None:
        """The catalog; None while the outline is not known."""
        return self._catalog

    @property
    def claims(self) -> frozenset[int]:
        """Pieces that this replica is bringing into the pool: from the seed, or from their only source."""
        return self._claims

    @property
    def reads_seed(self) -> bool:
        """Whether this replica can read the seed."""
        return self._reads_seed

    @property
    def transports(self) -> tuple[str, ...]:
        """Names of the transports that the source offers."""
        return self._transports

    @property
    def version(self) -> int:
        """Raised by every change."""
        return self._version

    def load(self) -> Load:
        """How busy the source is now."""
        return self._load()

    def info(self) -> PeerInfo:
        """The answer to a handshake, consistent in itself."""
        with self._changed:
            catalog, holdings = self._catalog, self._holdings
            return PeerInfo(
                party=self._party,
                phase=self._phase,
                piece_count=catalog.pieces if catalog else 0,
                piece_size=catalog.piece_size if catalog else 0,
                shard_size=catalog.size if catalog else 0,
                outline_size=len(self._outline),
                transports=self._transports,
                generation=holdings.generation if holdings else 0,
                claims=self._claims,
                load=self._load(),
                reads_seed=self._reads_seed,
            )

    def wait(self, version: int, timeout: float) -> bool:
        """Wait until `version` is passed, at most `timeout` seconds; whether it was."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version > version, timeout)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Have `changed` called after each change; it must be quick and must not call back here."""
        self._subscribers.append(changed)

    def meet(self, endpoint: Endpoint) -> None:
        """A peer of this pool called that may be dialled here."""
        met = self._met
        if met is not None:
            met(endpoint)

    # What the replica changes

    def set_met(self, met: Callable[[Endpoint], None] | None) -> None:
        """Register who is told of peers that call; it must be quick. None for nobody."""
        self._met = met

    def set_load(self, load: Callable[[], Load]) -> None:
        """Register where the source's load is asked for; it must be quick and must not call back here."""
        self._load = load

    def set_transports(self, transports: tuple[str, ...]) -> None:
        """Set what the source offers, once it is known."""
        with self._changed:
            self._transports = transports
            self._touch()

    def set_phase(self, phase: Phase) -> None:
        """Enter a phase."""
        with self._changed:
            if phase is not self._phase:
                self._phase = phase
                self._touch()

    def set_claims(self, claims: frozenset[int]) -> None:
        """Announce the whole set of pieces that this replica is bringing into the pool."""
        with self._changed:
            if claims != self._claims:
                self._claims = claims
                self._touch()

    def set_outline(self, catalog: Catalog) -> Holdings:
        """Adopt the outline, and begin its holdings. Doing so twice is an error of the caller (ValueError)."""
        encoded, digest = catalog.encode(), catalog.digest
        with self._changed:
            if self._holdings is not None:
                raise ValueError("the outline is known already")
            self._catalog, self._outline = catalog, encoded
            self._holdings = Holdings(catalog.pieces, digest)
            self._party = dataclasses.replace(self._party, catalog_digest=digest)
            self._touch()
            return self._holdings

    def hold(self, piece: int, digest: bytes) -> None:
        """Announce that `piece` is verified against `digest` and may be served."""
        with self._changed:
            self._known().add(piece, digest)
            self._touch()

    def withdraw(self, piece: int) -> None:
        """Announce that `piece` is no longer held."""
        with self._changed:
            self._known().withdraw(piece)
            self._touch()

    def wake(self) -> None:
        """Let every waiter look again, as at a shutdown."""
        with self._changed:
            self._touch()

    def _known(self) -> Holdings:
        if self._holdings is None:
            raise ValueError("the outline is not known yet")
        return self._holdings

    def _touch(self) -> None:
        self._version += 1
        self._changed.notify_all()
        for changed in self._subscribers:
            changed()


__all__ = ["ReplicaState"]
