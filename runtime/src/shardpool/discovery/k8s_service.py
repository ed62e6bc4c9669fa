"""ModelExpress's way: dial the Service of the rank (p2p.md, "Finding a source")."""

from __future__ import annotations

from shardpool.discovery.dns import Resolver
from shardpool.discovery.pattern import fill, split
from shardpool.discovery.resolving import ResolvingDiscovery, Target
from shardpool.errors import ConfigurationError


class ServiceDiscovery(ResolvingDiscovery):
    """Where the Service of a rank leads to: one shared address, or each pod's where the Service is headless.

    Args:
        pattern: name of the Service; `{rank}` is replaced. With a port it is used as it is, without one the port is
            `base_port` + rank.
        rank: global rank.
        base_port: `MX_WORKER_GRPC_PORT`.
        resolver: asks DNS.
    """

    def __init__(self, pattern: str, rank: int, base_port: int, *, resolver: Resolver | None = None) -> None:
        super().__init__([service_target(pattern, rank, base_port)], resolver=resolver)


def service_target(pattern: str, rank: int, base_port: int) -> Target:
    """The Service that a receiver of `rank` dials. Raises ConfigurationError."""
    setting = "MX_K8S_SERVICE_PATTERN"
    host, given = split(fill(pattern, setting, rank=rank), setting)
    port = base_port + rank if given is None else given
    if port > 65535:
        raise ConfigurationError(
            f"{setting}={pattern!r} has no port, and MX_WORKER_GRPC_PORT {base_port} + rank {rank} passes 65535",
            hint="give the port in the pattern",
        )
    return Target(host, port, service=True)
