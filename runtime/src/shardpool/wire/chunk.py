"""`ReadChunk` by hand, so that a piece's bytes are copied once on each side and no more.

A chunk is a header of a few bytes and then the data, untouched; protobuf's own encoder would copy the data into a message first.
What is made here is plain protobuf (tests/unit/wire compares the two), and what is read here may be anything that protobuf allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CHUNK_SIZE = 1024 * 1024
LARGEST_CHUNK = 4 * 1024 * 1024
_PIECE, _OFFSET, _DATA, _REFUSAL = 0x08, 0x10, 0x1A, 0x20
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ChunkError(ValueError):
    """The bytes are not a `ReadChunk`."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """`data` lies at `offset` of `piece`; a refusal (pool.Refusal, 0 is none) has none of the piece's."""

    piece: int
    offset: int
    data: memoryview
    refusal: int = 0


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_chunk(piece: int, offset: int, data: Sequence[memoryview]) -> bytes:
    """A message with the data of `piece` from `offset`: runs of contiguous bytes, one after the other. This is their one copy."""
    size = sum(run.nbytes for run in data)
    header = b"\x08%b\x10%b\x1a%b" % (_varint(piece), _varint(offset), _varint(size))
    return b"".join((header, *data))


def encode_refusal(piece: int, refusal: int, lent: int = 0) -> bytes:
    """A message that says why `piece` will not come; `lent` are the pieces, as bits, that others were sent."""
    data = lent.to_bytes((lent.bit_length() + 7) // 8, "little")
    said = b"\x1a%b%b" % (_varint(len(data)), data) if data else b""
    return b"\x08%b%b\x20%b" % (_varint(piece), said, _varint(refusal))


def lent_pieces(chunk: Chunk) -> int:
    """What a refusal says that others were sent, as bits."""
    return int.from_bytes(chunk.data, "little")


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise ChunkError(f"no varint at byte {position}")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7


def decode_chunk(message: bytes) -> Chunk:
    """Read a message without copying its data. Raises ChunkError."""
    piece = offset = refusal = position = 0
    data = memoryview(message)[:0]
    while position < len(message):
        tag, position = _read_varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _read_varint(message, position)
            if tag == _PIECE:
                piece = value & 0xFFFF_FFFF
            elif tag == _OFFSET:
                offset = value
            elif tag == _REFUSAL:
                refusal = value & 0xFFFF_FFFF
            continue
        if kind == _BYTES:
            length, position = _read_varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ChunkError(f"wire type {kind} at byte {position}")
        if length > len(message) - position:
            raise ChunkError(f"a field of {length} bytes at byte {position} of {len(message)}")
        if tag == _DATA:
            data = memoryview(message)[position : position + length]
        position += length
    return Chunk(piece, offset, data, refusal)
