"""Measure everything of a plan, and keep the results as they come."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from netns import control, machine
from netns.contenders import CONTENDERS
from netns.machine import BenchError
from netns.network import MTU, Network, queue_bytes, remove_leftovers
from netns.payload import make_payload
from netns.plan import Plan, Setting
from netns.play import Outcome, play
from netns.results import RESULTS
from netns.stage import Stage, remove_tree

FOLDER_PREFIX = "shardpool-swarm-"
SLACK_SECONDS = 60.0


def run(plan: Plan) -> None:
    """Measure, and write `swarm.json`. Raises BenchError when something cannot be measured."""
    machine.require_machine()
    with machine.only_run():
        for name in remove_leftovers():
            tell(f"removed what an earlier run left: {name}")
        for folder in plan.work.glob(FOLDER_PREFIX + "*"):
            remove_tree(folder)  # the lock is held: nobody uses it
        with _folder(plan.work) as folder, Network(plan.hosts, plan.rate) as network:
            payload = make_payload(folder / "model", plan.size)
            before = _control(network, "before")
            outcomes: list[Outcome] = []
            started = time.monotonic()
            try:
                for number, setting in plan.rounds():
                    if time.monotonic() - started > plan.time_limit:
                        raise BenchError(f"not done after {plan.time_limit:.0f} s: lower --count or raise --time-limit")
                    with Stage(network, payload, folder / "stage", setting.sources, setting.receivers) as stage:
                        try:
                            outcome = _play(plan, setting, stage)
                        finally:
                            _keep_logs(plan, stage, f"{number}-{setting}".replace(" ", "-").replace(",", ""))
                    outcomes.append(outcome)
                    tell(f"{number + 1}/{plan.count} {setting}: {outcome.slowest:.2f} s, "
                         f"cores {outcome.busy_share:.0%} busy, source sent {outcome.first_source_copies:.2f}")  # fmt: skip
            finally:
                if outcomes:
                    after = _control(network, "after") if sys.exc_info()[0] is not KeyboardInterrupt else []
                    _write(plan, network, payload.size, before, after, outcomes)


def _play(plan: Plan, setting: Setting, stage: Stage) -> Outcome:
    contender = CONTENDERS[setting.contender](stage)
    limit = plan.copy_seconds * (setting.receivers + 1) * 2 + SLACK_SECONDS
    return play(stage, contender, setting.start, setting.offsets(plan.copy_seconds), limit, setting.fault)


def _control(network: Network, when: str) -> list[float]:
    rates = control.measure(network)
    verdict = "valid" if control.valid(rates, network.rate) else "INVALID"
    tell(
        f"control {when}: iperf3 pairs reach {min(rates):.1f} to {max(rates):.1f} of {network.rate:g} Mbit/s: {verdict}"
    )
    return rates


def _write(
    plan: Plan, network: Network, size: int, before: list[float], after: list[float], outcomes: list[Outcome]
) -> None:
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "network": {
            "rate_mbps": plan.rate,
            "mtu": MTU,
            "queue_bytes": queue_bytes(plan.rate),
            "congestion_control": network.congestion_control,
        },
        "size": size,
        "count": plan.count,
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
    print(text, flush=True)
