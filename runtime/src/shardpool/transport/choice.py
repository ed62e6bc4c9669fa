"""Which transport carries the bytes: `auto` resolved, and `nixl` made sure of."""

from __future__ import annotations

from shardpool.errors import ShardpoolError
from shardpool.log import logger
from shardpool.settings import Settings
from shardpool.transport import fabric

LOG = logger(__name__)


def choose_transport(settings: Settings) -> tuple[str, str]:
    """The transport to use, `nixl` or `stream`, and why.

    `auto` is `nixl` where this process can open an RDMA device and NIXL loads, else `stream`. A `nixl` that was asked for and cannot be
    loaded becomes `stream` as well, since a slower load is better than none. Both log one warning when something is missing that was
    asked for or would have been used. Where NIXL is not considered it is not loaded (that takes a second).

    Args:
        settings: `transport` and `worker_host`.
    """
    if settings.transport == "stream":
        return "stream", "asked for"
    devices = fabric.rdma_devices()
    if settings.transport == "auto" and not devices:
        listed = fabric.listed_rdma_devices()
        if listed:
            reason = f"RDMA devices {', '.join(listed)} are on this node but not in this container"
            LOG.warning("transport stream: %s; ask for the RDMA resource in the pod", reason)
            return "stream", reason
        return "stream", "no RDMA device"
    from shardpool.transport.nixl_agent import probe

    try:
        library = probe(settings.worker_host)
    except ShardpoolError as error:
        LOG.warning("transport stream: %s", error)
        return "stream", str(error)
    carried = f"RDMA over {', '.join(devices)}" if devices else "asked for; no RDMA device, so UCX uses TCP"
    if not devices:
        LOG.warning(
            "transport nixl without RDMA: whoever reaches its TCP ports can read and write this process; for fenced networks only"
        )
    return "nixl", f"NIXL {library.version}, {carried}"
