"""Plays the driver to a scheduler: tells it events, collects its actions, keeps the time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, TypeVar

from blake3 import blake3

from shardpool.discovery.base import Endpoint
from shardpool.errors import ShardpoolError
from shardpool.swarm.actions import Abandon, Action, Close, Connect, Finish, Keep, ReadSeed, Request
from shardpool.swarm.options import SwarmOptions
from shardpool.swarm.scheduler import Scheduler
from shardpool.swarm.state import Load, Party, PeerInfo, PeerUpdate, Phase

Kind = TypeVar("Kind")
OUTLINE = b"o" * 32
LENGTH = 100
ME = Party("0" * 32, "f" * 16, "{}", 0, 1, "whole", "10.0.0.0:1", OUTLINE)


def digest_of(piece: int, *, wrong: str = "") -> bytes:
    return blake3(f"{piece}{wrong}".encode()).digest()


def update(pieces: Iterable[int], *, wrong: str = "", phase: Phase = Phase.FILLING) -> PeerUpdate:
    return PeerUpdate(1, phase, added=tuple((piece, digest_of(piece, wrong=wrong)) for piece in pieces))


def endpoint(number: int) -> Endpoint:
    return Endpoint(f"10.0.0.{number}", 1)


class Desk:
    """A scheduler with `pieces` pieces of 100 bytes; `pieces` 0 leaves the outline unknown."""

    def __init__(self, pieces: int = 8, *, reads_seed: bool = False, deadline: float = 1000.0, **options: Any) -> None:
        options.setdefault("settle_seconds", 0.0)
        options.setdefault("first_look_seconds", options["settle_seconds"])
        self.now = 0.0
        self.pieces = pieces
        self.scheduler = Scheduler(
            ME, SwarmOptions(**options), reads_seed=reads_seed, now=0.0, deadline=deadline, rng=random.Random(1)
        )
        self.log: list[Action] = []
        self.links: dict[int, int] = {}  # peer -> link
        self.act()
        if pieces:
            self.plan()

    def plan(self, pieces: int | None = None, held: dict[int, bytes] | None = None) -> None:
        self.pieces = self.pieces if pieces is None else pieces
        self.scheduler.planned(
            self.now, pieces=self.pieces, length=lambda piece: LENGTH, digest=OUTLINE, held=held or {}
        )
        self.act()

    def act(self) -> list[Action]:
        found = self.scheduler.actions(self.now)
        self.log += found
        return found

    def wait(self, seconds: float) -> list[Action]:
        """Let time pass, calling whenever the scheduler wants to be called."""
        found: list[Action] = []
        until = self.now + seconds
        while self.scheduler.wake_at <= until:
            self.now = max(self.now, self.scheduler.wake_at)
            found += self.act()
        self.now = until
        return found + self.act()

    def list(self, *peers: int, problem: str = "", final: bool = False) -> list[Action]:
        self.scheduler.listed(self.now, [endpoint(peer) for peer in peers], problem, final)
        return self.act()

    def link_of(self, peer: int) -> int:
        """The link that was asked for last to a peer's endpoint."""
        return [a.link for a in self.log if isinstance(a, Connect) and a.endpoint == endpoint(peer)][-1]

    def open(self, peer: int, *, phase: Phase = Phase.FILLING, **more: Any) -> int:
        """A peer answers the handshake; returns its link."""
        if not any(isinstance(a, Connect) and a.endpoint == endpoint(peer) for a in self.log):
            self.list(*{peer, *self.links})
        link = self.links[peer] = self.link_of(peer)
        self.scheduler.opened(self.now, link, self.info(peer, phase=phase, **more))
        self.act()
        return link

    def info(self, peer: int, *, phase: Phase = Phase.FILLING, **more: Any) -> PeerInfo:
        instance = more.pop("instance", f"{peer:032x}")
        outline = more.pop("outline", OUTLINE)
        party = Party(instance, ME.mx_source_id, "{}", 0, 1, "whole", endpoint(peer).target, outline)
        facts: dict[str, Any] = {"piece_count": 8, "piece_size": LENGTH, "shard_size": 800, "outline_size": 10}
        return PeerInfo(party, phase, transports=("x",), **{**facts, **more})

    def announce(self, peer: int, *pieces: int, wrong: str = "", **more: Any) -> list[Action]:
        facts: dict[str, Any] = {"phase": Phase.FILLING, "load": Load(), **more}
        facts.setdefault("added", tuple((piece, digest_of(piece, wrong=wrong)) for piece in pieces))
        self.scheduler.updated(self.now, self.links[peer], PeerUpdate(generation=1, **facts))
        return self.act()

    def source(self, peer: int, *pieces: int, **more: Any) -> list[Action]:
        """A complete peer: opens and announces everything (or the given pieces)."""
        self.open(peer, phase=Phase.READY, generation=self.pieces)
        return self.announce(peer, *(pieces or range(self.pieces)), phase=Phase.READY, **more)

    def land(self, peer: int, piece: int, *, wrong: str = "") -> list[Action]:
        self.scheduler.landed(self.now, self.links[peer], piece, digest_of(piece, wrong=wrong))
        return self.act()

    def fail(self, peer: int, piece: int, error: ShardpoolError) -> list[Action]:
        self.scheduler.failed(self.now, self.links[peer], piece, error)
        return self.act()

    def close(self, peer: int, error: ShardpoolError | None = None) -> list[Action]:
        self.scheduler.closed(self.now, self.links.get(peer, self.link_of(peer)), error)
        return self.act()

    def read(self, piece: int, *, wrong: str = "") -> list[Action]:
        self.scheduler.seed_landed(self.now, piece, digest_of(piece, wrong=wrong))
        return self.act()

    # What it asked for

    def requests(self, actions: list[Action] | None = None, peer: int | None = None) -> list[Request]:
        """Requests among actions (all so far by default), of one peer."""
        found = [a for a in (self.log if actions is None else actions) if isinstance(a, Request)]
        return [r for r in found if peer is None or r.link == self.links[peer]]

    def asked(self, peer: int) -> list[int]:
        """Pieces asked of a peer so far."""
        return [request.piece for request in self.requests(peer=peer)]

    def abandoned(self, peer: int) -> list[int]:
        return [a.piece for a in self.log if isinstance(a, Abandon) and a.link == self.links[peer]]

    def reads(self, actions: list[Action] | None = None) -> list[int]:
        return [a.piece for a in (self.log if actions is None else actions) if isinstance(a, ReadSeed)]

    def kept(self) -> list[int]:
        return [a.piece for a in self.log if isinstance(a, Keep)]

    def closed(self, peer: int) -> bool:
        return any(isinstance(a, Close) and a.link == self.links[peer] for a in self.log)

    def dialled(self, actions: list[Action]) -> list[int]:
        return [int(a.endpoint.host.rpartition(".")[2]) for a in actions if isinstance(a, Connect)]

    @property
    def end(self) -> Finish | None:
        return next((a for a in self.log if isinstance(a, Finish)), None)

    @property
    def error(self) -> ShardpoolError:
        assert self.end is not None, "the load has not ended"
        assert self.end.error is not None, "the load succeeded"
        return self.end.error

    def finish(self, peer: int) -> None:
        """Land everything that a peer is asked for until the load ends."""
        landed: set[int] = set()
        while self.end is None:
            due = [piece for piece in self.asked(peer) if piece not in landed]
            if due:
                landed.add(due[0])
                self.land(peer, due[0])
            else:
                self.wait(0.2)
                assert self.now < 60, "nothing more is asked for"


def of(kind: type[Kind], actions: list[Action]) -> list[Kind]:
    return [action for action in actions if isinstance(action, kind)]
