"""A shard's outline: pieces, spans, and the one encoding of it."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_parts import catalogs_of

from shardpool.errors import CatalogError
from shardpool.model.catalog import KIB, MIB, Catalog, Extent, FileEntry, Span, Tensor, piece_size_for
from shardpool.model.limits import Limits

HEADER = struct.Struct("<8sIIIQQIIIIIIQQ")
FIELDS = (
    *("magic", "layout", "world", "rank", "piece_size", "size", "files", "extents", "tensors", "kinds"),
    *("dimensions", "cuts", "path_bytes", "name_bytes"),
)


def small(**changes: object) -> Catalog:
    """A catalog of two files and three tensors."""
    fields: dict[str, object] = {
        "layout": "whole",
        "world": 1,
        "rank": 0,
        "files": (FileEntry("a.safetensors", 100), FileEntry("b/config.json", 20), FileEntry("empty", 0)),
        "extents": (Extent(0, 0, 0, 100), Extent(100, 1, 0, 20)),
        "tensors": (
            Tensor("t1", "BF16", (2, 5), 0, 40, 20),
            Tensor("none", "U8", (0,), 0, 60, 0),
            Tensor("t2", "F4", (80,), 0, 60, 40),
        ),
        "piece_size": 32,
    }
    return Catalog(**{**fields, **changes})  # type: ignore[arg-type]


def patched(encoded: bytes, **changes: int) -> bytes:
    """An encoding with other numbers in its header."""
    values = dict(zip(FIELDS, HEADER.unpack_from(encoded), strict=True)) | changes
    return HEADER.pack(*values.values()) + encoded[HEADER.size :]


@pytest.mark.parametrize(
    ("shard", "piece"),
    [
        (0, 256 * KIB),
        (90 * MIB, 256 * KIB),
        (1 << 30, MIB),
        (2_000_000_000, 2 * MIB),
        (16_000_000_000, 16 * MIB),
        (10**12, 16 * MIB),
        (384 * KIB * 1000, 256 * KIB),
        (384 * KIB * 1000 + 1000, 512 * KIB),
    ],
)
def test_a_piece_is_the_power_of_two_nearest_to_a_thousandth(shard: int, piece: int) -> None:
    assert piece_size_for(shard) == piece


def test_pieces_cover_the_shard_and_the_last_is_shorter() -> None:
    catalog = small()
    assert catalog.size == 120
    assert catalog.pieces == 4
    assert [catalog.piece_start(piece) for piece in range(4)] == [0, 32, 64, 96]
    assert [catalog.piece_length(piece) for piece in range(4)] == [32, 32, 32, 24]
    assert catalog.piece_spans(3) == [Span(0, 96, 4), Span(1, 0, 20)]
    for piece in (-1, 4):
        with pytest.raises(IndexError):
            catalog.piece_spans(piece)


@given(st.integers(0, 120), st.integers(0, 120))
def test_spans_hold_just_the_bytes_asked_for(start: int, length: int) -> None:
    catalog = small()
    if start + length > 120:
        with pytest.raises(IndexError):
            catalog.spans(start, length)
        return
    places = [(span.file, span.offset + index) for span in catalog.spans(start, length) for index in range(span.length)]
    assert places == [(0, at) if at < 100 else (1, at - 100) for at in range(start, start + length)]


def test_a_shard_without_bytes_has_no_pieces() -> None:
    catalog = Catalog("whole", 1, 0, (FileEntry("empty", 0),), ())
    assert catalog.pieces == 0
    assert catalog.spans(0, 0) == []
    assert Catalog.decode(catalog.encode()) == catalog


def test_an_outline_comes_back_as_it_was() -> None:
    catalog = small()
    decoded = Catalog.decode(catalog.encode())
    assert decoded.digest == catalog.digest
    assert (decoded.layout, decoded.world, decoded.rank, decoded.piece_size) == ("whole", 1, 0, 32)
    assert (decoded.files, decoded.extents) == (catalog.files, catalog.extents)
    assert list(decoded.tensors) == list(catalog.tensors)
    assert decoded.tensors[1] == Tensor("none", "U8", (0,), 0, 60, 0)
    assert decoded.tensors[-1].dtype == "F4"
    assert decoded.tensors[0:2] == list(catalog.tensors)[:2]
    with pytest.raises(IndexError):
        decoded.tensors[3]


def test_the_order_in_which_tensors_are_given_does_not_matter() -> None:
    catalog = small()
    assert small(tensors=tuple(reversed(list(catalog.tensors)))).digest == catalog.digest


@pytest.mark.parametrize(
    "change",
    [
        {"rank": 1, "world": 2, "layout": "sharded"},
        {"layout": "sharded"},
        {"piece_size": 64},
        {"files": (FileEntry("c.safetensors", 100), FileEntry("d", 20), FileEntry("empty", 0))},
        {"tensors": ()},
        {"tensors": (Tensor("t1", "F16", (2, 5), 0, 40, 20),)},
    ],
    ids=str,
)
def test_any_difference_is_a_difference_of_digests(change: dict[str, object]) -> None:
    assert small(**change).digest != small().digest
    assert small(**change) != small()


@pytest.mark.parametrize("layout", ["whole", "striped"])
def test_what_is_decoded_is_encoded_to_the_same_bytes(source: Path, layout: str) -> None:
    for catalog in catalogs_of(source, layout, 1 if layout == "whole" else 3):
        decoded = Catalog.decode(catalog.encode())
        afresh = Catalog(
            decoded.layout,
            decoded.world,
            decoded.rank,
            decoded.files,
            decoded.extents,
            list(decoded.tensors),
            decoded.piece_size,
        )
        assert afresh.encode() == catalog.encode()


@pytest.mark.parametrize(
    "change",
    [
        {"files": (FileEntry("a.safetensors", 100), FileEntry("../../x", 20), FileEntry("empty", 0))},
        {"files": (FileEntry("a.safetensors", 100), FileEntry("/etc/x", 20), FileEntry("empty", 0))},
        {"files": (FileEntry("a.safetensors", 100), FileEntry("b\\c", 20), FileEntry("empty", 0))},
        {"files": (FileEntry("C:x", 100), FileEntry("b", 20), FileEntry("empty", 0))},
        {"files": (FileEntry(".m.shardpool/marker", 100), FileEntry("b", 20), FileEntry("empty", 0))},
        {"files": (FileEntry("a", 100), FileEntry("a", 20), FileEntry("empty", 0))},
        {"files": (FileEntry("A", 100), FileEntry("a", 20), FileEntry("empty", 0))},
        {"files": (FileEntry("a", 100), FileEntry("a/b", 20), FileEntry("empty", 0))},
        {"files": (FileEntry("b", 100), FileEntry("a", 20), FileEntry("empty", 0))},
        {"files": (FileEntry("a\0b", 100), FileEntry("c", 20), FileEntry("empty", 0))},
        {"files": (FileEntry("x" * 2000, 100), FileEntry("y", 20), FileEntry("z", 0))},
        {"files": (FileEntry("a", 100), FileEntry("b", 10**13), FileEntry("empty", 0))},
        {"files": (FileEntry("a", 100), FileEntry("b", 2**63), FileEntry("empty", 0)), "layout": "striped"},
        {"files": (FileEntry("a", 100), FileEntry("b", 20), FileEntry("c", 7))},
        {"files": (FileEntry("a", 99), FileEntry("b", 21), FileEntry("empty", 0))},
        {"extents": (Extent(0, 0, 0, 100),), "files": (FileEntry("a", 100), FileEntry("b", 20), FileEntry("c", 0))},
        {
            "extents": (Extent(0, 0, 0, 60), Extent(60, 0, 50, 50), Extent(110, 1, 0, 20)),
            "tensors": (),
            "layout": "striped",
        },
        {
            "extents": (Extent(0, 0, 0, 60), Extent(60, 0, 60, 40), Extent(100, 1, 0, 20)),
            "tensors": (),
            "layout": "striped",
        },
        {"extents": (Extent(0, 1, 0, 20), Extent(20, 0, 0, 100)), "tensors": ()},
        {"extents": (Extent(0, 0, 10, 90), Extent(90, 1, 0, 20)), "tensors": ()},
        {"tensors": (Tensor("t", "U8", (20,), 0, 40, 20), Tensor("u", "U8", (20,), 0, 50, 20))},
        {"tensors": (Tensor("t", "U8", (20,), 0, 40, 20), Tensor("t", "U8", (20,), 0, 60, 20))},
        {"tensors": (Tensor("__metadata__", "U8", (20,), 0, 40, 20),)},
        {"tensors": (Tensor("x" * 65_536, "U8", (20,), 0, 40, 20),)},
        {"tensors": (Tensor("x\0y", "U8", (20,), 0, 40, 20),)},
        {"tensors": (Tensor("", "U8", (20,), 0, 40, 20), Tensor("b", "U8", (20,), 0, 60, 20))},
        {"tensors": (Tensor("t", "U8", (20,), 0, 40, 10),)},
        {"tensors": (Tensor("t", "U8", (20,), 0, 0, 21),)},
        {"tensors": (Tensor("t", "U8", (1,) * 40, 0, 0, 1),)},
        {"world": 2},
        {"world": 2, "rank": 2, "layout": "striped"},
        {"world": 70_000, "layout": "striped"},
        {"piece_size": 17 * MIB},
    ],
    ids=lambda change: str(change)[:60],
)
def test_an_outline_that_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    encoded = small(**change).encode()
    with pytest.raises(CatalogError) as refusal:
        Catalog.decode(encoded)
    assert str(refusal.value).isascii()
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": 10**13}, "10000000000000 bytes"),
        ({"size": 2**64 - 1}, "bytes"),
        ({"tensors": 10**7}, "10000000 tensors"),
        ({"tensors": 2**32 - 1}, "tensors"),
        ({"files": 2**32 - 1}, "files"),
        ({"extents": 2**32 - 1}, "extents"),
        ({"kinds": 2**32 - 1}, "kinds"),
        ({"kinds": 4}, "kinds"),
        ({"dimensions": 2**32 - 1}, "dimensions"),
        ({"cuts": 2**32 - 1}, "cut"),
        ({"path_bytes": 2**64 - 1}, "bytes of paths"),
        ({"name_bytes": 2**64 - 1}, "bytes of names"),
        ({"name_bytes": 1000}, "where its counts say"),
        ({"piece_size": 0}, "pieces of 0"),
        ({"piece_size": 2**63}, "pieces of"),
        ({"layout": 3}, "layout number 3"),
        ({"world": 0}, "world of 0"),
    ],
    ids=str,
)
def test_a_count_that_is_too_large_is_refused_before_anything_is_allocated(change: dict[str, int], said: str) -> None:
    encoded = patched(small().encode(), **change)
    tracemalloc.start()
    try:
        with pytest.raises(CatalogError, match=said):
            Catalog.decode(encoded)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_piece_of_one_byte_for_a_terabyte_is_refused() -> None:
    catalog = Catalog("whole", 1, 0, (FileEntry("a", 10**12),), (Extent(0, 0, 0, 10**12),), (), 1)
    with pytest.raises(CatalogError, match="pieces of 1 bytes"):
        Catalog.decode(catalog.encode())


def test_a_model_of_a_terabyte_with_long_lists_passes() -> None:
    shapes = [(7168, 2048 + number % 50) for number in range(20_000)]
    tensors, position = [], 4_000_000
    for number, shape in enumerate(shapes):
        length = shape[0] * shape[1] * 4
        tensors.append(Tensor(f"model.layers.{number}.mlp.experts.down_proj.weight", "F32", shape, 0, position, length))
        position += length
    catalog = Catalog("whole", 1, 0, (FileEntry("m.safetensors", position),), (Extent(0, 0, 0, position),), tensors)
    assert position > 10**12
    assert list(Catalog.decode(catalog.encode()).tensors)[-1] == tensors[-1]


def test_limits_can_be_narrower() -> None:
    encoded = small().encode()
    assert Catalog.decode(encoded, Limits(tensors=3)) == small()
    for limits in (
        Limits(tensors=2),
        Limits(files=2),
        Limits(total_bytes=119),
        Limits(name_bytes=1),
        Limits(encoded_bytes=50),
    ):
        with pytest.raises(CatalogError):
            Catalog.decode(encoded, limits)


def test_anything_after_the_end_is_refused() -> None:
    with pytest.raises(CatalogError):
        Catalog.decode(small().encode() + b"\0")


def test_an_outline_that_cannot_travel_is_refused_where_it_is_made() -> None:
    with pytest.raises(CatalogError):
        small(files=(FileEntry("a", 2**64), FileEntry("b", 20))).encode()
    with pytest.raises(CatalogError):
        small(layout="odd").encode()
    with pytest.raises(CatalogError):
        small(extents=(Extent(5, 0, 0, 100),))
    with pytest.raises(CatalogError):
        small(tensors=(Tensor("t", "U8", (20,), 1, 10, 20),))
    with pytest.raises(CatalogError):
        small(tensors=(Tensor("t", "F31", (20,), 0, 40, 20),))


def decoded_or_refused(data: bytes) -> Catalog | None:
    try:
        return Catalog.decode(data)
    except CatalogError:
        return None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mutated_outline_is_refused_or_means_what_its_bytes_say(data: st.DataObject) -> None:
    encoded = bytearray(small().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(encoded) - 1))
        encoded[position] = data.draw(st.integers(0, 255))
    decoded = decoded_or_refused(bytes(encoded))
    if decoded is not None:
        afresh = Catalog(
            decoded.layout,
            decoded.world,
            decoded.rank,
            decoded.files,
            decoded.extents,
            list(decoded.tensors),
            decoded.piece_size,
        )
        assert afresh.encode() == bytes(encoded), "one content has one encoding"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert decoded_or_refused(data) is None
    assert decoded_or_refused(small().encode()[: HEADER.size] + data) is None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8),
            st.integers(0, 300),
            st.integers(0, 3),
        ),
        max_size=12,
        unique_by=lambda row: row[0],
    )
)
def test_any_tensors_survive_the_encoding(rows: list[tuple[str, int, int]]) -> None:
    tensors, position = [], 64
    for name, size, gap in rows:
        tensors.append(Tensor(name, "U8", (size,), 0, position + gap, size))
        position += size + gap
    catalog = Catalog("whole", 1, 0, (FileEntry("m.safetensors", position),), (Extent(0, 0, 0, position),), tensors)
    decoded = Catalog.decode(catalog.encode())
    assert decoded.digest == catalog.digest
    assert sorted(decoded.tensors, key=lambda tensor: tensor.name) == sorted(tensors, key=lambda tensor: tensor.name)
