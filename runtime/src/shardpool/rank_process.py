"""The process of one local rank, as its node sees it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from shardpool import control
from shardpool.settings import Settings

# A module, not a function of this process: the child starts clean, with none of this process's threads and locks.
COMMAND = (sys.executable, "-m", "shardpool.replica")


class RankProcess:
    """Starts the process of `rank`, hands its messages to `told`, and its exit code to `ended`, both from threads of its own.

    The child ends by itself when this process goes away, since its standard input closes then.
    """

    def __init__(
        self,
        rank: int,
        settings: Settings,
        *,
        staying: bool,
        told: Callable[[RankProcess, Mapping[str, Any]], None],
        ended: Callable[[RankProcess, int], None],
    ) -> None:
        self.rank = rank
        self._told = told
        self._ended = ended
        self._ids = itertools.count()
        self._answers: dict[int, queue.SimpleQueue[Mapping[str, Any]]] = {}
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # a Ctrl-C goes to the node alone, which then says what to do
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._pipe = control.Pipe(self._process.stdout, self._process.stdin)
        self.send(control.START, rank=rank, settings=dataclasses.asdict(settings), staying=staying)
        self._thread = threading.Thread(target=self._listen, name=f"rank-{rank}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def send(self, kind: str, **fields: Any) -> None:
        """Send the rank a message."""
        self._pipe.send(kind, **fields)

    def ask_snapshot(self) -> Callable[[float], Mapping[str, Any] | None]:
        """Ask the rank for its status and metrics. Call the result, once, for the answer.

        It waits so many seconds for it; None when it did not come.
        """
        number = next(self._ids)
        answer: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._answers[number] = answer
        self.send(control.SNAPSHOT, id=number)

        def wait(timeout: float) -> Mapping[str, Any] | None:
            try:
                return answer.get(timeout=timeout)
            except queue.Empty:
                return None
            finally:
                del self._answers[number]

        return wait

    def end(self, grace: float) -> int:
        """Wait `grace` seconds for the process to leave, then kill it. Returns its exit code (negative: a signal)."""
        try:
            code = self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._thread.join(grace + 5)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return code

    def kill(self) -> None:
        """Kill the process; `ended` follows."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def _listen(self) -> None:
        for message in self._pipe.receive():
            if message["kind"] == control.SNAPSHOT:
                answer = self._answers.get(message["id"])
                if answer is not None:
                    answer.put(message)
            else:
                self._told(self, message)
        self._ended(self, self._process.wait())
