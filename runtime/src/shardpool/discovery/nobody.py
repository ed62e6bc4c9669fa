"""No peers at all: one replica that reads the seed, and serves whoever finds it."""

from __future__ import annotations

import threading

from shardpool.discovery.base import Endpoint, Listing, Registration


class NoDiscovery:
    """Lists nothing, and says so."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._registration: Registration | None = None

    def register(self, registration: Registration) -> None:
        """Remember it for `get`."""
        self._registration = registration

    def set_ready(self, ready: bool) -> None:
        """Do nothing."""

    def list(self) -> Listing:
        """Nobody."""
        return Listing((), "discovery is closed" if self._closed.is_set() else "discovery is off")

    def get(self, instance: str) -> Endpoint | None:
        """The endpoint of this process's own registration."""
        registration = self._registration
        return registration.endpoint if registration and registration.instance == instance else None

    def watch(self, known: Listing, timeout: float) -> Listing | None:
        """Wait for `timeout` seconds or for `close`."""
        current = self.list()
        if current != known:
            return current
        self._closed.wait(timeout)
        return None

    def close(self) -> None:
        """End waiting calls."""
        self._closed.set()
