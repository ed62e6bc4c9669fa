"""Readiness of a ModelExpress engine's pod: its HTTP health passes, and every local rank has published its tensors.

ModelExpress's own readiness looks at rank 0 alone, and at a manifest that a receiver of another identity can never get.
"""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from shardpool.discovery.base import Endpoint
from shardpool.errors import ConfigurationError
from shardpool.http import StatusPages, StatusServer, Verdict
from shardpool.log import logger
from shardpool.metrics import Sample, render
from shardpool.probe.manifest import Answer, Published, ask
from shardpool.settings import Settings

LOG = logger(__name__)
POLL_SECONDS = 2.0
HEALTH_SECONDS = 10.0
"""SGLang's health takes a second at least, and longer under load."""
STUCK_SECONDS = 60.0
_NOT_ASKED = Answer(Published.UNREACHABLE, "not asked yet")


@dataclass(frozen=True, slots=True)
class Observation:
    """What one round found: the engine's problem (empty when healthy) and the answer of each local rank, by global rank."""

    engine_problem: str
    ranks: Mapping[int, Answer]

    @property
    def verdict(self) -> Verdict:
        """Ready, or everything that is missing in one line."""
        missing = [f"engine: {self.engine_problem}"] if self.engine_problem else []
        missing.extend(
            f"rank {rank}: {answer.reason}"
            for rank, answer in sorted(self.ranks.items())
            if answer.state is not Published.YES
        )
        ids = {answer.source_id for answer in self.ranks.values() if answer.state is Published.YES}
        if not missing and len(ids) > 1:
            missing = [f"the ranks have published under different ids: {', '.join(sorted(ids))}"]
        if missing:
            return Verdict(False, "; ".join(missing))
        return Verdict(True, f"{len(self.ranks)} rank(s) published {next(iter(ids), '')}")


class Gate:
    """Polls until closed, and serves what it found.

    Args:
        settings: `engine_health_url`, the ranks of this pod and their ports, the HTTP port.
        poll_seconds: pause between rounds.

    Raises:
        ConfigurationError: no health URL is set, or the HTTP port cannot be bound.
    """

    def __init__(self, settings: Settings, *, poll_seconds: float = POLL_SECONDS) -> None:
        if not settings.engine_health_url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"{settings.engine_health_url!r} is not a health URL of an engine",
                hint="set SHARDPOOL_ENGINE_HEALTH_URL, such as http://127.0.0.1:8000/health",
            )
        self._settings = settings
        self._poll_seconds = poll_seconds
        self._stop = threading.Event()
        self._leaving = False
        first = settings.global_first_rank
        self._endpoints = {
            first + local: Endpoint(settings.bind_host or "127.0.0.1", settings.worker_grpc_port + local)
            for local in range(settings.ranks_here)
        }
        self._seen = Observation("not asked yet", dict.fromkeys(self._endpoints, _NOT_ASKED))
        self._seen_at = time.monotonic()
        # A proxy set in the pod's environment is not for its own engine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._server = StatusServer(
            settings.http_host,
            settings.http_port,
            StatusPages(self._readyz, self._livez, self._status, self._metrics),
        )
        self.port = self._server.port
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)
        self._thread.start()

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set; then say not ready, and close."""
        stop.wait()
        self._leaving = True
        self.close()

    def close(self) -> None:
        """End the polling and the server. May be repeated."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(HEALTH_SECONDS + self._settings.connect_seconds)
            self._server.close()

    def observe(self) -> Observation:
        """Ask the engine and every local rank once, at the same time."""
        with ThreadPoolExecutor(min(16, len(self._endpoints) + 1), "gate") as pool:
            health = pool.submit(self._engine_problem)
            answers = pool.map(lambda endpoint: ask(endpoint, self._settings.connect_seconds), self._endpoints.values())
            return Observation(health.result(), dict(zip(self._endpoints, answers, strict=True)))

    def _run(self) -> None:
        while not self._stop.is_set():
            seen, before = self.observe(), self._seen
            self._seen, self._seen_at = seen, time.monotonic()
            if seen.verdict != before.verdict:
                LOG.info("%s: %s", "ready" if seen.verdict.ok else "not ready", seen.verdict.reason)
            self._stop.wait(self._poll_seconds)

    def _engine_problem(self) -> str:
        url = self._settings.engine_health_url
        try:
            with self._opener.open(url, timeout=HEALTH_SECONDS) as answer:
                return "" if 200 <= answer.status < 300 else f"{url} answers {answer.status}"
        except urllib.error.HTTPError as error:
            return f"{url} answers {error.code}"
        except (OSError, ValueError) as error:
            return f"{url}: {getattr(error, 'reason', None) or error}"
        except Exception as error:  # http.client's own: whatever answers there is no engine
            return f"{url}: {type(error).__name__}"

    def _readyz(self) -> Verdict:
        if self._leaving or self._stop.is_set():
            return Verdict(False, "leaving")
        return self._seen.verdict

    def _livez(self) -> Verdict:
        age = time.monotonic() - self._seen_at
        return Verdict(age < STUCK_SECONDS, f"last round {age:.0f} s ago")

    def _status(self) -> Mapping[str, Any]:
        seen = self._seen
        return {
            "ready": self._readyz().ok,
            "reason": self._readyz().reason,
            "engine": {"healthy": not seen.engine_problem, "reason": seen.engine_problem},
            "ranks": {
                str(rank): {
                    "state": answer.state.name.lower(),
                    "reason": answer.reason,
                    "mx_source_id": answer.source_id,
                }
                for rank, answer in sorted(seen.ranks.items())
            },
        }

    def _metrics(self) -> bytes:
        return render(self._samples())

    def _samples(self) -> Iterator[Sample]:
        seen = self._seen
        yield Sample("shardpool_gate_engine_healthy", float(not seen.engine_problem), {})
        for rank, answer in sorted(seen.ranks.items()):
            published = float(answer.state is Published.YES)
            yield Sample("shardpool_gate_rank_published", published, {"rank": str(rank)})
