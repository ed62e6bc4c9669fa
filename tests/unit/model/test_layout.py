"""Which bytes a rank holds: together every byte once, cut where tensors meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_parts import MemorySeed, catalogs_of, entry, safetensors

from shardpool.errors import CheckpointError, ConfigurationError
from shardpool.model.catalog import Catalog
from shardpool.model.checkpoint import Checkpoint, scan
from shardpool.model.layout import rank_of_file, shard_catalog


def ranges(catalog: Catalog) -> list[tuple[str, int, int]]:
    return [(catalog.files[e.file].path, e.offset, e.offset + e.length) for e in catalog.extents]


def weights(sizes: list[int], name: str = "t") -> bytes:
    header, position = {}, 0
    for number, size in enumerate(sizes):
        header[f"{name}{number}"] = entry("U8", [size], position, position + size)
        position += size
    return safetensors(header, bytes(position))


def model(files: dict[str, bytes]) -> Checkpoint:
    return scan(MemorySeed(files))


def test_whole_holds_every_file(source: Path) -> None:
    (catalog,) = catalogs_of(source)
    assert ranges(catalog) == [(entry.path, 0, entry.size) for entry in catalog.files if entry.size]
    assert [entry.path for entry in catalog.files if entry.size == 0] == ["added_tokens.txt"]


@pytest.mark.parametrize(
    ("layout", "world", "rank"), [("whole", 2, 0), ("striped", 2, 2), ("striped", 2, -1), ("odd", 1, 0)]
)
def test_a_layout_that_contradicts_its_world_is_refused(source: Path, layout: str, world: int, rank: int) -> None:
    with pytest.raises(ConfigurationError):
        shard_catalog(scan(MemorySeed({"a": b"x"})), layout, world, rank)


@pytest.mark.parametrize("world", [1, 2, 3, 7, 64])
def test_stripes_hold_every_byte_once(source: Path, world: int) -> None:
    catalogs = catalogs_of(source, "striped", world)
    (whole,) = catalogs_of(source)
    held: dict[str, list[tuple[int, int]]] = {}
    for catalog in catalogs:
        for path, low, high in ranges(catalog):
            held.setdefault(path, []).append((low, high))
    for file in whole.files:
        position = 0
        for low, high in sorted(held.get(file.path, [])):
            assert low == position, f"{file.path} at {position}"
            position = high
        assert position == file.size
    assert sum(catalog.size for catalog in catalogs) == whole.size
    names = [tensor.name for catalog in catalogs for tensor in catalog.tensors if not catalog.table.cuts]
    assert len(names) == len(set(names))


def test_stripes_are_nearly_equal_and_cut_between_tensors() -> None:
    checkpoint = model({"m.safetensors": weights([10_000] * 100), "config.json": b"{}"})
    catalogs = [shard_catalog(checkpoint, "striped", 4, rank) for rank in range(4)]
    assert all(24 <= len(catalog.tensors) <= 26 for catalog in catalogs)
    assert max(catalog.size for catalog in catalogs) - min(catalog.size for catalog in catalogs) <= 20_000
    assert not any(catalog.table.cuts for catalog in catalogs)


def test_small_files_are_rank_0s_and_count_in_its_share() -> None:
    checkpoint = model({"m.safetensors": weights([1000] * 100), "z.json": bytes(40_000), "empty": b""})
    first, second = (shard_catalog(checkpoint, "striped", 2, rank) for rank in range(2))
    assert {entry.path for entry in first.files} == {"empty", "m.safetensors", "z.json"}
    assert {entry.path for entry in second.files} == {"m.safetensors"}
    assert abs(first.size - second.size) < 2000


def test_a_tensor_larger_than_two_shares_is_cut_on_whole_elements() -> None:
    checkpoint = model({"m.safetensors": weights([100, 10_000_000, 100])})
    catalogs = [shard_catalog(checkpoint, "striped", 4, rank) for rank in range(4)]
    parts = [tensor for catalog in catalogs for tensor in catalog.tensors if tensor.name == "t1"]
    assert [part.shape for part in parts] == [(10_000_000,)] * 4
    assert sum(part.length for part in parts) == 10_000_000
    assert all(part.length % 4096 == 0 for part in parts[:-1])
    assert max(catalog.size for catalog in catalogs) - min(catalog.size for catalog in catalogs) < 10_000
    assert all(Catalog.decode(catalog.encode()) == catalog for catalog in catalogs)


def test_a_tensor_of_up_to_two_shares_stays_whole() -> None:
    checkpoint = model({"m.safetensors": weights([4000, 1000, 1000])})
    catalogs = [shard_catalog(checkpoint, "striped", 3, rank) for rank in range(3)]
    assert not any(catalog.table.cuts for catalog in catalogs)


def test_more_ranks_than_bytes_leave_empty_shards() -> None:
    checkpoint = model({"config.json": b"{}"})
    catalogs = [shard_catalog(checkpoint, "striped", 4, rank) for rank in range(4)]
    assert [catalog.size for catalog in catalogs] == [2, 0, 0, 0]
    assert [catalog.pieces for catalog in catalogs] == [1, 0, 0, 0]
    assert Catalog.decode(catalogs[3].encode()).digest == catalogs[3].digest


def test_sharded_holds_a_ranks_files_and_the_common_ones(per_rank_source: Path) -> None:
    first, second = catalogs_of(per_rank_source, "sharded", 2)
    common = {".gitattributes", "1_Pooling/config.json", "added_tokens.txt", "config.json", "tokenizer.json"}
    assert {e.path for e in first.files} == common | {f"model-rank-0-part-{part}.safetensors" for part in (0, 1)}
    assert {e.path for e in second.files} == common | {f"model-rank-1-part-{part}.safetensors" for part in (0, 1)}


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("model-rank-3-part-0.safetensors", 3),
        ("sub/model-rank-12-part-7.safetensors", 12),
        ("model-rank-3-part-0.bin", None),
        ("xmodel-rank-3-part-0.safetensors", None),
        ("model-00001-of-00002.safetensors", None),
    ],
)
def test_the_rank_of_a_file_is_in_its_name(path: str, rank: int | None) -> None:
    assert rank_of_file(path) == rank


@pytest.mark.parametrize(
    ("names", "world", "said"),
    [
        (["config.json"], 2, "there are none"),
        (["model-rank-0-part-0.safetensors"], 2, "files for ranks 0"),
        (["model-rank-0-part-0.safetensors", "model-rank-1-part-0.safetensors"], 1, "files for ranks 0, 1"),
        (["model-rank-0-part-1.safetensors"], 1, "part 0 of rank 0 is missing"),
    ],
)
def test_per_rank_files_that_do_not_fit_the_world_are_refused(names: list[str], world: int, said: str) -> None:
    checkpoint = model({name: weights([4]) if name.endswith("tensors") else b"{}" for name in names})
    with pytest.raises(CheckpointError, match=said):
        shard_catalog(checkpoint, "sharded", world, 0)


@settings(max_examples=60, deadline=None)
@given(
    files=st.lists(st.lists(st.integers(0, 30_000), max_size=6), min_size=1, max_size=4),
    opaque=st.integers(0, 5000),
    world=st.integers(1, 9),
)
def test_stripes_partition_any_model(files: list[list[int]], opaque: int, world: int) -> None:
    contents = {f"m{number}.safetensors": weights(sizes, f"f{number}.") for number, sizes in enumerate(files)}
    checkpoint = model({**contents, "config.json": bytes(opaque)})
    catalogs = [shard_catalog(checkpoint, "striped", world, rank) for rank in range(world)]
    held: dict[str, int] = {}
    ends: dict[str, int] = {}
    for catalog in catalogs:
        assert Catalog.decode(catalog.encode()) == catalog
        for path, low, high in ranges(catalog):
            assert low == ends.get(path, 0)
            ends[path] = high
        for tensor in catalog.tensors:
            held[tensor.name] = held.get(tensor.name, 0) + tensor.length
    assert ends == {path: len(data) for path, data in contents.items()} | ({"config.json": opaque} if opaque else {})
    assert held == {f"f{f}.{number}": size for f, sizes in enumerate(files) for number, size in enumerate(sizes)}
