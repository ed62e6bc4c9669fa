"""A hundred thousand tensors as a few columns: a `Tensor` object exists only while somebody looks at it."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import NamedTuple, overload

from shardpool.errors import CatalogError
from shardpool.model.dtypes import size_in_bytes
from shardpool.model.names import shown


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor, or the part of it that the shard holds: `length` bytes from `offset` of file number `file`.

    `dtype` is the safetensors name, such as `BF16`; `shape` is that of the whole tensor, also where a shard holds a part.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int
    offset: int
    length: int


class Kind(NamedTuple):
    """What many tensors have in common: type, shape, and so the size in bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int


class TensorTable(Sequence[Tensor]):
    """Tensors in the order of their bytes, in columns.

    Args:
        names: a name for each tensor.
        kinds: the distinct kinds, in the order of their first use.
        kind_of: for each tensor, the number of its kind.
        offsets: for each tensor, where in its file its bytes (or the part that is held) begin.
        counts: number of tensors of each run; a run is what lies in one extent (or one file).
        run_files: file number of each run.
        cuts: for the tensors that are held in part, their number and how many bytes are held.
    """

    __slots__ = ("_ends", "counts", "cuts", "kind_of", "kinds", "names", "offsets", "run_files")

    def __init__(
        self,
        *,
        names: Sequence[str],
        kinds: Sequence[Kind],
        kind_of: Sequence[int],
        offsets: Sequence[int],
        counts: Sequence[int],
        run_files: Sequence[int],
        cuts: dict[int, int] | None = None,
    ) -> None:
        self.names = names
        self.kinds = tuple(kinds)
        self.kind_of = kind_of
        self.offsets = offsets
        self.counts = counts
        self.run_files = run_files
        self.cuts = cuts or {}
        self._ends = list(accumulate(counts))

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | Sequence[Tensor]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"tensor {index} of {len(self)}")
        kind = self.kinds[self.kind_of[number]]
        return Tensor(
            self.names[number],
            kind.dtype,
            kind.shape,
            self.run_files[bisect_right(self._ends, number)],
            self.offsets[number],
            self.cuts.get(number, kind.size),
        )

    def __iter__(self) -> Iterator[Tensor]:
        files = chain.from_iterable(map(repeat, self.run_files, self.counts))
        cuts = self.cuts
        for number, (name, code, file, offset) in enumerate(
            zip(self.names, self.kind_of, files, self.offsets, strict=True)
        ):
            kind = self.kinds[code]
            length = cuts.get(number, kind.size) if cuts else kind.size
            yield Tensor(name, kind.dtype, kind.shape, file, offset, length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<TensorTable of {len(self)}>"

    def lengths(self) -> list[int]:
        """Bytes held of each tensor."""
        sizes = [kind.size for kind in self.kinds]
        lengths = list(map(sizes.__getitem__, self.kind_of))
        for number, held in self.cuts.items():
            lengths[number] = held
        return lengths

    @classmethod
    def of(cls, tensors: Iterable[Tensor], runs: Sequence[tuple[int, int, int]]) -> TensorTable:
        """Make a table of loose tensors.

        Args:
            tensors: in any order.
            runs: for each extent its file number, first byte and end in that file, in order.

        Raises CatalogError for a tensor that lies in no run.
        """
        by_run: list[list[Tensor]] = [[] for _ in runs]
        starts = [(file, first) for file, first, _ in runs]
        for tensor in tensors:
            run = bisect_right(starts, (tensor.file, tensor.offset)) - 1
            if run < 0 or runs[run][0] != tensor.file or tensor.offset + tensor.length > runs[run][2]:
                raise CatalogError(f"tensor {shown(tensor.name)} lies outside of what the shard holds")
            by_run[run].append(tensor)
        ordered: list[Tensor] = []
        for members in by_run:
            ordered += sorted(members, key=lambda tensor: (tensor.offset, tensor.length, tensor.name))
        collector = KindCollector()
        kind_of, cuts = array("I"), {}
        for number, tensor in enumerate(ordered):
            try:
                code = collector.code(tensor.dtype, tensor.shape)
            except ValueError as error:
                raise CatalogError(f"tensor {shown(tensor.name)}: {error}") from error
            kind_of.append(code)
            if tensor.length != collector.kinds[code].size:
                cuts[number] = tensor.length
        return cls(
            names=[tensor.name for tensor in ordered],
            kinds=collector.kinds,
            kind_of=kind_of,
            offsets=array("Q", [tensor.offset for tensor in ordered]),
            counts=[len(members) for members in by_run],
            run_files=[file for file, _, _ in runs],
            cuts=cuts,
        )


class KindCollector:
    """Numbers kinds in the order of their first use."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self._codes: dict[tuple[str, tuple[int, ...]], int] = {}

    def code(self, dtype: str, shape: tuple[int, ...]) -> int:
        """The number of a kind. Raises ValueError as `size_in_bytes` does."""
        key = (dtype, shape)
        code = self._codes.get(key)
        if code is None:
            self.kinds.append(Kind(dtype, shape, size_in_bytes(dtype, shape)))
            code = self._codes[key] = len(self.kinds) - 1
        return code


def little_endian(column: array[int]) -> bytes:
    """The bytes of a column as they travel, on any host."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def from_little_endian(code: str, data: memoryview) -> array[int]:
    """A column (array of type code `I` or `Q`) of the bytes that travelled."""
    column: array[int] = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
