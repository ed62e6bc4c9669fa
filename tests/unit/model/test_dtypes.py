"""Element types: sizes and names."""

from __future__ import annotations

import pytest

from shardpool.model.dtypes import CODES, size_in_bytes, torch_name


def test_numbers_in_encoded_catalogs_never_change() -> None:
    assert [CODES[name] for name in ("BOOL", "BF16", "C64", "F4", "F6_E2M3", "F6_E3M2")] == [0, 9, 16, 17, 18, 19]


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("BF16", "torch.bfloat16"),
        ("F8_E4M3", "torch.float8_e4m3fn"),
        ("F8_E8M0", "torch.float8_e8m0fnu"),
        ("F4", "torch.float4_e2m1fn_x2"),
        ("C64", "torch.complex64"),
        ("BOOL", "torch.bool"),
        ("F6_E2M3", "torch.uint8"),
    ],
)
def test_a_descriptor_names_types_as_torch_does(dtype: str, name: str) -> None:
    assert torch_name(dtype) == name


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown"):
        size_in_bytes("F7", (1,))
