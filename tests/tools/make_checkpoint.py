"""Makes a checkpoint of any size and oddity, the same bytes for the same arguments: for tests, benchmarks and the demo.

python tests/tools/make_checkpoint.py OUT --size 1GiB --files 4 --tensors 200
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
STEP = 32 << 20
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


class Made(NamedTuple):
    """A tensor to be written: name, dtype, shape, bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int


def make_checkpoint(
    out: str | os.PathLike[str],
    *,
    size: int = 1 << 20,
    files: int = 1,
    tensors: int = 16,
    dtypes: Sequence[str] = ("BF16",),
    ranks: int = 0,
    seed: int = 0,
    odd: bool = False,
    sparse: bool = False,
    small_files: bool = True,
) -> Path:
    """Write a checkpoint directory.

    Args:
        out: the directory, made where it is missing.
        size: bytes of all tensors together, nearly.
        files: number of safetensors files (of each rank).
        tensors: number of tensors in all.
        dtypes: safetensors names, used in turn.
        ranks: when not 0, per-rank files `model-rank-{rank}-part-{part}.safetensors` instead of numbered ones.
        seed: another number makes other bytes.
        odd: add empty tensors, scalars, packed types and a name that is not ASCII.
        sparse: leave the bytes of tensors unwritten (zeros that take no room on the disk).
        small_files: add configs, a tokenizer, a file in a sub-directory and an empty one.

    Returns the directory.
    """
    rng = random.Random(seed)
    root = Path(out)
    root.mkdir(parents=True, exist_ok=True)
    names = (
        [f"model-rank-{rank}-part-{part}.safetensors" for rank in range(ranks) for part in range(files)]
        if ranks
        else ["model.safetensors"]
        if files == 1
        else [f"model-{number:05d}-of-{files:05d}.safetensors" for number in range(1, files + 1)]
    )
    plan = _tensors(rng, size, tensors, dtypes)
    per_file = [
        plan[len(plan) * number // len(names) : len(plan) * (number + 1) // len(names)] for number in range(len(names))
    ]
    if odd:
        per_file[0] += _odd_tensors()
    for number, (name, members) in enumerate(zip(names, per_file, strict=True)):
        write_safetensors(root / name, members, seed=seed * 100_003 + number, sparse=sparse)
    if small_files:
        _write_small_files(root, rng)
    if not ranks and files > 1:
        weight_map = {made.name: name for name, members in zip(names, per_file, strict=True) for made in members}
        index = {
            "metadata": {"total_size": sum(made.size for made in plan)},
            "weight_map": dict(sorted(weight_map.items())),
        }
        (root / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    return root


def write_safetensors(path: Path, tensors: Sequence[Made], *, seed: int = 0, sparse: bool = False) -> None:
    """Write one file: header, then the tensors' bytes, which depend on `seed` only."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for made in tensors:
        header[made.name] = {"dtype": made.dtype, "shape": made.shape, "data_offsets": [position, position + made.size]}
        position += made.size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        if sparse:
            file.truncate(file.tell() + position)
            return
        stream = blake3(seed.to_bytes(16, "little", signed=True))
        for start in range(0, position, STEP):
            file.write(stream.digest(length=min(STEP, position - start), seek=start))


def make_hub_cache(
    out: str | os.PathLike[str], source: Path, model: str, commit: str, *, absolute: bool = False
) -> Path:
    """Lay a checkpoint out as the hub's cache does: blobs by SHA-256, a snapshot of symbolic links to them, a ref.

    Returns the snapshot.
    """
    top = Path(out) / f"models--{model.replace('/', '--')}"
    snapshot = top / "snapshots" / commit
    (top / "blobs").mkdir(parents=True, exist_ok=True)
    (top / "refs").mkdir(exist_ok=True)
    (top / "refs" / "main").write_text(commit)
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        with open(file, "rb") as data:
            hasher = hashlib.sha256()
            while block := data.read(1 << 20):
                hasher.update(block)
        blob = top / "blobs" / hasher.hexdigest()
        if not blob.exists():
            os.link(file, blob)
        link = snapshot / file.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob.absolute() if absolute else os.path.relpath(blob, link.parent))
    return snapshot


def parse_size(text: str) -> int:
    """Bytes of a text such as `1GiB`, `90MB` or `4096`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?", text.strip().upper())
    if not match or match[2] not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 1GiB")
    return int(float(match[1]) * UNITS[match[2]])


def _tensors(rng: random.Random, size: int, count: int, dtypes: Sequence[str]) -> list[Made]:
    shares = [rng.randint(1, 8) for _ in range(count)]
    whole = sum(shares)
    made = []
    for number, share in enumerate(shares):
        dtype = dtypes[number % len(dtypes)]
        elements = max(8, size * share // whole * 8 // BITS[dtype] // 8 * 8)
        columns = 64 if elements % 64 == 0 else 8
        kind = ("self_attn.q_proj.weight", "mlp.gate_proj.weight", "mlp.down_proj.weight", "input_layernorm.weight")[
            number % 4
        ]
        shape = (elements // columns, columns)
        made.append(Made(f"model.layers.{number // 4}.{kind}", dtype, shape, elements * BITS[dtype] // 8))
    return made


def _odd_tensors() -> list[Made]:
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("BOOL", (3,)),
        ("F8_E4M3", (5, 3)),
        ("F8_E5M2", (7,)),
        ("F8_E8M0", (1, 9)),
        ("F4", (3, 6)),
        ("F6_E2M3", (4,)),
        ("F6_E3M2", (8,)),
        ("C64", (2,)),
        ("I64", ()),
        ("F32", ()),
        ("BF16", (0, 4096)),
        ("U16", (3,)),
        ("F64", (1, 1, 1)),
    ]
    made = []
    for number, (dtype, shape) in enumerate(shapes):
        elements = 1
        for dimension in shape:
            elements *= dimension
        made.append(Made(f"odd.{number}.模型", dtype, shape, elements * BITS[dtype] // 8))
    return made


def _write_small_files(root: Path, rng: random.Random) -> None:
    (root / "config.json").write_text(json.dumps({"architectures": ["TestModel"], "hidden_size": 64}, indent=2) + "\n")
    (root / "tokenizer.json").write_text(
        json.dumps({"vocabulary": [f"{rng.getrandbits(64):016x}" for _ in range(4000)]})
    )
    (root / ".gitattributes").write_text("*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    (root / "1_Pooling").mkdir(exist_ok=True)
    (root / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}\n')
    (root / "added_tokens.txt").write_bytes(b"")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument(
        "--size", type=parse_size, default=1 << 20, help="bytes of all tensors, such as 1GiB (default 1MiB)"
    )
    parser.add_argument("--files", type=int, default=1, help="safetensors files (of each rank)")
    parser.add_argument("--tensors", type=int, default=16, help="tensors in all")
    parser.add_argument("--dtype", default="BF16", help="safetensors types, with commas between, used in turn")
    parser.add_argument("--ranks", type=int, default=0, help="per-rank files for so many ranks")
    parser.add_argument("--seed", type=int, default=0, help="number that the bytes follow from")
    parser.add_argument("--odd", action="store_true", help="add empty, scalar and packed tensors")
    parser.add_argument("--sparse", action="store_true", help="leave the tensors' bytes unwritten")
    parser.add_argument("--no-small-files", action="store_true", help="weights only")
    given = parser.parse_args(arguments)
    dtypes = given.dtype.split(",")
    unknown = [dtype for dtype in dtypes if dtype not in BITS]
    if unknown or min(given.files, given.tensors) < 1 or given.ranks < 0:
        parser.error(f"unknown dtype {unknown[0]}" if unknown else "counts start at 1")
    root = make_checkpoint(
        given.out,
        size=given.size,
        files=given.files,
        tensors=given.tensors,
        dtypes=dtypes,
        ranks=given.ranks,
        seed=given.seed,
        odd=given.odd,
        sparse=given.sparse,
        small_files=not given.no_small_files,
    )
    total = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    sys.stdout.write(f"{root}: {total} bytes\n")


if __name__ == "__main__":
    main()
