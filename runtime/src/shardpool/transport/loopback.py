"""A network inside one process, in virtual time, with faults: the transport that simulation and unit tests run on.

Nothing sleeps and nothing is concurrent: a `VirtualClock` runs callbacks in the order of their times, so that an hour takes as long as
its events do, and the same seed number gives the same run. Replicas are `Node`s with an uplink and a downlink whose bandwidth their
transfers share fairly; `LoopbackTransport` gives the scheduler's side the interface of `transport.base`.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from blake3 import blake3

from shardpool.discovery.base import Endpoint
from shardpool.errors import (
    AbandonedError,
    MismatchError,
    PeerBusyError,
    PeerUnreachableError,
    PieceLentError,
    ShardpoolError,
    TransportError,
)
from shardpool.swarm.first_copies import FirstCopies
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Load, Party, PeerInfo, PeerUpdate, Phase
from shardpool.transport.base import Listener

_UNLIMITED = float("inf")


class VirtualClock:
    """Time that moves from event to event."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.events = 0

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call at a time; what is due at the same time is called in the order of these requests."""
        heapq.heappush(self._due, (max(when, self.now), next(self._order), call))

    def after(self, delay: float, call: Callable[[], None]) -> None:
        """Call `delay` seconds from now."""
        self.at(self.now + delay, call)

    def run(self, until: float, over: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until `until`, or until `over` says so, or until nothing is due."""
        while self._due and not over():
            when, _, call = self._due[0]
            if when > until:
                break
            heapq.heappop(self._due)
            self.now = when
            self.events += 1
            call()


class Contents(Protocol):
    """What a node serves from."""

    def contents(self, piece: int) -> Sequence[memoryview]:
        """The bytes of a held piece."""


@dataclass(slots=True)
class Faults:
    """What goes wrong at a node, as shares (0 to 1) unless said otherwise.

    `refuse`: of connections; `lose`: of requests that are never answered; `corrupt`: of pieces with a flipped bit; `reset`: of requests
    that break the connection; `late`: seconds up to which an abandoned transfer goes on to write.
    """

    refuse: float = 0.0
    lose: float = 0.0
    corrupt: float = 0.0
    reset: float = 0.0
    late: float = 0.0


@dataclass(eq=False, slots=True)
class Flow:
    """Bytes on their way from one node to another."""

    source: Node
    target: Node
    left: float
    done: Callable[[], None]
    moved: Callable[[int], None] | None = None
    cap: float = _UNLIMITED
    rate: float = 0.0
    since: float = 0.0
    told: float = 0.0
    untold: float = 0.0
    version: int = 0
    total: float = 0.0


@dataclass(eq=False, slots=True)
class Node:
    """A process on the network. Rates in bytes per second.

    `alive`: it runs; `frozen`: it runs no code but its kernel still acknowledges; `cut`: nothing reaches it or leaves it, without notice.
    """

    endpoint: Endpoint
    up: float = _UNLIMITED
    down: float = _UNLIMITED
    max_readers: int = 8
    state: ReplicaState | None = None
    contents: Contents | None = None
    alive: bool = True
    frozen: bool = False
    cut: bool = False
    faults: Faults = field(default_factory=Faults)
    up_level: float = field(init=False)
    down_level: float = field(init=False)
    sending: dict[Flow, None] = field(default_factory=dict)
    receiving: dict[Flow, None] = field(default_factory=dict)
    readers: set[LoopbackLink] = field(default_factory=set)
    inbound: dict[LoopbackLink, None] = field(default_factory=dict)
    outbound: dict[LoopbackLink, None] = field(default_factory=dict)
    recount: bool = False
    first_copies: FirstCopies = field(default_factory=FirstCopies)
    sent: int = 0
    messages: int = 0  # control messages sent and received: handshakes, announcements, leases
    requests: int = 0  # pieces asked for

    def __post_init__(self) -> None:
        self.up_level, self.down_level = self.up, self.down

    @property
    def reachable(self) -> bool:
        """Whether it answers."""
        return self.alive and not self.frozen and not self.cut

    def load(self) -> Load:
        """How busy its source is."""
        return Load(readers=len(self.readers), max_readers=self.max_readers)


