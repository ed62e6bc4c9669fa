"""Where a caller may be dialled in turn.

Members of a pool see different lists while DNS lags. A peer that calls is alive, whatever the list says, and reading the same pieces from the
seed as it does is waste that a link prevents. What a caller says of its address is not believed: the host is that of its connection.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import unquote

from shardpool.discovery.base import Endpoint

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def caller_endpoint(announced: str, connection: str) -> Endpoint | None:
    """The endpoint that a caller announces (`host:port`), if its connection (gRPC's `ipv4:host:port`) comes from the same address."""
    said, came = _split(announced), _split(unquote(connection).partition(":")[2])
    if said is None or came is None or said[0] != came[0]:
        return None
    return Endpoint(str(said[0]), said[1])


def _split(target: str) -> tuple[_Address, int] | None:
    host, _, port = target.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        return None  # a name, a socket of the machine, or nothing
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address, number) if 0 < number < 65536 else None
