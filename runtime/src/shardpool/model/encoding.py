"""How an outline travels: a fixed header, then columns. One content has one encoding, and only that one is accepted.

    header   magic, layout, world, rank, piece size, size, and the counts that give every column its length
    files    paths (UTF-8, NUL between), sizes (u64)
    extents  file (u32), offset (u64), length (u64), number of tensors in it (u32)
    kinds    dtype (u8), number of dimensions (u8), all dimensions (u64)
    tensors  names (UTF-8, NUL between), kind (u32), offset in the file (u64)
    cuts     number of a tensor that is held in part (u32), bytes held (u64)

All numbers are little-endian. Checks run on whole columns at C speed: well below a microsecond a tensor.
"""

from __future__ import annotations

import struct
from array import array
from itertools import islice
from operator import add, le, lt
from typing import NoReturn

from shardpool.errors import CatalogError
from shardpool.model.catalog import LARGEST_PIECE, Catalog, Extent, FileEntry
from shardpool.model.dtypes import CODES, DTYPES, size_in_bytes
from shardpool.model.limits import DEFAULT_LIMITS, Limits
from shardpool.model.names import path_fault, shown, tree_fault
from shardpool.model.tensors import Kind, TensorTable, from_little_endian, little_endian

_MAGIC = b"SPCAT\x00\x00\x01"
_LAYOUTS = ("whole", "striped", "sharded")
_HEADER = struct.Struct("<8sIIIQQIIIIIIQQ")
_HINT = "the peer is broken or hostile; other peers are not affected"


def encode(catalog: Catalog) -> bytes:
    """Encode an outline. Raises CatalogError for one that no peer would accept."""
    table = catalog.table
    paths = "\0".join(entry.path for entry in catalog.files).encode()
    names = "\0".join(table.names).encode()
    dimensions = [dimension for kind in table.kinds for dimension in kind.shape]
    cuts = sorted(table.cuts.items())
    try:
        header = _HEADER.pack(
            _MAGIC,
            _LAYOUTS.index(catalog.layout),
            catalog.world,
            catalog.rank,
            catalog.piece_size,
            catalog.size,
            len(catalog.files),
            len(catalog.extents),
            len(table),
            len(table.kinds),
            len(dimensions),
            len(cuts),
            len(paths),
            len(names),
        )
        columns = [
            array("Q", [entry.size for entry in catalog.files]),
            array("I", [extent.file for extent in catalog.extents]),
            array("Q", [extent.offset for extent in catalog.extents]),
            array("Q", [extent.length for extent in catalog.extents]),
            array("I", table.counts),
            array("B", [CODES[kind.dtype] for kind in table.kinds]),
            array("B", [len(kind.shape) for kind in table.kinds]),
            array("Q", dimensions),
            array("I", table.kind_of),
            array("Q", table.offsets),
            array("I", [number for number, _ in cuts]),
            array("Q", [held for _, held in cuts]),
        ]
    except (OverflowError, ValueError, KeyError, struct.error) as error:
        raise CatalogError(f"a number or a type of the outline cannot be encoded: {error}") from error
    data = [little_endian(column) for column in columns]
    return b"".join([header, paths, *data[:8], names, *data[8:]])


