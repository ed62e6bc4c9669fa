"""The serving end of the NIXL transport: one agent whose registered memory is the shard and nothing else."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Sequence

from shardpool.errors import ConfigurationError, TransportError
from shardpool.log import logger
from shardpool.transport.mover import NixlOffer, OfferedRegion
from shardpool.transport.nixl_agent import Agent, prepare_environment, unique_name

LOG = logger(__name__)
DEVICE = 0
"""Number of the only "device" of host memory; a tensor's descriptor must say the same."""


class NixlSource:
    """Offers the regions of a shard for reading.

    Memory is registered read-only as far as the mapping goes: NIXL has no read-only registration, so give it mappings that only the
    kernel may write. Few large regions, never one a tensor: each costs 42 bytes of every receiver's metadata.

    Over TCP a read is answered by UCX in this process: if the process is frozen while receivers that had asked for bytes leave, UCX ends it
    when it wakes (it takes the failing answer for a bug of its own). Over RDMA nothing here runs for a read.

    Args:
        regions: `(start, length, address)`: `length` bytes of the shard from `start` lie at `address` of this process. Mapped until
            `close` returns.
        address: this pod's IPv4 address as told to peers; names the interface for TCP.
        listen_port: also open NIXL's own metadata listener there, for stock ModelExpress receivers. It is IPv4 only and knows no
            authentication. None leaves it closed.

    Raises:
        TransportError: NIXL cannot be used here, or the memory cannot be registered.
        ConfigurationError: the listener is asked for, and the address is no IPv4 address that receivers could dial.
    """

    def __init__(
        self,
        regions: Sequence[tuple[int, int, int]],
        *,
        address: str = "",
        listen_port: int | None = None,
    ) -> None:
        self._regions = tuple(
            OfferedRegion(start, length, place, DEVICE) for start, length, place in sorted(regions) if length
        )
        _check(self._regions)
        if listen_port is not None:
            _check_address(address)
        prepare_environment(address)
        self._lock = threading.Lock()
        self._offer: NixlOffer | None = None
        self.agent_name = unique_name("source")
        self._agent = Agent(self.agent_name, progress=True, listen_port=listen_port)
        try:
            if self._regions:
                self._agent.register(_blocks(self._regions))
            self._offer = NixlOffer(self.agent_name, self._agent.metadata(), self._regions)
        except BaseException:
            self._agent.close()
            raise
        self.metadata_endpoint = f"{address}:{listen_port}" if listen_port is not None else ""

    def offer(self) -> NixlOffer:
        """What a receiver with a lease may know: the agent's name and metadata, and where the shard lies.

        Raises:
            TransportError: the source was closed.
        """
        with self._lock:
            if self._offer is None:
                raise TransportError("the NIXL source is closed")
            return self._offer

    def close(self) -> None:
        """Take the memory back. End every lease first: a receiver that reads on reads memory that may be gone. May be repeated."""
        with self._lock:
            self._offer = None
        self._agent.close()


def _check(regions: Sequence[OfferedRegion]) -> None:
    end = 0
    for region in regions:
        if region.start < end or region.address <= 0:
            raise ValueError(f"regions overlap or have no address at byte {region.start} of the shard")
        end = region.start + region.length


def _check_address(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise ConfigurationError(
            f"NIXL's listener cannot be told to receivers as {address!r}",
            hint="set MX_WORKER_HOST to this pod's IPv4 address, or SHARDPOOL_NIXL_LISTENER=false",
        ) from None


def _blocks(regions: Sequence[OfferedRegion]) -> list[tuple[int, int]]:
    """Runs of memory to register: regions that touch in memory become one."""
    blocks: list[tuple[int, int]] = []
    for place, length in sorted((region.address, region.length) for region in regions):
        if blocks and place <= sum(blocks[-1]):
            first, held = blocks[-1]
            blocks[-1] = (first, max(held, place + length - first))
        else:
            blocks.append((place, length))
    return blocks


__all__ = ["DEVICE", "NixlSource"]
