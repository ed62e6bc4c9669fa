"""Measure everything of a plan, and keep the results as they come."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from netns import control, machine
from netns.lanes import Lanes
from netns.network import MTU, Network, queue_bytes, remove_leftovers
from netns.payload import Payload, make_payload
from netns.plan import Plan, Setting
from netns.play import Outcome
from netns.results import RESULTS
from netns.stage import Stage, remove_tree

FOLDER_PREFIX = "shardpool-swarm-"


def run(plan: Plan) -> None:
    """Measure, and write `swarm.json`. Raises BenchError when something cannot be measured."""
    machine.require_machine()
    with machine.only_run():
        for name in remove_leftovers():
            tell(f"removed what an earlier run left: {name}")
        for folder in plan.work.glob(FOLDER_PREFIX + "*"):
            remove_tree(folder)  # the lock is held: nobody uses it
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(_folder(plan.work))
            networks = [stack.enter_context(Network(plan.hosts, plan.rate, lane)) for lane in range(plan.lanes)]
            payload = make_payload(folder / "model", plan.size)
            before = _control(networks[0], "before")
            outcomes: list[Outcome] = []

            def keep(number: int, setting: Setting, outcome: Outcome) -> None:
                outcomes.append(outcome)
                tell(f"{number + 1}/{plan.plays(setting)} {setting}: {outcome.slowest:.2f} s, cores {outcome.busy_share:.0%} busy, "
                     f"{outcome.beside} at once, source sent {outcome.first_source_copies:.2f}")  # fmt: skip

            try:
                tell(f"{sum(map(plan.plays, plan.settings()))} plays, about {plan.expected_seconds / 60:.0f} minutes")
                lanes = Lanes(plan, payload, folder, networks)
                for number, settings in plan.rounds():
                    lanes.play(number, settings, keep, partial(_keep_logs, plan))
            finally:
                if outcomes:
                    interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt)
                    after = [] if interrupted else _control(networks[0], "after")
                    _write(plan, networks[0], payload, before, after, outcomes)


def _control(network: Network, when: str) -> list[float]:
    rates = control.measure(network)
    verdict = "valid" if control.valid(rates, network.rate) else "INVALID"
    tell(
        f"control {when}: iperf3 pairs reach {min(rates):.1f} to {max(rates):.1f} of {network.rate:g} Mbit/s: {verdict}"
    )
    return rates


def _write(
    plan: Plan, network: Network, payload: Payload, before: list[float], after: list[float], outcomes: list[Outcome]
) -> None:
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "network": {
            "rate_mbps": plan.rate,
            "mtu": MTU,
            "queue_bytes": queue_bytes(plan.rate),
            "congestion_control": network.congestion_control,
        },
        "size": payload.size,
        "piece_bytes": payload.piece_bytes,
        "count": plan.count,
        "steady_count": plan.steady_count,
        "bittorrent_count": plan.bittorrent_count,
        "staggered_count": plan.staggered_count,
        "lanes": plan.lanes,
        "control": {
            "before_mbps": [round(rate, 2) for rate in before],
            "after_mbps": [round(rate, 2) for rate in after],
            "valid": bool(after) and control.valid(before + after, plan.rate),
        },
        "outcomes": [outcome.as_json() for outcome in outcomes],
    }
    plan.output.mkdir(parents=True, exist_ok=True)
    (plan.output / RESULTS).write_text(json.dumps(results, indent=1) + "\n")


def _keep_logs(plan: Plan, stage: Stage, name: str) -> None:
    if plan.keep_logs is None:
        return
    for log in stage.folder.glob("host*/*.log"):
        target = plan.keep_logs / name / f"{log.parent.name}-{log.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, target)


@contextlib.contextmanager
def _folder(work: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=work))
    os.chmod(folder, 0o755)
    try:
        yield folder
    finally:
        remove_tree(folder)


def tell(text: str) -> None:
    """A line for whoever waits."""
    print(text + "\n", end="", flush=True)  # one write: lanes tell beside each other
