"""Named host buffers as the destination of tensors: where they lie, how large they are, what they hold."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from shardpool.errors import ConfigurationError

# Element formats of the buffer protocol to torch's names. Bytes ("B", "b", "c") say nothing of what they will hold.
_TORCH_NAMES = {
    "?": "torch.bool",
    "e": "torch.float16",
    "f": "torch.float32",
    "d": "torch.float64",
    "Zf": "torch.complex64",
    "Zd": "torch.complex128",
}
_INTEGERS = {"h": True, "i": True, "l": True, "q": True, "H": False, "I": False, "L": False, "Q": False}


@dataclass(frozen=True, slots=True)
class HostBuffer:
    """A destination. `dtype` is torch's name with its prefix, empty where it may be anything; `owner` keeps the memory where it is."""

    address: int
    size: int
    dtype: str
    owner: Any


def host_buffers(buffers: Mapping[str, Any], dtypes: Mapping[str, str]) -> dict[str, HostBuffer]:
    """Look at each buffer: anything writable and contiguous with the buffer protocol (numpy arrays too), or a torch tensor on the CPU.

    Args:
        buffers: by tensor name.
        dtypes: torch's names (`torch.bfloat16`) for buffers that cannot say it themselves; they win over what a buffer says.

    Raises:
        ConfigurationError: naming every buffer that cannot be written to.
    """
    found: dict[str, HostBuffer] = {}
    mistakes = [f"{name}: a dtype but no buffer" for name in sorted(dtypes.keys() - buffers.keys())]
    for name, buffer in buffers.items():
        try:
            seen = _torch_tensor(buffer) if hasattr(buffer, "data_ptr") else _plain_buffer(buffer)
        except (TypeError, ValueError, BufferError) as error:
            mistakes.append(f"{name}: {error}")
            continue
        dtype = dtypes.get(name, seen.dtype)
        found[name] = HostBuffer(seen.address, seen.size, dtype, seen.owner)
    mistakes.extend(_overlaps(found))
    if mistakes:
        raise ConfigurationError(
            f"{len(mistakes)} buffer(s) cannot be used: {'; '.join(mistakes)}",
            hint="give writable, contiguous host memory, one buffer a tensor",
        )
    return found


def _torch_tensor(tensor: Any) -> HostBuffer:
    if tensor.device.type != "cpu":
        raise ValueError(f"on {tensor.device}, not in host memory")
    if not tensor.is_contiguous():
        raise ValueError("not contiguous")
    return HostBuffer(int(tensor.data_ptr()), tensor.numel() * tensor.element_size(), str(tensor.dtype), tensor)


def _plain_buffer(buffer: Any) -> HostBuffer:
    view = memoryview(buffer)
    if view.readonly:
        raise ValueError("read-only")
    if not view.c_contiguous:
        raise ValueError("not contiguous")
    dtype = _torch_name(view.format, view.itemsize)
    if not view.nbytes:
        return HostBuffer(0, 0, dtype, view)
    flat = (ctypes.c_char * view.nbytes).from_buffer(view.cast("B") if view.ndim else view)
    return HostBuffer(ctypes.addressof(flat), view.nbytes, dtype, flat)


def _torch_name(element: str, size: int) -> str:
    element = element.lstrip("@=<>")
    if element in _INTEGERS:
        return f"torch.{'int' if _INTEGERS[element] else 'uint'}{8 * size}"
    return _TORCH_NAMES.get(element, "")


def _overlaps(buffers: Mapping[str, HostBuffer]) -> list[str]:
    placed = sorted((buffer.address, buffer.size, name) for name, buffer in buffers.items() if buffer.size)
    return [
        f"{name}: shares memory with {before}"
        for (place, size, before), (following, _, name) in pairwise(placed)
        if following < place + size
    ]
