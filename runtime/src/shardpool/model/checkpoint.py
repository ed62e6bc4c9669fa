"""A published model as its seed shows it: the files, and what their headers say. No byte beyond headers is read."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn

from shardpool.errors import CheckpointError
from shardpool.model.base import Published, PublishedFile
from shardpool.model.limits import DEFAULT_LIMITS, Limits
from shardpool.model.names import path_fault, shown, tree_fault
from shardpool.model.safetensors import LENGTH_BYTES, Header, header_length, parse_header

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
_LONGEST_INDEX = 256 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A file of a model.

    Attributes:
        path: relative, POSIX.
        size: in bytes.
        header: of a safetensors file; None for any other.
        sha256: 64 hex digits, where the publisher states them; else empty.
    """

    path: str
    size: int
    header: Header | None = None
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Every file of a model, sorted by path."""

    files: tuple[CheckpointFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def tensor_count(self) -> int:
        """Tensors of all files."""
        return sum(len(file.header.names) for file in self.files if file.header)

    @property
    def sha256s(self) -> dict[str, str]:
        """The SHA-256 (hex) of each file of which the publisher states it."""
        return {file.path: file.sha256 for file in self.files if file.sha256}


def scan(seed: Published, limits: Limits = DEFAULT_LIMITS, concurrency: int = 8) -> Checkpoint:
    """Read and check the headers of a model.

    Args:
        seed: where it lies.
        limits: bounds on what it may hold.
        concurrency: headers that are read at once.

    Raises:
        CheckpointError: a file is not what it claims to be, or an index names what is not there; names the file.
        SeedError: the seed cannot be read.
    """
    listed = sorted(seed.files(), key=lambda file: file.path)
    _check_listing(listed, seed, limits)
    headers = _read_headers(seed, [file for file in listed if file.path.endswith(SUFFIX)], limits, concurrency)
    checkpoint = Checkpoint(
        tuple(CheckpointFile(file.path, file.size, headers.get(file.path), file.sha256) for file in listed)
    )
    if checkpoint.tensor_count > limits.tensors:
        _refuse(seed.describe(), f"has {checkpoint.tensor_count} tensors, more than {limits.tensors}")
    for file in listed:
        if file.path.endswith(INDEX_SUFFIX):
            _check_index(seed, file, headers)
    return checkpoint


def _check_listing(listed: Sequence[PublishedFile], seed: Published, limits: Limits) -> None:
    where = seed.describe()
    if not listed:
        _refuse(where, "has no files", "check the seed's path and revision")
    if len(listed) > limits.files:
        _refuse(where, f"has {len(listed)} files, more than {limits.files}")
    for file in listed:
        if fault := path_fault(file.path, limits.path_bytes):
            _refuse(where, f"names a file {shown(file.path)}, which {fault}")
        if file.size < 0:
            _refuse(where, f"states {file.size} bytes for {shown(file.path)}")
        if file.sha256 and not _SHA256.fullmatch(file.sha256):
            _refuse(where, f"states {shown(file.sha256)} as the SHA-256 of {shown(file.path)}")
    if fault := tree_fault(file.path for file in listed):
        _refuse(where, fault)
    total = sum(file.size for file in listed)
    if total > limits.total_bytes:
        _refuse(where, f"has files of {total} bytes in all, more than {limits.total_bytes}")


def _read_headers(
    seed: Published, files: Sequence[PublishedFile], limits: Limits, concurrency: int
) -> dict[str, Header]:
    """Read headers at once, then check them one by one: parsed JSON takes many times its bytes."""

    def prefix_of(file: PublishedFile) -> bytes:
        return _read(seed, file, 0, min(LENGTH_BYTES, file.size))

    def header_of(item: tuple[PublishedFile, int]) -> bytes:
        return _read(seed, item[0], LENGTH_BYTES, item[1])

    with ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="headers") as pool:
        prefixes = pool.map(prefix_of, files)
        lengths = [header_length(prefix, file.path, file.size) for prefix, file in zip(prefixes, files, strict=True)]
        if sum(lengths) > limits.header_bytes:
            _refuse(seed.describe(), f"has headers of {sum(lengths)} bytes in all, more than {limits.header_bytes}")
        found = pool.map(header_of, zip(files, lengths, strict=True))
        return {
            file.path: parse_header(data, file.path, file.size, limits) for file, data in zip(files, found, strict=True)
        }


def _read(seed: Published, file: PublishedFile, offset: int, length: int) -> bytes:
    data = bytearray(length)
    if data:
        seed.read_into(file.path, offset, memoryview(data))
    return bytes(data)


def _check_index(seed: Published, file: PublishedFile, headers: Mapping[str, Header]) -> None:
    """Every tensor that the index names lies in the file that it names, and in no other file of the index."""
    if not 0 < file.size <= _LONGEST_INDEX:
        _refuse(file.path, f"is an index of {file.size} bytes, which is not 1 to {_LONGEST_INDEX}")
    data = _read(seed, file, 0, file.size)
    try:
        weight_map = json.loads(data.decode()).get("weight_map")
    except (ValueError, RecursionError, AttributeError) as error:
        _refuse(file.path, f"is an index that is not a JSON object: {error}")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        _refuse(file.path, "is an index without a `weight_map` of tensor names to file names")
    directory = posixpath.dirname(file.path)
    located: dict[str, str] = {}
    for shard in sorted(set(weight_map.values())):
        path = posixpath.join(directory, shard)
        header = headers.get(path) if not path_fault(path, 1 << 16) else None
        if header is None:
            _refuse(
                file.path, f"names the file {shown(shard)}, which is not there", "fetch the missing file into the seed"
            )
        for name in header.names:
            other = located.setdefault(name, shard)
            if other != shard:
                _refuse(file.path, f"leads to tensor {shown(name)} both in {shown(other)} and in {shown(shard)}")
    for name, shard in weight_map.items():
        if located.get(name) != shard:
            _refuse(file.path, f"names tensor {shown(name)} in {shown(shard)}, which does not have it")


def _refuse(path: str, what: str, hint: str = "publish the file again, or fetch it anew into the seed") -> NoReturn:
    raise CheckpointError(f"{shown(path)} {what}", hint=hint)
