"""Measure everything of a plan, and keep the results as they come."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from netns import control, machine
from netns.contenders import CONTENDERS
from netns.machine import BenchError
from netns.network import MTU, Network, end_processes, queue_bytes, remove_leftovers
from netns.payload import Payload, make_payload
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
        with _folder(plan.work) as folder, Lanes(plan, folder) as lanes:
            payload = make_payload(folder / "model", plan.size)
            network = lanes.networks[0]
            before = _control(network, "before")
            outcomes: list[Outcome] = []
            try:
                for number, settings in plan.rounds():
                    for setting, outcome in lanes.play(settings, payload, number):
                        outcomes.append(outcome)
                        tell(f"{number + 1}/{plan.plays(setting)} {setting}: {outcome.slowest:.2f} s, cores {outcome.busy_share:.0%} busy, "
                             f"source sent {outcome.first_source_copies:.2f}")  # fmt: skip
            finally:
                if outcomes:
                    after = _control(network, "after") if sys.exc_info()[0] is not KeyboardInterrupt else []
                    _write(plan, network, payload.size, before, after, outcomes)


class Lanes:
    """Networks beside each other. Plays that leave the processors nearly idle share the machine, one on each; the others have it alone."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._until = time.monotonic() + plan.time_limit
        self._stack = contextlib.ExitStack()
        self.networks: list[Network] = []

    def __enter__(self) -> Lanes:
        with contextlib.ExitStack() as stack:
            for lane in range(self._plan.lanes):
                self.networks.append(stack.enter_context(Network(self._plan.hosts, self._plan.rate, lane)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def play(self, settings: Sequence[Setting], payload: Payload, number: int) -> Iterator[tuple[Setting, Outcome]]:
        """Play every setting once; in the order in which they end."""
        light = [setting for setting in settings if setting.light]
        light.sort(key=lambda setting: setting.expected_copies, reverse=True)
        free: queue.SimpleQueue[Network] = queue.SimpleQueue()
        for network in self.networks:
            free.put(network)

        def beside(setting: Setting) -> tuple[Setting, Outcome]:
            network = free.get()
            try:
                return setting, self._one(network, setting, payload, number, len(self.networks))
            finally:
                free.put(network)

        pool = ThreadPoolExecutor(len(self.networks))
        try:
            for done in as_completed([pool.submit(beside, setting) for setting in light]):
                yield done.result()
        except BaseException:
            # The other lanes' plays end with an error once their processes have gone.
            pool.shutdown(wait=False, cancel_futures=True)
            for network in self.networks:
                for host in network.hosts:
                    end_processes(host.namespace)
            raise
        finally:
            pool.shutdown(wait=True)
        for setting in settings:
            if not setting.light:
                yield setting, self._one(self.networks[0], setting, payload, number, 1)

    def _one(self, network: Network, setting: Setting, payload: Payload, number: int, lanes: int) -> Outcome:
        if time.monotonic() > self._until:
            raise BenchError(f"not done after {self._plan.time_limit:.0f} s: lower --count or raise --time-limit")
        folder = self._folder / f"stage{self.networks.index(network)}"
        with Stage(network, payload, folder, setting.sources, setting.receivers) as stage:
            try:
                return _play(self._plan, setting, stage, lanes)
            finally:
                _keep_logs(self._plan, stage, f"{number}-{setting}".replace(" ", "-").replace(",", ""))


def _play(plan: Plan, setting: Setting, stage: Stage, lanes: int) -> Outcome:
    contender = CONTENDERS[setting.contender](stage)
    limit = plan.copy_seconds * (setting.receivers + 1) * 2 + SLACK_SECONDS
    return play(stage, contender, setting.start, setting.offsets(plan.copy_seconds), limit, setting.fault, lanes)


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
        "steady_count": plan.steady_count,
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
    print(text, flush=True)
