"""Checks of the machine that `doctor` runs on: limits, shared memory, NIXL, RDMA devices."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

from shardpool.probe.report import FAIL, OK, WARN, Check
from shardpool.settings import Settings
from shardpool.transport import fabric

FEWEST_DESCRIPTORS = 1024
SMALLEST_SHM = 1 << 30
_MIB = 1 << 20


def check_host(settings: Settings, weights: str) -> Iterator[Check]:
    """What can be told without a peer.

    Args:
        settings: the transport that is asked for.
        weights: who loads, `pool` or `modelexpress`: engines need shared memory.
    """
    devices = fabric.rdma_devices()
    wants_rdma = bool(devices) and settings.transport != "stream"
    yield _rdma(devices, settings.transport)
    yield _nixl(needed=settings.transport == "nixl" or wants_rdma)
    yield _memlock(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], needed=wants_rdma)
    yield _descriptors(*resource.getrlimit(resource.RLIMIT_NOFILE))
    yield _shared_memory("/dev/shm", needed=weights == "modelexpress")  # noqa: S108


def _rdma(devices: tuple[str, ...], transport: str) -> Check:
    if devices:
        return Check("rdma devices", OK, ", ".join(devices))
    listed = fabric.listed_rdma_devices()
    if listed:
        return Check(
            "rdma devices",
            WARN,
            f"{', '.join(listed)} on this node, none in this container",
            "ask for the RDMA resource in the pod (fabric.resourceName)",
        )
    if transport == "nixl":
        return Check(
            "rdma devices",
            WARN,
            "none: NIXL's UCX goes over TCP, where whoever reaches its ports can read and write the process",
            "set transport stream, or keep these ports to a fenced network",
        )
    return Check("rdma devices", OK, "none; bytes move over gRPC streams")


def _nixl(*, needed: bool) -> Check:
    from shardpool.errors import ShardpoolError
    from shardpool.transport import nixl_agent

    package, version = nixl_agent.installed()
    if not needed:
        return Check(
            "nixl", OK, f"{package} {version}, not needed here" if package else "not installed, not needed here"
        )
    try:
        library = nixl_agent.probe()
    except ShardpoolError as error:
        return Check("nixl", WARN, str(error), "the stream transport is used instead")
    return Check("nixl", OK, f"{library.package} {library.version} loads, with UCX")


def _memlock(limit: int, *, needed: bool) -> Check:
    unlimited = limit == resource.RLIM_INFINITY
    seen = "unlimited" if unlimited else f"{limit // 1024} KiB"
    if unlimited or not needed:
        return Check("memlock limit", OK, seen if needed else f"{seen}, not needed without RDMA")
    return Check(
        "memlock limit",
        FAIL,
        f"{seen}; RDMA pins the whole shard",
        "raise the container runtime's memlock limit on the node to unlimited, or set fabric.memlock: ipcLock",
    )


def _descriptors(soft: int, hard: int) -> Check:
    limit = max(soft, hard) if resource.RLIM_INFINITY not in (soft, hard) else resource.RLIM_INFINITY
    if limit == resource.RLIM_INFINITY or limit >= FEWEST_DESCRIPTORS:
        return Check("open files limit", OK, "unlimited" if limit == resource.RLIM_INFINITY else str(limit))
    return Check(
        "open files limit",
        FAIL,
        f"{limit}",
        f"raise it to {FEWEST_DESCRIPTORS} or more: each peer, file and mapping takes one",
    )


def _shared_memory(path: str, *, needed: bool) -> Check:
    try:
        space = os.statvfs(path)
    except OSError as error:
        verdict = FAIL if needed else OK
        return Check(path, verdict, f"{error.strerror}", "mount a memory volume there" if needed else "")
    size = space.f_blocks * space.f_frsize
    seen = f"{size // _MIB} MiB"
    if size >= SMALLEST_SHM or not needed:
        return Check(path, OK, seen if needed else f"{seen}, not needed by the pool")
    return Check(
        path,
        WARN,
        f"{seen} here; engines need several GiB a GPU",
        "the engine's own pod counts: give it a memory volume at /dev/shm of at least 1024 MiB",
    )
