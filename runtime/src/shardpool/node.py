"""A pod: one process per local rank, one directory, one readiness for all of them."""

from __future__ import annotations

import enum
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardpool import control
from shardpool.egress_file import follow_limit
from shardpool.errors import (
    ConfigurationError,
    DeadlineExceededError,
    IntegrityError,
    RankDiedError,
    ShardpoolError,
    StoreError,
)
from shardpool.http import StatusPages, StatusServer, Verdict
from shardpool.identity import pool_identity
from shardpool.log import logger
from shardpool.metrics import Sample, render
from shardpool.model.directory import ModelDirectory
from shardpool.model.verify import verify_files
from shardpool.rank_process import RankProcess
from shardpool.settings import Settings
from shardpool.stop_signals import stop_signals

LOG = logger(__name__)
MOST_RESTARTS = 5  # of one rank in one life of the node; beyond it the pod ends and Kubernetes backs off
RESTART_DELAYS = (0.0, 1.0, 2.0, 4.0, 8.0)
ANSWER_SECONDS = 1.0  # in which the ranks, all together, must answer for a page
LIVE_SECONDS = 2.0  # in which the main thread must answer /livez
MARGIN_SECONDS = 10.0  # beyond a rank's own deadline before the node steps in


class _Stage(enum.Enum):
    STARTING = "starting"
    FILLING = "filling"
    COMPLETE = "complete"
    SERVING = "serving"
    DOWN = "down"


@dataclass
class _Rank:
    number: int
    process: RankProcess
    stage: _Stage = _Stage.STARTING
    restarts: int = 0
    summary: Mapping[str, Any] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""


Progress = Callable[["Node"], None]