class Network:
    """Nodes, the flows between them, and time.

    Args:
        rng: the only source of chance.
        latency: seconds one way.
        verify: whether transfers carry bytes; without, only their time and digests are simulated.
        linger: seconds for which an idle link keeps its place among a source's readers.
        retry_after: seconds that a full source asks for.
        connect_seconds: bound on opening a link.
        keepalive: seconds after which a link notices that the other end is gone without notice.
        tick: seconds between reports of progress.
        look_again: seconds until a change in the number of readers is announced.
        spacing: seconds between two announcements on one link.
        settle: seconds until a change at one end of a flow has its effect on the other end's other flows.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        latency: float = 0.0005,
        verify: bool = True,
        linger: float = 2.0,
        retry_after: float = 0.25,
        connect_seconds: float = 2.0,
        keepalive: float = 30.0,
        tick: float = 1.0,
        settle: float = 0.01,
        look_again: float = 0.25,
        spacing: float = 0.01,
    ) -> None:
        self.clock = VirtualClock()
        self.rng = rng
        self.latency = latency
        self.verify = verify
        self.linger = linger
        self.retry_after = retry_after
        self.connect_seconds = connect_seconds
        self.keepalive = keepalive
        self.tick = tick
        self.settle = settle
        self.look_again = look_again
        self.spacing = spacing
        self._unsettled: dict[Node, None] = {}
        self._settling = False
        self.nodes: dict[Endpoint, Node] = {}

    def add(self, node: Node) -> Node:
        """A node appears at its endpoint, in the place of any that was there."""
        self.nodes[node.endpoint] = node
        if node.state is not None:
            node.state.set_load(node.load)
            node.state.subscribe(lambda: self._announce(node))
        return node

    # Faults

    def kill(self, node: Node) -> None:
        """The process dies: its connections are reset."""
        node.alive = False
        self._halt(node)
        for link in [*node.inbound]:
            self.clock.after(self.latency, lambda link=link: link.break_off("connection reset"))  # type: ignore[misc]
        for link in [*node.outbound]:
            link.vanish()

    def freeze(self, node: Node) -> None:
        """The process is stopped (SIGSTOP)."""
        node.frozen = True
        self._halt(node)

    def isolate(self, node: Node) -> None:
        """The network to the node becomes a black hole."""
        node.cut = True
        self._halt(node)
        for link in [*node.inbound, *node.outbound]:
            self.clock.after(self.keepalive, lambda link=link: link.break_off("keepalive timed out"))  # type: ignore[misc]

    def thaw(self, node: Node) -> None:
        """A frozen or isolated node is back."""
        node.frozen = node.cut = False
        for link in [*node.inbound]:
            link.resume()
        self._share_all(node)
        self._announce(node)

    def set_speed(self, node: Node, up: float, down: float) -> None:
        """Change what a node's link carries."""
        node.up, node.down = up, down
        self._share_all(node)

    def _halt(self, node: Node) -> None:
        self._share_all(node)

    # Announcements

    def _announce(self, node: Node) -> None:
        if node.reachable:
            for link in node.inbound:
                link.announce_soon()

    def announce_readers(self, node: Node) -> None:
        """How many read from a node has changed: told within `look_again` seconds."""
        if not node.recount:
            node.recount = True

            def tell() -> None:
                node.recount = False
                self._announce(node)

            self.clock.after(self.look_again, tell)

    # Flows

    def start(self, flow: Flow) -> None:
        """Bytes begin to move."""
        flow.since = flow.told = self.clock.now
        flow.total = flow.left
        flow.source.sending[flow] = None
        flow.target.receiving[flow] = None
        self._share(flow.source, flow.target)

    def continue_with(self, flow: Flow, length: float) -> None:
        """A flow that is done goes on with more bytes: its share of the links stays what it is."""
        flow.left = flow.total = length
        flow.untold = 0.0
        flow.since = flow.told = self.clock.now
        self._plan(flow)

    def stop(self, flow: Flow) -> None:
        """A flow ends."""
        if flow in flow.source.sending:
            self._settle(flow)
            flow.version += 1
            del flow.source.sending[flow]
            del flow.target.receiving[flow]
            self._share(flow.source, flow.target)

    def _share_all(self, node: Node) -> None:
        self._share(node, node)

    def _share(self, source: Node, target: Node) -> None:
        """Divide what `source` sends and `target` receives anew.

        Each end offers its flows a level, as high as it can given what their other ends offer (max-min fairness, found step by step); a
        flow moves at the lesser of its two. What a new level means for the other ends follows after `settle` seconds, as congestion
        control needs a while too.
        """
        up = _level(source.up if source.reachable else 0.0, [min(f.cap, f.target.down_level) for f in source.sending])
        down = _level(0.0 if target.cut else target.down, [min(f.cap, f.source.up_level) for f in target.receiving])
        changed_up, changed_down = _differs(up, source.up_level), _differs(down, target.down_level)
        if changed_up:
            source.up_level = up
        if changed_down:
            target.down_level = down
        for flow in source.sending:
            self._set_rate(flow)
            if changed_up:
                self._unsettled[flow.target] = None
        for flow in target.receiving:
            if flow.source is not source:
                self._set_rate(flow)
            if changed_down:
                self._unsettled[flow.source] = None
        if self._unsettled and not self._settling:
            self._settling = True
            self.clock.after(self.settle, self._settle_shares)

    def _settle_shares(self) -> None:
        self._settling = False
        nodes, self._unsettled = self._unsettled, {}
        for node in nodes:
            self._share(node, node)

    def _set_rate(self, flow: Flow) -> None:
        """Let a flow move at what both ends grant it."""
        before, rate = flow.rate, min(flow.source.up_level, flow.target.down_level, flow.cap)
        if _differs(rate, before):
            self._settle(flow)
            flow.rate = rate
            self._plan(flow)

    def _settle(self, flow: Flow) -> None:
        """Account for what has moved at the rate so far, and report it now and then."""
        now = self.clock.now
        moved = min(flow.left, flow.rate * (now - flow.since))
        flow.left -= moved
        flow.since = now
        flow.untold += moved
        if flow.moved is not None and flow.untold >= 1 and now - flow.told >= self.tick / 2:
            count, flow.told = int(flow.untold), now
            flow.untold -= count
            flow.moved(count)

    def _plan(self, flow: Flow) -> None:
        flow.version += 1
        version = flow.version
        if flow.rate <= 0:
            return
        remaining = flow.left / flow.rate
        if flow.moved is not None and remaining > self.tick:
            self.clock.after(self.tick, lambda: self._tick(flow, version))
        else:
            self.clock.after(remaining, lambda: self._arrive(flow, version))

    def _tick(self, flow: Flow, version: int) -> None:
        if flow.version == version:
            self._settle(flow)
            self._plan(flow)

    def _arrive(self, flow: Flow, version: int) -> None:
        if flow.version == version:
            flow.left = 0.0
            flow.since = self.clock.now
            flow.source.sent += int(flow.total)
            flow.done()


