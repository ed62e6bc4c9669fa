"""The part that every back end on DNS shares: resolve, compare, wait, tell once."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from shardpool.discovery.base import Endpoint, Listing, Registration
from shardpool.discovery.dns import LOOKUP_SECONDS, Answer, Resolver
from shardpool.discovery.pattern import is_literal
from shardpool.log import logger
from shardpool.retry import Backoff

LOG = logger(__name__)

PACE = Backoff(first=1.0, factor=1.5, longest=5.0, jitter=0.25)
"""Seconds between lookups while somebody watches: often at first and after each change, less often while nothing changes.

The jitter keeps replicas that started together from asking together.
"""

KEEP_SECONDS = 60.0
"""For so long after the last answer what it said is still listed, while no DNS server gives a usable one."""

WANTED_SECONDS = 10.0
"""For so long after the last call of `watch` the names are still looked up."""

_PARALLEL = 8


@dataclass(frozen=True, slots=True)
class Target:
    """A name and a port. `service` is true where one address may stand for many peers (a Service that is not headless)."""

    host: str
    port: int
    service: bool = False


class ResolvingDiscovery:
    """Peers are where the names of `targets` lead to, now.

    A name without an address is no error but "no peer yet", with the reason in the listing's `problem`. Nothing is
    cached: each lookup asks DNS. While somebody watches, a thread of its own looks up: a wait may be shorter than a slow
    server takes to answer.

    Args:
        targets: what to resolve.
        resolver: asks DNS.
        pace: pauses between the lookups of `watch`.
        rng: source of the jitter.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        resolver: Resolver | None = None,
        pace: Backoff = PACE,
        rng: random.Random | None = None,
    ) -> None:
        self._targets = tuple(dict.fromkeys(targets))
        self._fixed = all(is_literal(target.host) for target in self._targets)  # nothing can change
        self._label = ", ".join(dict.fromkeys(target.host for target in self._targets))
        self._resolver = resolver or Resolver()
        self._pace = pace
        self._rng = rng or random.Random()
        self._looking = threading.Lock()
        self._known: dict[Target, tuple[float, tuple[str, ...]]] = {}
        self._changed = threading.Condition()
        self._current: Listing | None = None
        self._delays = pace.delays(self._rng)
        self._due = 0.0
        self._wanted = 0.0
        self._watcher: threading.Thread | None = None
        self._closed = False
        self._registration: Registration | None = None

    def register(self, registration: Registration) -> None:
        """Remember it for `get`; the names of the targets are made by Kubernetes or by whoever wrote the settings."""
        self._registration = registration

    def set_ready(self, ready: bool) -> None:
        """Do nothing: readiness reaches peers through the handshake."""

    def get(self, instance: str) -> Endpoint | None:
        """The endpoint of this process's own registration; DNS knows no instances."""
        registration = self._registration
        return registration.endpoint if registration and registration.instance == instance else None

    def list(self) -> Listing:
        """Resolve every target now, within about `LOOKUP_SECONDS`."""
        with self._looking:
            return self._look()

    def watch(self, known: Listing, timeout: float) -> Listing | None:
        """Wait until the listing differs from `known`, for `timeout` seconds at most; meanwhile it is looked up at the pace."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._wanted = max(self._wanted, deadline + WANTED_SECONDS)
            done = self._closed or (self._fixed and self._current is not None)
            if self._watcher is None and not done:
                self._watcher = threading.Thread(target=self._keep_looking, name="lookup", daemon=True)
                self._watcher.start()
            while True:
                if self._current is not None and self._current != known:
                    return self._current
                left = deadline - time.monotonic()
                if self._closed or left <= 0:
                    return None
                self._changed.wait(left)

    def close(self) -> None:
        """End waiting calls; a lookup under way ends by its own bound."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            watcher = self._watcher
        if watcher is not None:
            watcher.join(LOOKUP_SECONDS + 1)

    def _keep_looking(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (now := time.monotonic()) < min(self._due, self._wanted):
                    self._changed.wait(min(self._due, self._wanted) - now)
                if self._closed or now >= self._wanted or (self._fixed and self._current is not None):
                    self._watcher = None
                    return
            with self._looking:
                self._look()

    def _look(self) -> Listing:
        if self._closed:
            return Listing((), "discovery is closed")
        answers = self._resolve(LOOKUP_SECONDS)
        now = time.monotonic()
        endpoints: set[Endpoint] = set()
        problems: list[str] = []
        for target, answer in zip(self._targets, answers, strict=True):
            addresses = answer.addresses
            if answer.definite:
                self._known[target] = (now, addresses)
            elif target in self._known and now - self._known[target][0] < KEEP_SECONDS:
                addresses = self._known[target][1]
            endpoints.update(_endpoints(target, addresses))
            if answer.problem:
                problems.append(answer.problem)
        listing = Listing(tuple(sorted(endpoints)), "; ".join(dict.fromkeys(problems)), final=self._fixed)
        self._publish(listing)
        return listing

    def _resolve(self, seconds: float) -> Sequence[Answer]:
        hosts = list(dict.fromkeys(target.host for target in self._targets))
        if sum(not is_literal(host) for host in hosts) <= 1:
            found = [self._resolver.lookup(host, seconds) for host in hosts]
        else:  # one name that nobody answers for must not use up the time of the others
            with ThreadPoolExecutor(min(_PARALLEL, len(hosts)), "lookup") as pool:
                deadline = time.monotonic() + seconds
                found = list(
                    pool.map(lambda host: self._resolver.lookup(host, max(0.0, deadline - time.monotonic())), hosts)
                )
        answers = dict(zip(hosts, found, strict=True))
        return [answers[target.host] for target in self._targets]

    def _publish(self, listing: Listing) -> None:
        with self._changed:
            before, self._current = self._current, listing
            if listing != before:
                self._delays = self._pace.delays(self._rng)
            self._due = time.monotonic() + next(self._delays)
            if listing == before:
                return
            self._changed.notify_all()
        old = set(before.endpoints) if before else set()
        new = set(listing.endpoints)
        if new:
            # The same addresses with another problem, as on a busy machine, are no news to whoever reads the log.
            LOG.log(
                logging.INFO if new != old else logging.DEBUG,
                "%s lists %d address(es) (+%d -%d)%s",
                self._label,
                len(new),
                len(new - old),
                len(old - new),
                f"; {listing.problem}" if listing.problem else "",
            )
        else:
            LOG.info("no peer yet: %s", listing.problem or f"{self._label} lists none")


def _endpoints(target: Target, addresses: tuple[str, ...]) -> Sequence[Endpoint]:
    """A Service with several addresses of one family is headless: they are pods, and not shared."""
    families = [":" in address for address in addresses]
    pods = max(families.count(True), families.count(False), 0) > 1
    return [Endpoint(address, target.port, shared=target.service and not pods) for address in addresses]