def decode(data: bytes | bytearray | memoryview, limits: Limits = DEFAULT_LIMITS) -> Catalog:
    """Decode and check an outline that anybody may have sent.

    Args:
        data: as received.
        limits: what it may hold at most.

    Raises:
        CatalogError: it breaks a limit, contradicts itself, or is not the one encoding of its content. Counts are held
            against the limits and the length of `data` before anything is allocated.
    """
    view = memoryview(data).toreadonly().cast("B")
    if len(view) > limits.encoded_bytes:
        _refuse(f"is {len(view)} bytes long, more than {limits.encoded_bytes}")
    if len(view) < _HEADER.size:
        _refuse(f"ends after {len(view)} bytes")
    (
        magic,
        layout,
        world,
        rank,
        piece_size,
        size,
        file_count,
        extent_count,
        tensor_count,
        kind_count,
        dimension_count,
        cut_count,
        path_bytes,
        name_bytes,
    ) = _HEADER.unpack_from(view)
    if magic != _MAGIC:
        _refuse(f"begins with {magic!r} and not with {_MAGIC!r}")
    if layout >= len(_LAYOUTS):
        _refuse(f"has layout number {layout}")
    if not 0 <= rank < world <= 65_536 or (_LAYOUTS[layout] == "whole" and world != 1):
        _refuse(f"is for rank {rank} of a world of {world} with layout {_LAYOUTS[layout]}")
    for count, most, what in (
        (size, limits.total_bytes, "bytes"),
        (file_count, limits.files, "files"),
        (extent_count, limits.extents, "extents"),
        (tensor_count, limits.tensors, "tensors"),
        (kind_count, tensor_count, "kinds of tensors"),
        (dimension_count, kind_count * limits.dimensions, "dimensions"),
        (cut_count, min(tensor_count, 2 * extent_count), "cut tensors"),
        (path_bytes, file_count * (limits.path_bytes + 1), "bytes of paths"),
        (name_bytes, tensor_count * (limits.name_bytes + 1), "bytes of names"),
    ):
        if count > most:
            _refuse(f"has {count} {what}, more than {most}")
    if not 1 <= piece_size <= LARGEST_PIECE or -(-size // piece_size) > limits.pieces:
        _refuse(f"has pieces of {piece_size} bytes for a shard of {size}")
    widths = [
        path_bytes,
        8 * file_count,
        4 * extent_count,
        8 * extent_count,
        8 * extent_count,
        4 * extent_count,
        kind_count,
        kind_count,
        8 * dimension_count,
        name_bytes,
        4 * tensor_count,
        8 * tensor_count,
        4 * cut_count,
        8 * cut_count,
    ]
    if _HEADER.size + sum(widths) != len(view):
        _refuse(f"is {len(view)} bytes long where its counts say {_HEADER.size + sum(widths)}")
    columns: list[memoryview] = []
    position = _HEADER.size
    for width in widths:
        columns.append(view[position : position + width])
        position += width

    files = _files(columns[0], columns[1], file_count, limits)
    extents = _extents(columns[2:5], files, size, whole_files=_LAYOUTS[layout] != "striped")
    tensors = _tensors(columns[5:], extents, limits)
    catalog = Catalog(_LAYOUTS[layout], world, rank, files, extents, tensors, piece_size)
    catalog.remember_encoding(bytes(view))  # only the one encoding of a content passes the checks above
    return catalog


def _files(paths: memoryview, sizes: memoryview, count: int, limits: Limits) -> tuple[FileEntry, ...]:
    names = _texts(paths, count, limits.path_bytes, "paths")
    if not all(map(lt, names, islice(names, 1, None))):
        _refuse("has paths out of order, or twice")
    for name in names:
        if fault := path_fault(name, limits.path_bytes):
            _refuse(f"names a file {shown(name)}, which {fault}")
    if fault := tree_fault(names):
        _refuse(fault)
    lengths = from_little_endian("Q", sizes)
    if sum(lengths) > limits.total_bytes:
        _refuse(f"has files of {sum(lengths)} bytes in all, more than {limits.total_bytes}")
    return tuple(map(FileEntry, names, lengths))


def _extents(
    columns: list[memoryview], files: tuple[FileEntry, ...], size: int, *, whole_files: bool
) -> tuple[Extent, ...]:
    numbers = from_little_endian("I", columns[0])
    offsets, lengths = from_little_endian("Q", columns[1]), from_little_endian("Q", columns[2])
    extents: list[Extent] = []
    start, last, end = 0, -1, 0
    for file, offset, length in zip(numbers, offsets, lengths, strict=True):
        if file >= len(files) or length < 1 or offset + length > files[file].size:
            _refuse(f"has an extent of {length} bytes at {offset} of file {file}, outside of that file")
        if file < last or (file == last and offset < end):
            _refuse(f"has extents of file {shown(files[file].path)} that overlap or are out of order")
        if file == last and offset == end:
            _refuse(f"has an extent of file {shown(files[file].path)} in two parts")
        if whole_files and length != files[file].size:
            _refuse(f"holds file {shown(files[file].path)} in part, which its layout does not do")
        extents.append(Extent(start, file, offset, length))
        start, last, end = start + length, file, offset + length
    if start != size:
        _refuse(f"has extents of {start} bytes for a shard of {size}")
    held = set(numbers)
    for number, entry in enumerate(files):
        if number not in held and (entry.size > 0):
            _refuse(f"names file {shown(entry.path)} and holds nothing of it")
    return tuple(extents)


def _tensors(columns: list[memoryview], extents: tuple[Extent, ...], limits: Limits) -> TensorTable:
    counts = from_little_endian("I", columns[0])
    kind_of = from_little_endian("I", columns[5])
    offsets = from_little_endian("Q", columns[6])
    if sum(counts) != len(kind_of):
        _refuse(f"has {len(kind_of)} tensors where its extents say {sum(counts)}")
    kinds = _kinds(bytes(columns[1]), bytes(columns[2]), from_little_endian("Q", columns[3]), limits)
    names = _texts(columns[4], len(kind_of), limits.name_bytes, "names")
    if list(dict.fromkeys(kind_of)) != list(range(len(kinds))):
        _refuse("has kinds of tensors out of order, or unused ones, or lacks some")
    numbers, held = from_little_endian("I", columns[7]), from_little_endian("Q", columns[8])
    if not all(map(lt, numbers, islice(numbers, 1, None))) or (numbers and numbers[-1] >= len(kind_of)):
        _refuse("has cut tensors out of order, or that are not there")
    for number, part in zip(numbers, held, strict=True):
        if not 0 < part < kinds[kind_of[number]].size:
            _refuse(f"holds {part} bytes of tensor {shown(names[number])}, which has {kinds[kind_of[number]].size}")
    table = TensorTable(
        names=names,
        kinds=kinds,
        kind_of=kind_of,
        offsets=offsets,
        counts=counts,
        run_files=[extent.file for extent in extents],
        cuts=dict(zip(numbers, held, strict=True)),
    )
    _check_places(table, extents)
    _check_names(table)
    return table


def _kinds(codes: bytes, ranks: bytes, dimensions: array[int], limits: Limits) -> list[Kind]:
    if sum(ranks) != len(dimensions) or (ranks and max(ranks) > limits.dimensions):
        _refuse(f"has shapes of more than {limits.dimensions} dimensions, or of other than it says")
    if codes and max(codes) >= len(DTYPES):
        _refuse(f"has dtype number {max(codes)}, which is unknown")
    kinds: list[Kind] = []
    position = 0
    for code, rank in zip(codes, ranks, strict=True):
        shape = tuple(dimensions[position : position + rank])
        position += rank
        try:
            size = size_in_bytes(DTYPES[code], shape)
        except ValueError as error:
            _refuse(f"has a shape {shape}: {error}")
        if size > limits.total_bytes:
            _refuse(f"has a tensor of shape {shape}, which would be {size} bytes")
        kinds.append(Kind(DTYPES[code], shape, size))
    if len({(kind.dtype, kind.shape) for kind in kinds}) != len(kinds):
        _refuse("has one kind of tensors twice")
    return kinds


def _check_places(table: TensorTable, extents: tuple[Extent, ...]) -> None:
    """Every tensor lies inside its extent, after its predecessor; only the first and last of an extent may be cut."""
    lengths = table.lengths()
    starts = table.offsets
    ends = list(map(add, starts, lengths))
    first = 0
    for extent, count in zip(extents, table.counts, strict=True):
        if not count:
            continue
        last = first + count - 1
        extent_end = extent.offset + extent.length
        if starts[first] < extent.offset or max(islice(ends, first, last + 1)) > extent_end:
            _refuse(f"has a tensor outside of the bytes {extent.offset} to {extent_end} of file {extent.file}")
        if not all(map(le, islice(ends, first, last), islice(starts, first + 1, last + 1))):
            _refuse(f"has tensors of file {extent.file} that overlap or are out of order")
        first = last + 1
    bounds = {(extent.file, edge) for extent in extents for edge in (extent.offset, extent.offset + extent.length)}
    for number, length in table.cuts.items():
        tensor = table[number]
        if (tensor.file, tensor.offset) not in bounds and (tensor.file, tensor.offset + length) not in bounds:
            _refuse(f"holds tensor {shown(tensor.name)} in part where nothing cuts it")
    if 0 in lengths:
        names = table.names
        places = [(starts[i], i) for i, length in enumerate(lengths) if length == 0]
        for (place, left), (other, right) in zip(places, islice(places, 1, None), strict=False):
            if place == other and right == left + 1 and names[left] >= names[right]:
                _refuse(f"has empty tensors {shown(names[left])} and {shown(names[right])} out of order")


def _check_names(table: TensorTable) -> None:
    names = table.names
    distinct = set(names)
    if "__metadata__" in distinct:
        _refuse("has a tensor of the reserved name '__metadata__'")
    if len(distinct) == len(names):
        return
    seen: set[tuple[int, str]] = set()  # files of different directories may use a name each
    for tensor in table:
        if (tensor.file, tensor.name) in seen:
            _refuse(f"has tensor {shown(tensor.name)} twice in one file")
        seen.add((tensor.file, tensor.name))


def _texts(blob: memoryview, count: int, longest: int, what: str) -> list[str]:
    raw = bytes(blob)
    if count == 0:
        if raw:
            _refuse(f"has {what} of nothing")
        return []
    if raw.count(b"\0") != count - 1:
        _refuse(f"has {raw.count(bytes(1)) + 1} {what} for {count}")
    try:
        texts = raw.decode().split("\0")
    except UnicodeDecodeError as error:
        _refuse(f"has {what} that are not UTF-8: {error.reason} at byte {error.start}")
    sizes = list(map(len, texts if raw.isascii() else raw.split(b"\0")))
    if min(sizes) == 0:
        _refuse(f"has an empty one among its {what}")
    if max(sizes) > longest:
        _refuse(f"has one of {max(sizes)} bytes among its {what}, more than {longest}")
    return texts


def _refuse(what: str) -> NoReturn:
    raise CatalogError(f"an outline {what}", hint=_HINT)
