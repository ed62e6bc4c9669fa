"""What this host can move bytes with: RDMA devices, EFA, the network interface of an address."""

from __future__ import annotations

import fcntl
import socket
import struct
from pathlib import Path

from shardpool.log import logger

LOG = logger(__name__)
_SIOCGIFADDR = 0x8915
_NAME_BYTES = 16
SYSTEM = Path("/")


def rdma_devices(system: Path = SYSTEM) -> tuple[str, ...]:
    """Names of the RDMA devices that this process may open, sorted.

    A device counts when the kernel lists it and its `uverbs` node is in this container: a pod on an RDMA node that asked for no
    device sees the first and not the second.

    Args:
        system: where `sys` and `dev` are, for tests.
    """
    found = []
    for device in sorted(_children(system / "sys/class/infiniband")):
        nodes = [child.name for child in _children(device / "device/infiniband_verbs")]
        if any((system / "dev/infiniband" / node).exists() for node in nodes):
            found.append(device.name)
    return tuple(found)


def listed_rdma_devices(system: Path = SYSTEM) -> tuple[str, ...]:
    """Names of the RDMA devices that the kernel lists, whether or not this container may open them."""
    return tuple(sorted(child.name for child in _children(system / "sys/class/infiniband")))


def has_efa(system: Path = SYSTEM) -> bool:
    """Whether one of the RDMA devices is an Elastic Fabric Adapter."""
    for device in _children(system / "sys/class/infiniband"):
        try:
            if (device / "device/driver").resolve().name == "efa":
                return True
        except OSError:
            continue
    return False


def interface_of(address: str) -> str:
    """The network interface that carries an IPv4 address; empty when none does or the address is no IPv4 literal."""
    try:
        wanted = socket.inet_aton(address)
    except OSError:
        return ""
    if wanted[0] == 127:
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(
                    probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[: _NAME_BYTES - 1])
                )
            except OSError:
                continue  # an interface without an IPv4 address
            if answer[20:24] == wanted:
                return name
    return ""


def default_interface(routes: Path = Path("/proc/net/route")) -> str:
    """The interface of the IPv4 default route; empty when there is none."""
    try:
        lines = routes.read_text().splitlines()[1:]
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) > 7 and fields[1] == "00000000" and fields[7] == "00000000":
            return fields[0]
    return ""


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
