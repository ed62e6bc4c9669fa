"""What a source tells receivers of the ModelExpress contract about its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from shardpool.wire import p2p


@dataclass(frozen=True, slots=True)
class PublishedTensor:
    """`address` is where the tensor lies in this process, `size` is in bytes, `dtype` is torch's name with its prefix (`torch.bfloat16`)."""

    name: str
    address: int
    size: int
    dtype: str
    device: int = 0


@dataclass(frozen=True)
class Publication:
    """A published shard. `tensors` is called when a manifest is first asked for: most pools are never asked.

    `metadata_endpoint` is the `IPv4:port` of NIXL's own listener and `agent_name` the agent's exact name, both empty without it;
    `accelerator` is `cuda`, `xpu` or empty; an empty `worker_id` is left out of answers.
    """

    mx_source_id: str
    worker_rank: int
    tensors: Callable[[], Iterable[PublishedTensor]]
    metadata_endpoint: str = ""
    agent_name: str = ""
    accelerator: str = ""
    worker_id: str = ""

    @cached_property
    def manifest(self) -> bytes:
        """The serialized GetTensorManifestResponse."""
        response = p2p.GetTensorManifestResponse(
            tensors=[
                p2p.TensorDescriptor(
                    name=tensor.name, addr=tensor.address, size=tensor.size, device_id=tensor.device, dtype=tensor.dtype
                )
                for tensor in self.tensors()
            ],
            mx_source_id=self.mx_source_id,
            metadata_endpoint=self.metadata_endpoint,
            agent_name=self.agent_name,
            worker_rank=self.worker_rank,
            accelerator=self.accelerator,
        )
        if self.worker_id:
            response.worker_id = self.worker_id
        return response.SerializeToString()
