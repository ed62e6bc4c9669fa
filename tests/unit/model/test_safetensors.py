"""Headers of safetensors files: exact, or refused by the file's name."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_parts import entry, safetensors

from shardpool.errors import CheckpointError
from shardpool.model.limits import Limits
from shardpool.model.safetensors import LENGTH_BYTES, Header, header_length, parse_header


def parse(file: bytes, size: int | None = None, limits: Limits | None = None) -> Header:
    size = len(file) if size is None else size
    length = header_length(file[:LENGTH_BYTES], "x.safetensors", size)
    return parse_header(file[8 : 8 + length], "x.safetensors", size, limits or Limits())


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        ("BOOL", [3], 3),
        ("U8", [2, 2], 4),
        ("I8", [1], 1),
        ("F8_E4M3", [3, 5], 15),
        ("F8_E5M2", [7], 7),
        ("F8_E8M0", [9], 9),
        ("I16", [2], 4),
        ("U16", [2], 4),
        ("F16", [2], 4),
        ("BF16", [2, 3], 12),
        ("I32", [1], 4),
        ("U32", [1], 4),
        ("F32", [1], 4),
        ("F64", [1], 8),
        ("I64", [1], 8),
        ("U64", [1], 8),
        ("C64", [2], 16),
        ("F4", [3, 2], 3),
        ("F6_E2M3", [4], 3),
        ("F6_E3M2", [8], 6),
        ("F32", [], 4),
        ("BF16", [0, 4096], 0),
        ("F4", [0], 0),
    ],
)
def test_every_type_has_its_size(dtype: str, shape: list[int], size: int) -> None:
    header = parse(safetensors({"t": entry(dtype, shape, 0, size)}, bytes(size)))
    assert header.kinds[0] == (dtype, tuple(shape), size)
    with pytest.raises(CheckpointError, match=r"x\.safetensors.*'t'"):
        parse(safetensors({"t": entry(dtype, shape, 0, size + 1)}, bytes(size + 1)))


def test_tensors_come_in_the_order_of_their_bytes() -> None:
    header = parse(
        safetensors(
            {
                "__metadata__": {"format": "pt"},
                "late": entry("U8", [4], 3, 7),
                "empty-b": entry("U8", [0], 3, 3),
                "empty-a": entry("U8", [0], 3, 3),
                "early": entry("U8", [3], 0, 3),
            },
            bytes(7),
            pad=5,
        )
    )
    assert header.names == ["early", "empty-a", "empty-b", "late"]
    assert [offset - header.data_start for offset in header.offsets] == [0, 3, 3, 3]


def test_a_file_without_tensors_is_a_file() -> None:
    assert parse(safetensors({})).names == []
    assert parse(safetensors({"__metadata__": {"a": "b"}})).names == []


ONE = {"t": entry("F32", [2], 0, 8)}


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (b"", "is empty"),
        (b"\0\0\0", "ends after 3 bytes"),
        (struct.pack("<Q", 2**63) + b"{}", "9223372036854775808"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "18446744073709551615"),
        (struct.pack("<Q", 0), "header of 0 bytes"),
        (struct.pack("<Q", 100) + b"{}", "header of 100 bytes"),
        (safetensors(ONE), "describes"),
        (safetensors(ONE, bytes(7)), "describes"),
        (safetensors(ONE, bytes(9)), "describes"),
        (safetensors("[]"), "begins with"),
        (safetensors(" {}"), "begins with"),
        (safetensors("{}x"), "JSON"),
        (safetensors('{"a"'), "JSON"),
        (safetensors('{"a":' * 50_000), "JSON"),
        (struct.pack("<Q", 3) + b"{\xff}", "JSON"),
        (safetensors('{"t":{"dtype":"U8","shape":[' + "9" * 5000 + '],"data_offsets":[0,1]}}'), "JSON"),
        (safetensors('{"t":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}'), "NaN"),
        (safetensors('{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{}}', b"x"), "'t' is there twice"),
        (
            safetensors('{"t":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"x"),
            "'dtype' is there twice",
        ),
        (safetensors({"t": entry("F31", [1], 0, 4)}, bytes(4)), "unknown"),
        (safetensors({"t": entry("F4", [3], 0, 2)}, bytes(2)), "whole bytes"),
        (safetensors({"t": entry("F6_E2M3", [5], 0, 4)}, bytes(4)), "whole bytes"),
        (safetensors({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 3, 7)}, bytes(7)), "overlaps"),
        (safetensors({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 0, 4)}, bytes(4)), "overlaps"),
        (safetensors({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 5, 9)}, bytes(9)), "hole of 1 bytes"),
        (safetensors({"a": entry("U8", [4], 1, 5)}, bytes(5)), "hole of 1 bytes"),
        (safetensors({"a": entry("U8", [4], 4, 0)}, bytes(4)), "at data offsets"),
        (safetensors({"a": entry("U8", [-4], 0, 4)}, bytes(4)), "not of 0 to"),
        (safetensors({"a": entry("U8", [4.0], 0, 4)}, bytes(4)), "number"),
        (safetensors({"a": entry("U8", [True], 0, 1)}, bytes(1)), "number"),
        (safetensors({"b": entry("U8", [4], 0, 4), "a": entry("U8", [4.0], 4, 8)}, bytes(8)), "'a' with a number"),
        (safetensors({"b": entry("U8", [1], 0, 1), "a": entry("U8", [True], 1, 2)}, bytes(2)), "'a' with a number"),
        (safetensors({"a": entry("U8", [4], -4, 0), "b": entry("U8", [4], 0, 4)}, bytes(4)), "overlaps"),
        (safetensors({"a": entry("U8", [4], 0, 4.0)}, bytes(4)), "number"),
        (safetensors({"a": entry("U8", [4], 0, False)}, bytes(4)), "number"),
        (safetensors({"a": entry("U8", ["4"], 0, 4)}, bytes(4)), "number"),
        (safetensors({"a": entry("U8", [2**63], 0, 4)}, bytes(4)), "not of 0 to"),
        (safetensors({"a": entry("U8", [2**62, 2**62], 0, 4)}, bytes(4)), "at data offsets"),
        (safetensors({"a": entry("U8", [1] * 33, 0, 1)}, bytes(1)), "over 32 dimensions"),
        (safetensors({"a": {"dtype": "U8", "shape": [1]}}, bytes(1)), "other fields"),
        (safetensors({"a": entry("U8", [1], 0, 1) | {"x": 1}}, bytes(1)), "other fields"),
        (safetensors({"a": 1}), "other fields"),
        (safetensors({"a": {"dtype": 1, "shape": [1], "data_offsets": [0, 1]}}, bytes(1)), "dtype"),
        (safetensors({"a": {"dtype": "U8", "shape": 1, "data_offsets": [0, 1]}}, bytes(1)), "shape"),
        (safetensors({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}}, bytes(1)), "pair"),
        (safetensors({"__metadata__": entry("U8", [1], 0, 1)}, bytes(1)), "reserved name"),
        (safetensors({"__metadata__": "x"}), "reserved name"),
        (safetensors({"": entry("U8", [1], 0, 1)}, bytes(1)), "name"),
        (safetensors({"a\0b": entry("U8", [1], 0, 1)}, bytes(1)), "NUL"),
        (safetensors({"a" * 5000: entry("U8", [1], 0, 1)}, bytes(1)), "5000 bytes"),
        (safetensors('{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"), "surrogate"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\n", "Git LFS pointer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_such_a_file_is_refused_by_name(file: bytes, said: str) -> None:
    with pytest.raises(CheckpointError) as refusal:
        parse(file)
    assert "'x.safetensors'" in str(refusal.value)
    assert said in str(refusal.value)
    assert len(str(refusal.value)) < 600


def test_more_tensors_than_the_limit_are_refused() -> None:
    file = safetensors({str(number): entry("U8", [1], number, number + 1) for number in range(11)}, bytes(11))
    assert len(parse(file, limits=Limits(tensors=11)).names) == 11
    with pytest.raises(CheckpointError, match="11 tensors, more than 10"):
        parse(file, limits=Limits(tensors=10))


@given(
    st.lists(
        st.tuples(st.sampled_from(["U8", "BF16", "F4", "F64"]), st.lists(st.integers(0, 5), max_size=3)), max_size=12
    ),
    st.randoms(use_true_random=False),
)
def test_whatever_lies_without_holes_is_read_back(tensors: list[tuple[str, list[int]]], rng: Any) -> None:
    bits = {"U8": 8, "BF16": 16, "F4": 4, "F64": 64}
    header, position = {}, 0
    for number, (dtype, shape) in enumerate(tensors):
        whole = [*shape, 2] if dtype == "F4" else shape
        size = math.prod(whole) * bits[dtype]
        header[f"t{number}"] = entry(dtype, whole, position, position + size // 8)
        position += size // 8
    shuffled = list(header.items())
    rng.shuffle(shuffled)
    parsed = parse(safetensors(dict(shuffled), bytes(position)))
    found = {
        name: (parsed.kinds[code].dtype, list(parsed.kinds[code].shape), offset - parsed.data_start)
        for name, code, offset in zip(parsed.names, parsed.kind_of, parsed.offsets, strict=True)
    }
    assert found == {name: (told["dtype"], told["shape"], told["data_offsets"][0]) for name, told in header.items()}


def parsed_or_refused(file: bytes) -> Header | None:
    """The header, or None where it was refused as it must be: typed and by name."""
    try:
        return parse(file)
    except CheckpointError as refusal:
        if "'x.safetensors'" not in str(refusal):
            raise
        return None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5), JSON | st.fixed_dictionaries({"dtype": JSON, "shape": JSON, "data_offsets": JSON})
    )
)
def test_any_json_is_read_or_refused(header: dict[str, Any]) -> None:
    file = safetensors(json.dumps(header))
    parsed = parsed_or_refused(file)
    assert parsed is None or len(parsed.names) == len(header.keys() - {"__metadata__"})


@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_are_read_or_refused(data: bytes, length: int) -> None:
    parsed = parsed_or_refused(length.to_bytes(8, "little") + data)
    assert parsed is None or parsed.data_start == 8 + length