def _differs(one: float, other: float) -> bool:
    return one != other and abs(one - other) > 0.01 * min(one, other)


def _level(capacity: float, limits: list[float]) -> float:
    """The level to offer: flows that their other ends hold below it leave the rest to the others; no flow, all for the next one."""
    limits.sort()
    left, count = capacity, len(limits)
    for limit in limits:
        if limit >= left / count:
            return left / count
        left -= limit
        count -= 1
    # Every flow is held elsewhere: any one of them could take what is left.
    return left + (limits[-1] if limits else 0.0)


@dataclass(slots=True)
class _Wanted:
    piece: int
    destination: Sequence[memoryview]
    length: int
    first: bool
    flow: Flow | None = None
    abandoned: bool = False
    lost: bool = False


class LoopbackLink:
    """A link of `LoopbackTransport`: requests are served one after the other, as on one stream."""

    def __init__(self, transport: LoopbackTransport, endpoint: Endpoint, caller: Party, listener: Listener) -> None:
        self.endpoint = endpoint
        self._net = transport.net
        self._near = transport.node
        self._transport = transport
        self._caller = caller
        self._listener = listener
        self._far: Node | None = None
        self._info: PeerInfo | None = None
        self._wanted: dict[int, _Wanted] = {}
        self._queue: deque[_Wanted] = deque()
        self._serving: _Wanted | None = None
        self._flow: Flow | None = None
        self._leased = False
        self._asking = False
        self._idle_since = 0.0
        self._over = False
        self._gone = False  # this side's process is dead: nobody listens
        self._due = False  # an announcement is on its way to be made
        self._generation = 0
        self._announced_at = -1.0
        self._told: tuple[Phase, frozenset[int], bool, int] | None = None
        net = self._net
        self._near.messages += 1
        net.clock.after(2 * net.latency, self._handshake)
        net.clock.after(net.connect_seconds, self._give_up_connecting)

    # Conversation

    def _handshake(self) -> None:
        net = self._net
        far = net.nodes.get(self.endpoint)
        if self._over or self._gone:
            return
        if far is None or not far.alive or (far.state is None and not far.frozen):
            self._end(PeerUnreachableError(f"{self.endpoint.target}: connection refused"))
            return
        if not far.reachable or not self._near.reachable or far.state is None:
            return  # the connect deadline ends this
        if far.faults.refuse and net.rng.random() < far.faults.refuse:
            self._end(PeerUnreachableError(f"{self.endpoint.target}: connection reset"))
            return
        far.messages += 1
        info = far.state.info()
        refusal = _refusal(self._caller, info.party)
        if refusal is not None:
            self._end(refusal)
            return
        self._far, self._info = far, info
        far.inbound[self] = None
        far.state.meet(self._near.endpoint)
        self._listener.opened(self, info)
        if not self._over:
            self.announce_soon()

    def _give_up_connecting(self) -> None:
        if self._far is None and not self._over and not self._gone:
            self._end(PeerUnreachableError(f"{self.endpoint.target}: no answer in {self._net.connect_seconds:g} s"))

    def announce_soon(self) -> None:
        """The far side has something to tell."""
        if not self._due:
            self._due = True
            clock, net = self._net.clock, self._net
            clock.at(max(clock.now, self._announced_at + net.spacing) + net.latency, self._announce)

    def _announce(self) -> None:
        self._due = False
        far = self._far
        if (
            self._over
            or self._gone
            or far is None
            or far.state is None
            or not far.reachable
            or not self._near.reachable
        ):
            return
        state = far.state
        if self._info is not None and not self._info.outline_size and state.outline:
            self._info = state.info()
            self._listener.opened(self, self._info)
        holdings = state.holdings
        records: Sequence[tuple[int, bytes]] = ()
        if holdings is not None and holdings.generation > self._generation:
            self._generation, records = holdings.since(self._generation)
        said = (state.phase, state.claims, state.reads_seed, len(far.readers))
        if not records and said == self._told:
            return
        last = dict(records)
        claims = state.claims if self._told is None or self._told[1] != state.claims else None
        self._told = said
        self._announced_at = self._net.clock.now
        far.messages += 1
        self._near.messages += 1
        update = PeerUpdate(
            generation=self._generation,
            phase=state.phase,
            added=tuple((piece, digest) for piece, digest in last.items() if digest),
            withdrawn=tuple(piece for piece, digest in last.items() if not digest),
            claims=claims,
            load=far.load(),
            reads_seed=state.reads_seed,
        )
        self._listener.updated(self, update)
        if holdings is not None and holdings.generation > self._generation:
            self.announce_soon()

    # What the driver calls

    def request_outline(self) -> None:
        """Ask for the outline."""
        self._near.messages += 1
        self._net.clock.after(2 * self._net.latency, self._answer_outline)

    def _answer_outline(self) -> None:
        far = self._far
        if (
            self._over
            or self._gone
            or far is None
            or far.state is None
            or not far.reachable
            or not self._near.reachable
        ):
            return
        far.messages += 1
        self._listener.outline(self, far.state.outline)

    def request(self, piece: int, destination: Sequence[memoryview], *, first: bool = False) -> None:
        """Ask for a piece."""
        if piece in self._wanted:
            raise ValueError(f"piece {piece} is asked for already")
        assert self._info is not None
        if self._over:
            # Its end may not have been heard of yet; whoever asks is told all the same.
            error = AbandonedError("the link is closed")
            self._net.clock.after(0, lambda: self._listener.failed(self, piece, error))
            return
        length = min(self._info.piece_size, self._info.shard_size - piece * self._info.piece_size)
        wanted = self._wanted[piece] = _Wanted(piece, destination, length, first)
        self._near.requests += 1
        self._transport.guard.take(self, piece, destination)
        self._queue.append(wanted)
        self._net.clock.after(self._net.latency, self._serve)

    def abandon(self, piece: int) -> None:
        """Give a piece up. What is on its way may still be written for a while."""
        wanted = self._wanted.get(piece)
        if wanted is None or wanted.abandoned:
            return
        wanted.abandoned = True
        faults = self._far.faults if self._far else Faults()
        delay = self._net.latency + faults.late * self._net.rng.random()
        self._net.clock.after(delay, lambda: self._let_go(wanted))

    def _let_go(self, wanted: _Wanted) -> None:
        if wanted.piece in self._wanted and self._wanted[wanted.piece] is wanted:
            if self._far is not None and self._far.faults.late and self._net.verify:
                # The last write of an abandoned transfer: nobody may be using this memory.
                _write(wanted.destination, bytes(wanted.length))
            if wanted is self._serving:
                self._stop_flow()
            elif wanted in self._queue:
                self._queue.remove(wanted)
            self._fail(wanted, AbandonedError(f"piece {wanted.piece} was given up by this side"))
            self._serve()

    def close(self) -> None:
        """End the conversation."""
        if not self._over:
            self._over = True
            faults = self._far.faults if self._far else Faults()
            delay = self._net.latency + faults.late * self._net.rng.random()
            self._net.clock.after(delay, lambda: self._finish(None))

    # The far side's answers

    def _serve(self) -> None:
        """Send the next piece that is waited for; without one, begin to give the place back."""
        self._begin_next()
        if self._serving is None:
            self._stop_flow()
            self._idle_since = self._net.clock.now
            self._net.clock.after(self._net.linger, self._rest)

    def _begin_next(self) -> None:
        far, net = self._far, self._net
        if self._over or self._gone or far is None or self._serving is not None or not self._queue:
            return
        if not far.reachable:
            return
        if not self._leased:
            self._ask_leave(far)
            return
        wanted = self._queue.popleft()
        if far.faults.reset and net.rng.random() < far.faults.reset:
            self._queue.appendleft(wanted)
            self.break_off("connection reset")
            return
        if far.faults.lose and net.rng.random() < far.faults.lose:
            wanted.lost = True
            self._begin_next()
            return
        state = far.state
        if state is None or state.holdings is None or wanted.piece not in state.holdings:
            net.clock.after(
                net.latency, lambda: self._fail(wanted, TransportError(f"piece {wanted.piece} is not held"))
            )
            self._begin_next()
            return
        if wanted.first and state.phase is Phase.READY and not far.first_copies.lend(wanted.piece, self):
            refusal = PieceLentError(f"piece {wanted.piece} was sent to another receiver", lent=far.first_copies.lent)
            net.clock.after(net.latency, lambda: self._fail(wanted, refusal))
            self._begin_next()
            return
        self._serving = wanted
        if self._flow is not None:
            net.continue_with(self._flow, wanted.length)
        else:
            self._flow = Flow(far, self._near, wanted.length, self._arrived, self._moved)
            net.start(self._flow)

    def _ask_leave(self, far: Node) -> None:
        """Admission: a place among the readers, or a word when to come back."""
        net = self._net
        if self._asking:
            return
        self._asking = True
        far.messages += 1
        self._near.messages += 1

        def answer() -> None:
            self._asking = False
            if self._over or self._gone or not far.reachable:
                return
            if len(far.readers) < far.max_readers:
                far.readers.add(self)
                self._leased = True
                net.announce_readers(far)
                self._serve()
                return
            waiting, self._queue = list(self._queue), deque()
            for wanted in waiting:
                self._fail(wanted, PeerBusyError(f"{self.endpoint.target} is busy", retry_after=net.retry_after))

        net.clock.after(net.latency, answer)

    def _moved(self, count: int) -> None:
        if self._serving is not None and not self._over and not self._gone:
            self._listener.progress(self, self._serving.piece, count)

    def _arrived(self) -> None:
        wanted, self._serving = self._serving, None
        assert wanted is not None
        self._serve()
        self._net.clock.after(self._net.latency, lambda: self._land(wanted))

    def _stop_flow(self) -> None:
        if self._serving is not None and self._far is not None:
            self._far.first_copies.broke_off(self._serving.piece, self)
        flow, self._flow, self._serving = self._flow, None, None
        if flow is not None:
            self._net.stop(flow)

    def _rest(self) -> None:
        """An idle link gives its place back."""
        idle = self._serving is None and not self._queue
        if self._leased and idle and self._net.clock.now >= self._idle_since + self._net.linger - 1e-9:
            self._release()

    def _release(self) -> None:
        if self._leased and self._far is not None:
            self._far.messages += 1
            self._near.messages += 1
            self._far.readers.discard(self)
            self._net.announce_readers(self._far)
        self._leased = False

    def _land(self, wanted: _Wanted) -> None:
        far, net = self._far, self._net
        if self._gone or self._wanted.get(wanted.piece) is not wanted or far is None:
            return
        if wanted.abandoned or (self._over and far.faults.late):
            return  # `_let_go` or `_finish` settles it
        holdings = far.state.holdings if far.state else None
        digest = holdings.digest(wanted.piece) if holdings is not None else None
        corrupt = bool(far.faults.corrupt) and net.rng.random() < far.faults.corrupt
        if net.verify:
            assert far.contents is not None
            content = bytearray(b"".join(far.contents.contents(wanted.piece)))
            if corrupt and content:
                content[net.rng.randrange(len(content))] ^= 1 << net.rng.randrange(8)
            _write(wanted.destination, content)
            digest = blake3(content).digest() if net.rng.random() < 0.5 else None
        elif corrupt or digest is None:
            digest = bytes(32)
        del self._wanted[wanted.piece]
        self._transport.guard.release(self, wanted.piece)
        self._listener.progress(self, wanted.piece, wanted.length)
        self._listener.landed(self, wanted.piece, digest)

    def _fail(self, wanted: _Wanted, error: TransportError) -> None:
        if self._wanted.get(wanted.piece) is wanted:
            del self._wanted[wanted.piece]
            self._transport.guard.release(self, wanted.piece)
            if not self._gone:
                if wanted.abandoned and not isinstance(error, AbandonedError):
                    error = AbandonedError(f"piece {wanted.piece} was given up by this side")
                self._listener.failed(self, wanted.piece, error)

    # Ends

    def break_off(self, why: str) -> None:
        """The connection breaks."""
        if not self._over and not self._gone:
            self._end(PeerUnreachableError(f"{self.endpoint.target}: {why}"))

    def resume(self) -> None:
        """The far side is back."""
        self._serve()
        self.announce_soon()

    def vanish(self) -> None:
        """This side's process died: the source notices by its lease, or by the reset."""
        self._gone = True
        self._stop_flow()
        self._net.clock.after(self._net.latency, self._forget)

    def _end(self, error: ShardpoolError) -> None:
        self._over = True
        self._finish(error)

    def _finish(self, error: ShardpoolError | None) -> None:
        if self._gone:
            return
        self._stop_flow()
        for wanted in list(self._wanted.values()):
            if error is None and self._far is not None and self._far.faults.late and self._net.verify:
                _write(wanted.destination, bytes(wanted.length))
            why = error if isinstance(error, TransportError) else AbandonedError("the link was closed")
            self._fail(wanted, why)
        self._forget()
        self._listener.closed(self, error)
        self._gone = True

    def _forget(self) -> None:
        self._release()
        if self._far is not None:
            self._far.first_copies.forget(self)
            self._far.inbound.pop(self, None)
        self._near.outbound.pop(self, None)