class Node:
    """Runs a pod's ranks until the load has ended (`staying` false) or SIGTERM (`staying` true).

    Args:
        settings: what to hold and how.
        staying: serve after the load; else leave.
        progress: called about four times a second while the directory is filled, from a thread of the node.
    """

    def __init__(self, settings: Settings, *, staying: bool, progress: Progress | None = None) -> None:
        settings.require_model()
        if not settings.directory:
            raise ConfigurationError("no directory is set", hint="give --directory or SHARDPOOL_DIRECTORY")
        self.settings = settings
        self.identity = pool_identity(settings)
        self._staying = staying
        self._progress = progress
        self._directory = ModelDirectory(Path(settings.directory))
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ranks: list[_Rank] = []
        self._exit: int | None = None
        self._failure: ShardpoolError | None = None
        self._leaving = threading.Event()
        self._committed = False
        self._egress_limit: float | None = None  # as the file says
        self._started = time.monotonic()
        self._filled_after: float | None = None
        self._deadline = self._started + settings.deadline_seconds + MARGIN_SECONDS
        self._workers: list[threading.Thread] = []

    # What the outside sees

    @property
    def ready(self) -> bool:
        """Every local rank holds and serves its whole shard, and the node is not leaving."""
        return (
            bool(self._ranks)
            and not self._leaving.is_set()
            and all(rank.stage is _Stage.SERVING and rank.process.alive for rank in self._ranks)
        )

    def snapshots(self) -> list[tuple[int, Mapping[str, Any]]]:
        """What each local rank says of itself now; an empty mapping for one that does not answer."""
        asked = [(rank.number, rank.process.ask_snapshot()) for rank in self._ranks]
        until = time.monotonic() + ANSWER_SECONDS
        return [(number, answer(max(0.0, until - time.monotonic())) or {}) for number, answer in asked]

    def summaries(self) -> list[Mapping[str, Any]]:
        """The summary of each rank's load, as far as they have ended."""
        return [rank.summary for rank in self._ranks if rank.summary]

    @property
    def seconds(self) -> float | None:
        """From the start to the committed directory; None before."""
        return self._filled_after

    def status(self) -> Mapping[str, Any]:
        """The page `/status`."""
        answers = dict(self.snapshots())
        return {
            "ready": self.ready,
            "draining": self._leaving.is_set(),
            "model": self.settings.model,
            "revision": self.settings.revision,
            "mx_source_id": self.identity.mx_source_id(),
            "layout": self.settings.layout,
            "world": self.settings.world,
            "directory": self.settings.directory,
            "committed": self._committed,
            "pod": self.settings.pod_name,
            "seconds_to_ready": self._filled_after,
            "ranks": [
                {
                    "rank": rank.number,
                    "stage": rank.stage.value,
                    "pid": rank.process.pid,
                    "restarts": rank.restarts,
                    "failure": rank.failure,
                    "summary": rank.summary or None,
                    **answers.get(rank.number, {}).get("status", {}),
                }
                for rank in self._ranks
            ],
        }

    # Running

    def run(self) -> int:
        """Run to the end. Returns the exit code; raises the ShardpoolError that ended a load."""
        with stop_signals(self._on_signal), self._directory.lock():
            first = self.settings.global_first_rank
            self._directory.prepare(self.identity, range(first, first + self.settings.ranks_here))
            pages = StatusPages(self._readyz, self._livez, self.status, self._metrics)
            server = StatusServer(self.settings.http_host, self.settings.http_port, pages) if self._staying else None
            try:
                return self._run()
            finally:
                if server is not None:
                    server.close()

    def _run(self) -> int:
        first = self.settings.global_first_rank
        try:
            for number in range(first, first + self.settings.ranks_here):
                self._ranks.append(_Rank(number, self._spawn(number)))
            if self._progress is not None:
                self._work(self._report_progress)
            if self._staying and self.settings.egress_limit_file:
                self._work(self._follow_egress_limit)
            while self._exit is None:
                self._next_event()()
        finally:
            self._leaving.set()
            self._end_ranks()
            for worker in self._workers:
                worker.join(5)
        if self._failure is not None:
            if self._failure.exit_code == StoreError.exit_code and not self._committed:
                self._directory.clean()  # a volume that is full is left as it was found
            raise self._failure
        return self._exit

    def _next_event(self) -> Callable[[], None]:
        if self._committed:
            return self._events.get()
        try:
            return self._events.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except queue.Empty:
            return lambda: self._fail(
                DeadlineExceededError(
                    f"{self.settings.directory} was not complete after {self.settings.deadline_seconds:g} s",
                    hint="raise SHARDPOOL_DEADLINE_SECONDS, or see what each rank was waiting for above",
                )
            )

    def _spawn(self, number: int) -> RankProcess:
        return RankProcess(
            number,
            self.settings,
            staying=self._staying,
            told=lambda process, message: self._events.put(lambda: self._on_message(process, message)),
            ended=lambda process, code: self._events.put(lambda: self._on_ended(process, code)),
        )

    def _of(self, process: RankProcess) -> _Rank | None:
        return next((rank for rank in self._ranks if rank.process is process), None)

    def _work(self, task: Callable[[], None]) -> None:
        """Run a task in a thread of its own; what it raises is raised by `run`."""

        def guarded() -> None:
            try:
                task()
            except ShardpoolError as error:
                failure = error
                self._events.put(lambda: self._fail(failure))
            except Exception as error:
                LOG.exception("%s failed", task.__name__)
                text = f"{task.__name__.strip('_')} failed: {error!r}"
                self._events.put(
                    lambda: self._fail(ShardpoolError(text, hint="this is a bug of shardpool; the trace is above"))
                )

        worker = threading.Thread(target=guarded, name=task.__name__, daemon=True)
        self._workers.append(worker)
        worker.start()

    def _follow_egress_limit(self) -> None:
        follow_limit(
            Path(self.settings.egress_limit_file),
            lambda limit: self._events.put(lambda: self._limit_egress(limit)),
            self._leaving,
        )

    # Events, all on the thread of `run`

    def _limit_egress(self, megabits_per_second: float) -> None:
        self._egress_limit = megabits_per_second
        for rank in self._ranks:
            rank.process.send(control.LIMIT, mbps=megabits_per_second)

    def _on_message(self, process: RankProcess, message: Mapping[str, Any]) -> None:
        rank = self._of(process)
        if rank is None:
            return
        kind = message["kind"]
        if kind == control.FILLING:
            rank.stage = _Stage.FILLING
        elif kind == control.COMPLETE:
            rank.stage, rank.summary, rank.sha256 = _Stage.COMPLETE, message["summary"], message["sha256"]
            if self._committed:
                rank.process.send(control.SERVE)  # a rank that was started again, its files being there
            elif all(other.stage is _Stage.COMPLETE for other in self._ranks):
                self._work(self._verify_and_commit)
        elif kind == control.SERVING:
            rank.stage = _Stage.SERVING
            if all(other.stage is _Stage.SERVING for other in self._ranks):
                LOG.info(
                    "ready: %s serves %s at %s", self.settings.directory, self.settings.model, self.settings.revision
                )
        elif kind in (control.FAILED, control.DAMAGED):
            rank.failure = message["text"]
            LOG.error("rank %d: %s", rank.number, message["text"])
            self._fail(_RankError(message["text"], int(message["exit_code"])))

    def _on_ended(self, process: RankProcess, code: int) -> None:
        rank = self._of(process)
        if rank is None or self._exit is not None:
            return
        rank.stage = _Stage.DOWN
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        died = RankDiedError(f"the process of rank {rank.number} ended ({how})", hint="its last log lines say why")
        if self.settings.rank_failure == "end" or rank.restarts >= MOST_RESTARTS:
            self._fail(died)
            return
        delay = RESTART_DELAYS[min(rank.restarts, len(RESTART_DELAYS) - 1)]
        rank.restarts += 1
        LOG.warning("%s; starting it again in %g s (%d of %d)", died.what, delay, rank.restarts, MOST_RESTARTS)

        def start_again() -> None:
            process.end(0)
            if not self._leaving.wait(delay):
                self._events.put(lambda: self._replace(rank))

        self._work(start_again)

    def _replace(self, rank: _Rank) -> None:
        if self._exit is None:
            rank.process = self._spawn(rank.number)
            rank.stage = _Stage.STARTING
            if self._egress_limit is not None:
                rank.process.send(control.LIMIT, mbps=self._egress_limit)

    def _on_signal(self, number: signal.Signals) -> None:
        self._leaving.set()  # not ready from this moment on
        self._events.put(lambda: self._leave(number))

    def _leave(self, number: signal.Signals) -> None:
        LOG.info("%s: %s", number.name, "draining" if self._staying else "stopping")
        self._exit = 0 if self._staying and number == signal.SIGTERM else 128 + number

    def _fail(self, error: ShardpoolError) -> None:
        if self._exit is None:
            self._failure, self._exit = error, error.exit_code

    # Committing

    def _verify_and_commit(self) -> None:
        published = {path: sha256 for rank in self._ranks for path, sha256 in rank.sha256.items()}
        if published and not self._directory.committed(self.identity.mx_source_id()):
            wrong = verify_files(self._directory, published, stop=self._leaving)
            if self._leaving.is_set():
                return
            if wrong:
                self._events.put(lambda: self._refuse_files(wrong))
                return
        self._directory.commit(self.identity)
        self._events.put(self._on_committed)

    def _refuse_files(self, wrong: Sequence[str]) -> None:
        for rank in self._ranks:
            rank.process.send(control.FORGET, paths=wrong)
        names = ", ".join(wrong[:8]) + (f" and {len(wrong) - 8} more" if len(wrong) > 8 else "")
        self._fail(
            IntegrityError(
                f"in {self.settings.directory}, {names} differ from the SHA-256 that their publisher states",
                hint="their pieces are fetched again at the next start; if it comes again, a peer or the seed holds other bytes",
            )
        )

    def _on_committed(self) -> None:
        self._committed = True
        self._filled_after = time.monotonic() - self._started
        LOG.info("%s is complete after %.2f s", self.settings.directory, self._filled_after)
        if not self._staying:
            self._exit = 0
            return
        for rank in self._ranks:
            rank.process.send(control.SERVE)

    # Leaving

    def _end_ranks(self) -> None:
        for rank in self._ranks:
            rank.process.send(control.DRAIN)
        until = time.monotonic() + (self.settings.drain_seconds if self._committed else 0.0) + 5.0
        for rank in self._ranks:
            rank.process.end(max(0.1, until - time.monotonic()))

    # Pages

    def _readyz(self) -> Verdict:
        if self._leaving.is_set():
            return Verdict(False, "draining")
        if self.ready:
            return Verdict(True, "ready")
        return Verdict(
            False, "; ".join(f"rank {rank.number} is {rank.stage.value}" for rank in self._ranks) or "starting"
        )

    def _livez(self) -> Verdict:
        """The thread of `run` answers; it never blocks for long."""
        answered = threading.Event()
        self._events.put(answered.set)
        return (
            Verdict(True, "alive") if answered.wait(LIVE_SECONDS) else Verdict(False, "the main thread does not answer")
        )

    def _metrics(self) -> bytes:
        samples: list[Sample] = []
        answers = dict(self.snapshots())
        for rank in self._ranks:
            label = {"rank": str(rank.number)}
            samples.append(Sample("shardpool_ready", float(self.ready and rank.stage is _Stage.SERVING), label))
            samples.append(Sample("shardpool_rank_restarts_total", rank.restarts, label))
            for name, value, labels in answers.get(rank.number, {}).get("metrics", []):
                samples.append(Sample(name, value, {**labels, **label}))
        return render(samples)

    def _report_progress(self) -> None:
        assert self._progress is not None
        while not self._leaving.wait(0.25) and self._exit is None and not self._committed:
            self._progress(self)
        self._progress(self)


class _RankError(ShardpoolError):
    """The error that a rank ended with, with its exit code."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code
