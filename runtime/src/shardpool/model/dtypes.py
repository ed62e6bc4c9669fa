"""The element types of safetensors: how many bits each takes, its number in an encoded catalog, its name in torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

# The order is part of the encoded catalog: append only.
BITS: dict[str, int] = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
}
DTYPES: tuple[str, ...] = tuple(BITS)
CODES: dict[str, int] = {name: code for code, name in enumerate(DTYPES)}

_TORCH = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
    "F4": "float4_e2m1fn_x2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}


def torch_name(dtype: str) -> str:
    """The name with prefix that a tensor descriptor carries, such as `torch.bfloat16`.

    Types that torch has no name for (packed 6-bit floats) are bytes to it: `torch.uint8`.
    """
    return f"torch.{_TORCH.get(dtype, 'uint8')}"


def size_in_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a tensor; 4- and 6-bit elements are packed. An empty shape is a scalar.

    Raises ValueError for an unknown type, and where the elements do not fill whole bytes.
    """
    bits = BITS.get(dtype)
    if bits is None:
        raise ValueError(f"its dtype {dtype[:40]!a} is unknown")
    total = math.prod(shape) * bits
    if total % 8:
        raise ValueError(f"{math.prod(shape)} elements of {bits} bits do not fill whole bytes")
    return total // 8
