"""What it costs when one of two sources goes away half way."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

from ratios.replicas import Bench, remove, size_of, until
from ratios.table import Row

SECTION = "Failure tax: one of two sources, half way"
SOURCE_MBPS = 400.0
"""Egress of each source, so that half way can be met, and a copy takes the same time in every run."""

STALL_SECONDS = 3.0


def measure(bench: Bench, size: int) -> Iterator[Row]:
    """The tax is the time beyond the moment of the fault plus what the other source alone needs for the rest.

    What the other needs follows from a whole copy taken from one source alone.
    """
    model = bench.checkpoint(size)
    copy = size_of(model)
    limit = {"SHARDPOOL_EGRESS_LIMIT_MBPS": str(SOURCE_MBPS)}
    patience = {"SHARDPOOL_STALL_SECONDS": str(STALL_SECONDS)}
    healthy = bench.serve(seed=f"directory:{model}", settings=limit).wait()
    alone = bench.serve(peers=[healthy.address], settings=patience).wait()
    one_copy = float(alone.summary()["seconds"])
    sound_refetched = int(alone.summary()["refetched"])
    alone.stop()
    yield Row(
        SECTION,
        "one copy from one source",
        one_copy,
        "s",
        note=f"{copy / 1e6:.0f} MB, egress limited to {SOURCE_MBPS:g} Mbit/s",
    )
    for name, number in (("killed", signal.SIGKILL), ("frozen", signal.SIGSTOP)):
        victim = bench.serve(seed=f"directory:{model}", settings=limit).wait()
        pids = victim.pids()
        receiver = bench.serve(peers=[healthy.address, victim.address], settings=patience)
        until(lambda receiver=receiver: receiver.verified() * 2 >= copy, "half a copy")  # type: ignore[misc]
        verified = receiver.verified()
        happened = time.monotonic()
        victim.signal(number, pids)
        receiver.wait()
        ended = time.monotonic()
        summary = receiver.summary()
        tax = ended - happened - (copy - verified) / copy * one_copy
        reach = 0.1 * one_copy + 1 if name == "killed" else STALL_SECONDS + 1
        yield Row(
            SECTION,
            f"source {name}: tax",
            tax,
            "s",
            reach,
            note=f"at {verified / copy:.0%} of a copy",
        )
        yield Row(SECTION, f"source {name}: pieces sent again", int(summary["refetched"]) - sound_refetched, "", 1 if name == "killed" else None,
                  note="of one connection")  # fmt: skip
        receiver.stop()
        victim.signal(signal.SIGCONT, pids)
        victim.signal(signal.SIGKILL, pids)
        victim.process.wait(30)
    healthy.stop()
    remove(model.parent)
