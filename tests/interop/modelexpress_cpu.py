"""ModelExpress 0.7.0 on a CPU: what it needs from a newer torch, and an accelerator whose memory is the host's."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import torch

# Names of dtypes that Debian's torch lacks and ModelExpress looks up when it is imported. No tensor here has one.
for _name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2", "uint16", "uint32", "uint64"):
    if not hasattr(torch, _name):
        setattr(torch, _name, _name)


class HostAccelerator:
    """Says that it is `cuda`, as sources and receivers have to agree, and keeps its tensors in host memory."""

    name = "cuda"
    torch_device_type = "cpu"
    nixl_mem_type = "DRAM"

    def set_device(self, device_id: int) -> None:
        """There is one."""

    def current_device(self) -> int:
        return 0

    def synchronize(self, device_id: int | None = None) -> None:
        """Host memory is coherent."""

    def empty_cache(self) -> None:
        """There is none."""

    def torch_device(self, device_id: int) -> Any:
        return torch.device("cpu")

    def is_accel_tensor(self, tensor: Any) -> bool:
        return tensor.device.type == "cpu"

    def supports_rdma_p2p(self) -> bool:
        return True

    def supports_pool_reg(self) -> bool:
        return False

    def supports_vmm(self) -> bool:
        return False

    def supports_gds(self) -> bool:
        return False


def raw_bytes(tensor: Any) -> bytes:
    """The memory of a contiguous tensor, whatever its dtype (numpy knows no bfloat16)."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def leave(code: int = 0) -> None:
    """End the process at once: ModelExpress's may crash in normal teardown."""
    sys.stdout.flush()
    os._exit(code)
