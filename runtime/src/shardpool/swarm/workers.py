"""A few threads for what blocks: reads from the seed, digests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

Job = Callable[[], None]


class Workers:
    """Runs jobs in order, several at once. Threads start with the first jobs and end at `close`.

    The threads are daemons: a read that a seed never answers must not keep the process from ending.

    Args:
        name: of the threads.
        count: how many at most.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._pending = 0
        self._lock = threading.Lock()

    def submit(self, job: Job) -> None:
        """Run a job, which must not raise, as soon as a thread is free."""
        with self._lock:
            self._pending += 1
            if self._pending > len(self._threads) and len(self._threads) < self._count:
                thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._jobs.put(job)

    def close(self, timeout: float) -> bool:
        """Finish what was submitted, and end the threads; whether they all ended within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            finally:
                with self._lock:
                    self._pending -= 1


__all__ = ["Workers"]
