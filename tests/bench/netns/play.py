"""One contender on one stage, once: from the signal to the last copy."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netns.contenders import Contender
from netns.machine import BenchError, CpuTimes
from netns.network import Host, Network
from netns.stage import LOOK_SECONDS, Stage

SETTLE_SECONDS = 0.5  # between the last receiver's arrival at its gate and the signal
FAULTS: Mapping[str, Callable[[Network, Host], None]] = {
    "killed": Network.kill,
    "frozen": Network.freeze,
    "black-holed": Network.black_hole,
    "ten times slower": Network.slow_down,
}


@dataclass(frozen=True)
class Outcome:
    """What one play showed.

    Times are in seconds from each receiver's own signal; `*_copies` are bytes over those of one copy, from the ports' counters.
    """

    contender: str
    start: str
    receivers: int
    sources: int
    fault: str
    seconds: Sequence[float]
    first_source_copies: float  # sent by the first source: payload, headers, control
    most_sent_copies: float  # by one receiver
    sent_copies: float  # by everybody
    most_received_copies: float  # by one receiver
    busy_share: float  # of the machine's cores
    cpu_seconds: float  # of the contender's processes
    waiting_share: float  # of the time in which some task of the machine waited for a core
    beside: int = 1  # the most plays that were made at once meanwhile, this one among them
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slowest(self) -> float:
        """The last receiver's seconds: with a simultaneous start, the time until all have it."""
        return max(self.seconds)

    @property
    def median(self) -> float:
        """The middle receiver's seconds."""
        return statistics.median(self.seconds)

    def as_json(self) -> dict[str, Any]:
        """For the results' file."""
        return dataclasses.asdict(self)


def play(
    stage: Stage,
    contender: Contender,
    start: str,
    offsets: Sequence[float],
    limit: float,
    fault: str = "",
) -> Outcome:
    """Let `stage.receivers` go at `offsets` seconds after the signal, and wait for their copies, at most `limit` seconds.

    With `fault`, the first source suffers it when the first receiver has had half a copy. Raises BenchError when a copy is late or wrong.
    """
    contender.prepare()
    stage.wait_gates()
    time.sleep(SETTLE_SECONDS)
    network, size = stage.network, stage.payload.size
    bytes_before, cpu_before = network.counters(), stage.cpu_seconds()
    machine_before, began = CpuTimes.now(), time.monotonic()
    to_go = list(zip(offsets, stage.receivers, strict=True))
    gone: dict[int, float] = {}
    done: dict[int, float] = {}
    struck = not fault
    while len(done) < len(stage.receivers):
        now = time.monotonic()
        while to_go and now - began >= to_go[0][0]:
            host = to_go.pop(0)[1]
            gone[host.number] = time.monotonic()
            stage.gate(host).open()
        for host in stage.receivers:
            if host.number not in done and contender.complete(host):
                done[host.number] = time.monotonic()
        first = stage.receivers[0].number
        if not struck and network.counters()[first][1] - bytes_before[first][1] >= size / 2:
            stage.fail(stage.sources[0], FAULTS[fault])
            struck = True
        if now - began > limit:
            late = [host.number for host in stage.receivers if host.number not in done]
            tails = "\n".join(p.tail(800) for p in stage.processes if p.host.number in late[:2])
            raise BenchError(f"{contender.name}: no copy on hosts {late} after {limit:.0f} s\n{tails}")
        stage.raise_failures()
        time.sleep(LOOK_SECONDS)
    if not struck:
        raise BenchError(f"{contender.name}: the copy was complete before the first source could be {fault}")
    machine_after, bytes_after = CpuTimes.now(), network.counters()
    took = max(time.monotonic() - began, 1e-9)
    cpu = stage.cpu_seconds() - cpu_before
    sent = {number: after[0] - bytes_before[number][0] for number, after in bytes_after.items()}
    received = {number: after[1] - bytes_before[number][1] for number, after in bytes_after.items()}
    details = contender.details()
    for host in stage.receivers:
        stage.payload.check(stage.copy(host))
    return Outcome(
        contender=contender.name,
        start=start,
        receivers=len(stage.receivers),
        sources=len(stage.sources),
        fault=fault,
        seconds=[round(done[host.number] - gone[host.number], 3) for host in stage.receivers],
        first_source_copies=sent[stage.sources[0].number] / size,
        most_sent_copies=max(sent[host.number] for host in stage.receivers) / size,
        sent_copies=sum(sent.values()) / size,
        most_received_copies=max(received[host.number] for host in stage.receivers) / size,
        busy_share=machine_before.busy_share(machine_after),
        cpu_seconds=cpu,
        waiting_share=(machine_after.waiting - machine_before.waiting) / took,
        details=details,
    )
