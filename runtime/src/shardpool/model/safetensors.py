"""The header of a safetensors file, read strictly: it is input that anybody may have written.

A file is: the header's length (u64, little-endian), the header (a JSON object of names to dtype, shape and data offsets,
padded with blanks), then the tensors' bytes without holes or overlaps up to the end of the file.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NoReturn

from shardpool.errors import CheckpointError
from shardpool.model.limits import DEFAULT_LIMITS, Limits
from shardpool.model.names import shown
from shardpool.model.tensors import Kind, KindCollector

LENGTH_BYTES = 8
LONGEST_HEADER = 100_000_000  # the bound of the reference implementation
_METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}
_HINT = "publish the file again, or fetch it anew into the seed"
_POINTER = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says, in columns ordered by place.

    Attributes:
        names: of the tensors.
        kinds: their distinct kinds in the order of first use.
        kind_of: for each tensor, the number of its kind.
        offsets: for each tensor, the first of its bytes, counted from the start of the file.
        data_start: where the header ends.
    """

    names: list[str]
    kinds: list[Kind]
    kind_of: array[int]
    offsets: array[int]
    data_start: int


def header_length(prefix: bytes, path: str, file_size: int) -> int:
    """Bytes of the header, from the first bytes of a file. Raises CheckpointError when the file cannot hold it.

    Args:
        prefix: the first `min(8, file_size)` bytes.
        path: names the file in errors.
        file_size: bytes of the file.
    """
    if len(prefix) < LENGTH_BYTES:
        _refuse(path, "is empty" if file_size == 0 else f"ends after {file_size} bytes")
    if _POINTER.startswith(prefix):
        _refuse(path, "is a Git LFS pointer, not the file itself", "fetch the large files (`git lfs pull`)")
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    if length > LONGEST_HEADER:
        _refuse(path, f"states a header of {length} bytes, more than {LONGEST_HEADER}")
    if length < 2 or LENGTH_BYTES + length > file_size:
        _refuse(path, f"states a header of {length} bytes and has {file_size} bytes in all")
    return length


def parse_header(data: bytes | bytearray, path: str, file_size: int, limits: Limits = DEFAULT_LIMITS) -> Header:
    """Check a header against itself and the size of its file.

    Args:
        data: the header, without the length before it.
        path: names the file in errors.
        file_size: bytes of the file.
        limits: bounds on what it may hold.

    Raises:
        CheckpointError: it is not such a header, names a key twice, or states sizes and places that do not fit.
    """
    if data[:1] != b"{":
        _refuse(path, f"has a header that begins with {bytes(data[:1])!r} and not with {{")
    try:
        entries = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        _refuse(path, f"has a header that is not clean JSON: {error}")
    metadata = entries.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        _refuse(path, f"uses the reserved name {_METADATA!r} for other than a map of texts")
    if len(entries) > limits.tensors:
        _refuse(path, f"has {len(entries)} tensors, more than {limits.tensors}")
    data_start = LENGTH_BYTES + len(data)
    _check_names(list(entries), path, limits)
    collector = KindCollector()
    codes: dict[tuple[str, tuple[int, ...]], int] = {}
    sizes: list[int] = []
    places: list[tuple[int, int, str, int]] = []
    for name, entry in entries.items():
        begin, end, dtype, shape = _regular(entry) or _explained(name, entry, path)
        code = codes.get((dtype, shape))
        if code is None:
            if len(shape) > limits.dimensions or not all(0 <= dimension < 1 << 63 for dimension in shape):
                _refuse(
                    path,
                    f"has tensor {shown(name)} with a shape of over {limits.dimensions} dimensions, or not of 0 to 2^63 - 1",
                )
            try:
                code = codes[dtype, shape] = collector.code(dtype, shape)
            except ValueError as error:
                _refuse(path, f"has tensor {shown(name)}: {error}")
            sizes.append(collector.kinds[code].size)
        if sizes[code] != end - begin:
            what = f"{shown(dtype)} {list(shape)[:8]}, {sizes[code]} bytes, at data offsets {begin} to {end}"
            _refuse(path, f"has tensor {shown(name)} of {what}")
        places.append((begin, end, name, code))
    places.sort()
    position = 0
    for begin, end, name, _ in places:
        if begin != position:
            what = "overlaps its predecessor" if begin < position else f"leaves a hole of {begin - position} bytes"
            _refuse(path, f"has tensor {shown(name)} at data offset {begin}, which {what}")
        position = end
    if data_start + position != file_size:
        _refuse(path, f"has {file_size} bytes where its header describes {data_start + position}")
    return _columns(places, collector, data_start)


def _columns(places: list[tuple[int, int, str, int]], collector: KindCollector, data_start: int) -> Header:
    codes = list(map(itemgetter(3), places))
    order = {code: number for number, code in enumerate(dict.fromkeys(codes))}
    return Header(
        names=list(map(itemgetter(2), places)),
        kinds=[collector.kinds[code] for code in order],
        kind_of=array("I", map(order.__getitem__, codes)),
        offsets=array("Q", [data_start + place[0] for place in places]),
        data_start=data_start,
    )


def _check_names(names: list[str], path: str, limits: Limits) -> None:
    """All at once where they are fit, one by one to find the one that is not."""
    for some in [names, *([name] for name in names)]:
        try:
            encoded = "\n".join(some).encode()
        except UnicodeEncodeError:
            if some is not names:
                _refuse(path, f"has a tensor name {shown(some[0])} with half of a surrogate pair")
            continue
        lengths = list(map(len, some if encoded.isascii() else (name.encode() for name in some))) or [1]
        if b"\0" not in encoded and min(lengths) > 0 and max(lengths) <= limits.name_bytes:
            if some is names:
                return
            continue
        if some is not names:
            limit = limits.name_bytes
            _refuse(
                path,
                f"has a tensor name {shown(some[0])} of {lengths[0]} bytes, which is not 1 to {limit}, or has a NUL",
            )


def _regular(entry: Any) -> tuple[int, int, str, tuple[int, ...]] | None:
    """Data offsets, dtype and shape of an entry; None when its form is another one."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        return None
    if len(entry) != 3 or type(dtype) is not str or type(shape) is not list or type(entry["data_offsets"]) is not list:
        return None
    return (begin, end, dtype, tuple(shape)) if {type(begin), type(end), *map(type, shape)} == {int} else None


def _explained(name: str, entry: Any, path: str) -> NoReturn:
    """Refuse an entry of another form by what is wrong with it."""
    if not isinstance(entry, dict) or entry.keys() != _FIELDS:
        _refuse(path, f"has an entry {shown(name)} with other fields than {', '.join(sorted(_FIELDS))}")
    if not isinstance(entry["dtype"], str):
        _refuse(path, f"has tensor {shown(name)} with a dtype that is not a text")
    if not isinstance(entry["shape"], list):
        _refuse(path, f"has tensor {shown(name)} with a shape that is not a list")
    if not isinstance(entry["data_offsets"], list) or len(entry["data_offsets"]) != 2:
        _refuse(path, f"has tensor {shown(name)} with data offsets that are not a pair")
    _refuse(path, f"has tensor {shown(name)} with a number that is not whole")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"key {shown(name)} is there twice")
            seen.add(name)
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _refuse(path: str, what: str, hint: str = _HINT) -> NoReturn:
    raise CheckpointError(f"{shown(path)} {what}", hint=hint)