class Guard:
    """Told who owns which memory; tests override it to check that nothing is owned twice."""

    def take(self, link: LoopbackLink, piece: int, destination: Sequence[memoryview]) -> None:
        """A transfer owns its destination from now on."""

    def release(self, link: LoopbackLink, piece: int) -> None:
        """The transfer is settled."""


class LoopbackTransport:
    """Opens links from one node to others of its network."""

    name = "loopback"

    def __init__(self, net: Network, node: Node, guard: Guard | None = None) -> None:
        self.net = net
        self.node = node
        self.guard = guard or Guard()

    def connect(self, endpoint: Endpoint, caller: Party, listener: Listener) -> LoopbackLink:
        """Start a conversation."""
        link = LoopbackLink(self, endpoint, caller, listener)
        self.node.outbound[link] = None
        return link

    def close(self) -> None:
        """Close every link."""
        for link in [*self.node.outbound]:
            link.close()


def _write(destination: Sequence[memoryview], content: bytes | bytearray) -> None:
    used = 0
    for view in destination:
        view[:] = content[used : used + view.nbytes]
        used += view.nbytes


def _refusal(ours: Party, theirs: Party) -> MismatchError | None:
    if ours.instance == theirs.instance:
        return MismatchError("the peer is this process itself", reason="self")
    for reason in ("protocol", "mx_source_id", "rank", "world", "layout", "catalog_digest"):
        mine, other = getattr(ours, reason), getattr(theirs, reason)
        if mine != other and (reason != "catalog_digest" or (mine and other)):
            label = {"mx_source_id": "identity", "catalog_digest": "catalog"}.get(reason, reason)
            return MismatchError(f"{label}: ours {mine!r}, theirs {other!r}", reason=label)
    return None


__all__ = [
    "Faults",
    "Flow",
    "Guard",
    "LoopbackLink",
    "LoopbackTransport",
    "Network",
    "Node",
    "VirtualClock",
]
