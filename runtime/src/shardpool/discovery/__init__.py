"""Who might have the bytes: one interface, and the back ends behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardpool.discovery.base import Discovery, Endpoint, Listing, Registration
from shardpool.errors import ConfigurationError
from shardpool.settings import Settings

if TYPE_CHECKING:
    from shardpool.discovery.dns import Resolver

_SERVICE_BACKENDS = ("k8s-service", "service")


def make_discovery(settings: Settings, rank: int, *, resolver: Resolver | None = None) -> Discovery:
    """The back end that the settings ask for, for the peers of one global rank.

    With `discovery` unset: `headless` where a peers pattern is set, `static` where peers are, `k8s-service` where
    ModelExpress's backend is, else `none`.

    Raises:
        ConfigurationError: a pattern or list that cannot be used, or that is missing.
    """
    chosen = settings.discovery or _chosen(settings)
    port = settings.worker_grpc_port + rank % settings.ranks_here
    if chosen == "headless":
        from shardpool.discovery.headless import HeadlessDiscovery

        if not settings.peers_pattern:
            raise ConfigurationError(
                "discovery headless needs the name of the headless Service", hint="set SHARDPOOL_PEERS_PATTERN"
            )
        return HeadlessDiscovery(settings.peers_pattern, rank, port, resolver=resolver)
    if chosen == "static":
        from shardpool.discovery.static import StaticDiscovery

        return StaticDiscovery(settings.peers, rank, port, resolver=resolver)
    if chosen == "k8s-service":
        from shardpool.discovery.k8s_service import ServiceDiscovery

        return ServiceDiscovery(settings.service_pattern, rank, settings.worker_grpc_port, resolver=resolver)
    from shardpool.discovery.nobody import NoDiscovery

    return NoDiscovery()


def _chosen(settings: Settings) -> str:
    if settings.peers_pattern:
        return "headless"
    if settings.peers:
        return "static"
    if settings.metadata_backend in _SERVICE_BACKENDS:
        return "k8s-service"
    if settings.metadata_backend:
        raise ConfigurationError(
            f"MX_METADATA_BACKEND={settings.metadata_backend!r} is not known here",
            hint=f"use {' or '.join(_SERVICE_BACKENDS)}, or set SHARDPOOL_DISCOVERY",
        )
    return "none"


__all__ = ["Discovery", "Endpoint", "Listing", "Registration", "make_discovery"]
