"""What tests of the model need: a seed in memory, headers from scratch, stores that get filled."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from shardpool.identity import SourceIdentity
from shardpool.model.catalog import Catalog
from shardpool.model.checkpoint import scan
from shardpool.model.layout import shard_catalog
from shardpool.model.store import ShardStore
from shardpool.seed.base import SeedFile
from shardpool.seed.directory import DirectorySeed


class MemorySeed:
    """A seed of a few files in memory. `reads` records path, offset and length of each read."""

    def __init__(self, files: Mapping[str, bytes], sizes: Mapping[str, int] | None = None) -> None:
        self.contents = dict(files)
        self.sizes = {path: len(data) for path, data in files.items()} | dict(sizes or {})
        self.sha256s: dict[str, str] = {}
        self.reads: list[tuple[str, int, int]] = []
        self._lock = threading.Lock()

    def describe(self) -> str:
        return "memory"

    def files(self) -> list[SeedFile]:
        return [SeedFile(path, size, self.sha256s.get(path, "")) for path, size in self.sizes.items()]

    def read_into(self, path: str, offset: int, buffer: memoryview) -> None:
        with self._lock:
            self.reads.append((path, offset, len(buffer)))
        data = self.contents[path][offset : offset + len(buffer)]
        assert len(data) == len(buffer), f"read past the contents of {path}"
        buffer[:] = data

    def close(self) -> None:
        """Nothing is held."""


def safetensors(header: Any, data: bytes = b"", *, pad: int = 0) -> bytes:
    """A file of a header (an object, or text as it is) and data."""
    text = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    text += b" " * pad
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str, shape: list[Any], begin: Any, end: Any) -> dict[str, Any]:
    """A tensor of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def fill(store: ShardStore, source: Path, pieces: range | None = None) -> None:
    """Bring pieces (all that are missing by default) from a directory into an opened store, verified and recorded."""
    catalog = store.catalog
    for piece in range(catalog.pieces) if pieces is None else pieces:
        for span, view in zip(catalog.piece_spans(piece), store.destination(piece), strict=True):
            with open(source / catalog.files[span.file].path, "rb") as file:
                file.seek(span.offset)
                assert file.readinto(view) == span.length
        store.record(piece, store.digest(piece))


def digests_of(catalog: Catalog, source: Path) -> dict[int, bytes]:
    """What the pieces' digests must be, from the files of a directory."""
    found = {}
    for piece in range(catalog.pieces):
        hasher = blake3()
        for span in catalog.piece_spans(piece):
            with open(source / catalog.files[span.file].path, "rb") as file:
                file.seek(span.offset)
                hasher.update(file.read(span.length))
        found[piece] = hasher.digest()
    return found


def contents_of(directory: Path) -> dict[str, bytes]:
    """Every file of a directory, by relative path."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def catalogs_of(source: Path, layout: str = "whole", world: int = 1, piece_size: int = 0) -> list[Catalog]:
    """The outline of each rank."""
    checkpoint = scan(DirectorySeed(source))
    return [shard_catalog(checkpoint, layout, world, rank, piece_size) for rank in range(world)]


IDENTITY = SourceIdentity(model_name="acme/tiny", revision="a" * 40)
OTHER_IDENTITY = SourceIdentity(model_name="acme/tiny", revision="b" * 40)
