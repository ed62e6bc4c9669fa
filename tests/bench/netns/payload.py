"""The model that everybody moves: random bytes in the shape of a published checkpoint, and the check that a copy equals it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from netns.machine import BenchError
from shardpool.model.catalog import piece_size_for

MODEL = "bench/swarm"
LARGE = "model.safetensors"
TENSOR_BYTES = 4 << 20
CHUNK = 4 << 20


@dataclass(frozen=True)
class Payload:
    """A model directory: `sizes`, `digests` (BLAKE3) and `sha256` (hex) by file name."""

    directory: Path
    sizes: Mapping[str, int]
    digests: Mapping[str, bytes]
    sha256: Mapping[str, str]
    revision: str

    @property
    def size(self) -> int:
        """Bytes of one copy."""
        return sum(self.sizes.values())

    @property
    def piece_bytes(self) -> int:
        """What shardpool takes for a piece of this model; BitTorrent's are as large."""
        return piece_size_for(self.size)

    def check(self, copy: Path) -> None:
        """Raise BenchError unless a copy holds these files, byte for byte, and no others."""
        found = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
        if found != sorted(self.sizes):
            raise BenchError(f"{copy} holds {found}, not {sorted(self.sizes)}")
        for name, digest in self.digests.items():
            if _digest(copy / name) != digest:
                raise BenchError(f"{copy / name} differs from the original")


def make_payload(directory: Path, size: int) -> Payload:
    """Write a model of about `size` bytes: one safetensors file of random bf16 tensors and two small files."""
    directory.mkdir(parents=True)
    tensors = max(1, size // TENSOR_BYTES)
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for number in range(tensors):
        entries[f"model.layers.{number}.weight"] = {
            "dtype": "BF16",
            "shape": [TENSOR_BYTES // 2],
            "data_offsets": [number * TENSOR_BYTES, (number + 1) * TENSOR_BYTES],
        }
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with (directory / LARGE).open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(tensors):
            file.write(os.urandom(TENSOR_BYTES))
    (directory / "config.json").write_text(json.dumps({"architectures": ["Bench"], "torch_dtype": "bfloat16"}))
    (directory / "tokenizer.json").write_bytes(os.urandom(100_000).hex().encode())
    names = sorted(path.name for path in directory.iterdir())
    digests = {name: _digest(directory / name) for name in names}
    revision = hashlib.sha1(b"".join(digests[name] for name in names), usedforsecurity=False).hexdigest()
    sizes = {name: (directory / name).stat().st_size for name in names}
    return Payload(directory, sizes, digests, {name: _sha256(directory / name) for name in names}, revision)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(path: Path) -> bytes:
    hasher = blake3()
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            hasher.update(block)
    return hasher.digest()
