"""The rule that maps files to shards: `whole`, `striped`, `sharded`."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from shardpool.errors import CheckpointError, ConfigurationError
from shardpool.model.catalog import Catalog, Extent, FileEntry
from shardpool.model.checkpoint import Checkpoint, CheckpointFile
from shardpool.model.tensors import Kind, TensorTable

SMALL_FILE = 64 << 20
_RANK_FILE = re.compile(r"(?:.*/)?model-rank-(\d+)-part-(\d+)\.safetensors")
_CUT_ALIGNMENT = (
    4096  # of a cut inside a tensor, counted from its start: whole elements of any type, whole pages mostly
)


def shard_catalog(checkpoint: Checkpoint, layout: str, world: int, rank: int, piece_size: int = 0) -> Catalog:
    """The outline of one rank's shard. The same files give the same outline everywhere.

    Args:
        checkpoint: the model's files.
        layout: `whole`, `striped` or `sharded`.
        world: number of parts of a replica.
        rank: which part.
        piece_size: bytes; 0 for the size that the shard's own size asks for.

    Raises:
        CheckpointError: the files do not fit the layout and world.
        ConfigurationError: layout, world and rank contradict each other.
    """
    if not 0 <= rank < world:
        raise ConfigurationError(f"rank {rank} is not in a world of {world}", hint="ranks count from 0 to world - 1")
    if layout == "whole" and world == 1:
        ranges = [(file, 0, file.size) for file in checkpoint.files]
    elif layout == "sharded":
        ranges = [(file, 0, file.size) for file in _files_of_rank(checkpoint, world, rank)]
    elif layout == "striped":
        ranges = _stripe(checkpoint, world, rank)
    else:
        raise ConfigurationError(
            f"layout {layout!r} is not for a world of {world}", hint="whole: world 1; striped and sharded: any"
        )
    return _catalog(ranges, layout, world, rank, piece_size)


def rank_of_file(path: str) -> int | None:
    """The rank that a per-rank file's name carries; None for a common file."""
    match = _RANK_FILE.fullmatch(path)
    return int(match[1]) if match else None


def _files_of_rank(checkpoint: Checkpoint, world: int, rank: int) -> list[CheckpointFile]:
    parts: dict[int, set[int]] = {}
    for file in checkpoint.files:
        match = _RANK_FILE.fullmatch(file.path)
        if match:
            parts.setdefault(int(match[1]), set()).add(int(match[2]))
    found = sorted(parts)
    if found != list(range(world)):
        raise CheckpointError(
            f"layout sharded with a world of {world} needs files for ranks 0 to {world - 1}, and there are "
            f"{'files for ranks ' + ', '.join(map(str, found[:16])) if found else 'none'}",
            hint="files are named model-rank-<rank>-part-<part>.safetensors; set the world to the number of ranks saved",
        )
    for of_rank, numbers in parts.items():
        missing = sorted(set(range(max(numbers) + 1)) - numbers)
        if missing:
            raise CheckpointError(
                f"part {missing[0]} of rank {of_rank} is missing while part {max(numbers)} is there",
                hint="fetch the missing file into the seed",
            )
    return [file for file in checkpoint.files if rank_of_file(file.path) in {None, rank}]


def _is_small(file: CheckpointFile) -> bool:
    return file.header is None and file.size < SMALL_FILE


def _stripe(checkpoint: Checkpoint, world: int, rank: int) -> list[tuple[CheckpointFile, int, int]]:
    """An equal share of the model's bytes for each rank: small files first (all rank 0's), then the weights by path."""
    small = [file for file in checkpoint.files if _is_small(file)]
    large = [file for file in checkpoint.files if not _is_small(file)]
    first = sum(file.size for file in small)
    total = first + sum(file.size for file in large)
    starts, position = [], first
    for file in large:
        starts.append(position)
        position += file.size
    begin = first if rank == 0 else _cut(large, starts, rank * total // world, total // world)
    end = total if rank == world - 1 else _cut(large, starts, (rank + 1) * total // world, total // world)
    ranges = [(file, 0, file.size) for file in small] if rank == 0 else []
    for file, start in zip(large, starts, strict=True):
        low, high = max(begin, start) - start, min(end, start + file.size) - start
        if low < high:
            ranges.append((file, low, high))
    return sorted(ranges, key=lambda held: held[0].path)


def _cut(large: Sequence[CheckpointFile], starts: Sequence[int], target: int, share: int) -> int:
    """Where a share ends: the boundary of tensors next to `target`, or inside a tensor that is larger than two shares.

    Monotone in `target`, so that shares never overlap.
    """
    if not large or target <= starts[0]:
        return starts[0] if large else target
    index = bisect_right(starts, target) - 1
    file, base = large[index], starts[index]
    inside = target - base
    if inside >= file.size:
        return base + file.size
    if file.header is None:
        low, high = 0, file.size
    else:
        offsets = file.header.offsets
        after = bisect_right(offsets, inside)
        low = offsets[after - 1] if after else 0
        high = offsets[after] if after < len(offsets) else file.size
    if high - low > 2 * share:
        return base + low + (inside - low) // _CUT_ALIGNMENT * _CUT_ALIGNMENT
    return base + (low if inside - low <= high - inside else high)


def _catalog(
    ranges: Iterable[tuple[CheckpointFile, int, int]], layout: str, world: int, rank: int, piece_size: int
) -> Catalog:
    entries: list[FileEntry] = []
    extents: list[Extent] = []
    names: list[str] = []
    kinds: dict[Kind, int] = {}
    kind_of, offsets = array("I"), array("Q")
    counts: list[int] = []
    cuts: dict[int, int] = {}
    position = 0
    for number, (file, low, high) in enumerate(ranges):
        entries.append(FileEntry(file.path, file.size))
        if low == high:
            continue
        extents.append(Extent(position, number, low, high - low))
        position += high - low
        if file.header is None:
            counts.append(0)
            continue
        header = file.header
        first, stop = _held(file, low, high)
        counts.append(stop - first)
        names += header.names[first:stop]
        offsets += header.offsets[first:stop]
        codes = {
            code: kinds.setdefault(header.kinds[code], len(kinds)) for code in dict.fromkeys(header.kind_of[first:stop])
        }
        kind_of.extend(map(codes.__getitem__, header.kind_of[first:stop]))
        for index in {first, stop - 1} if first < stop else ():
            begin, size = header.offsets[index], header.kinds[header.kind_of[index]].size
            held = min(begin + size, high) - max(begin, low)
            if held != size:
                column = len(names) - (stop - first) + index - first
                cuts[column] = held
                offsets[column] = max(begin, low)
    table = TensorTable(
        names=names,
        kinds=list(kinds),
        kind_of=kind_of,
        offsets=offsets,
        counts=counts,
        run_files=[extent.file for extent in extents],
        cuts=cuts,
    )
    return Catalog(layout, world, rank, tuple(entries), tuple(extents), table, piece_size)


def _held(file: CheckpointFile, low: int, high: int) -> tuple[int, int]:
    """Numbers of the first tensor of which bytes from `low` to `high` of the file hold something, and of the one after the last.

    An empty tensor belongs to the bytes that follow it; at the end of the file to those before it.
    """
    header = file.header
    if header is None:
        return 0, 0
    offsets = header.offsets
    first = bisect_left(offsets, low)
    if first and first <= len(offsets):
        before = first - 1
        if offsets[before] + header.kinds[header.kind_of[before]].size > low:
            first = before
    stop = len(offsets) if high == file.size else bisect_left(offsets, high)
    return first, stop
