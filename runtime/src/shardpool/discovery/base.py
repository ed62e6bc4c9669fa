"""The one interface behind which peers are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """Where a peer may be dialled. `shared` is true of a Service address: each new connection may reach another peer."""

    host: str
    port: int
    shared: bool = False

    @property
    def target(self) -> str:
        """`host:port`, IPv6 literals in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Registration:
    """What a replica would tell a directory of peers about itself."""

    mx_source_id: str
    rank: int
    instance: str
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Listing:
    """The endpoints known now, sorted.

    `problem` says why the list may be incomplete (a DNS failure), empty if it is not; `final` that it is made of addresses and will
    not change.
    """

    endpoints: tuple[Endpoint, ...]
    problem: str = ""
    final: bool = False


class Discovery(Protocol):
    """Who might have the bytes of one rank. Every call is bounded in time; none raises for "no peer yet"."""

    def register(self, registration: Registration) -> None:
        """Make this replica findable (does nothing where Kubernetes does it)."""

    def set_ready(self, ready: bool) -> None:
        """Tell whether this replica is complete and serving."""

    def list(self) -> Listing:
        """The endpoints known now; resolves anew."""

    def get(self, instance: str) -> Endpoint | None:
        """The endpoint of a registered instance, where the back end knows instances."""

    def watch(self, known: Listing, timeout: float) -> Listing | None:
        """Wait until the listing differs from `known`, at most `timeout` seconds; None if it did not change."""

    def close(self) -> None:
        """End waiting calls and free what is held."""


__all__ = ["Discovery", "Endpoint", "Listing", "Registration"]
