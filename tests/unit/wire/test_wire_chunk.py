"""Chunks by hand are the same protobuf as the library's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpool.wire import pool
from shardpool.wire.chunk import ChunkError, decode_chunk, encode_chunk, encode_refusal, lent_pieces

PIECES = st.integers(0, 2**32 - 1)
OFFSETS = st.integers(0, 2**64 - 1)


@given(piece=PIECES, offset=OFFSETS, runs=st.lists(st.binary(max_size=300), max_size=4))
def test_what_is_encoded_by_hand_the_library_reads(piece: int, offset: int, runs: list[bytes]) -> None:
    message = pool.ReadChunk.FromString(encode_chunk(piece, offset, [memoryview(run) for run in runs]))
    assert (message.piece, message.offset, message.data) == (piece, offset, b"".join(runs))
    assert message.refusal == pool.REFUSAL_NONE


@given(piece=PIECES, offset=OFFSETS, data=st.binary(max_size=300), refusal=st.integers(0, 5))
def test_what_the_library_encodes_is_read_by_hand(piece: int, offset: int, data: bytes, refusal: int) -> None:
    message = pool.ReadChunk(piece=piece, offset=offset, data=data, refusal=refusal)
    chunk = decode_chunk(message.SerializeToString())
    assert (chunk.piece, chunk.offset, bytes(chunk.data), chunk.refusal) == (piece, offset, data, refusal)


def test_the_data_is_not_copied() -> None:
    message = encode_chunk(1, 2, [memoryview(b"abc")])
    assert decode_chunk(message).data.obj is message


def test_a_refusal_has_no_data() -> None:
    chunk = decode_chunk(encode_refusal(7, pool.REFUSAL_NOT_HELD))
    assert (chunk.piece, chunk.refusal, chunk.data.nbytes) == (7, pool.REFUSAL_NOT_HELD, 0)


@given(piece=PIECES, lent=st.integers(0, 2**400))
def test_a_refusal_says_which_pieces_were_lent(piece: int, lent: int) -> None:
    message = encode_refusal(piece, pool.REFUSAL_LENT, lent)
    chunk = decode_chunk(message)
    assert (chunk.piece, chunk.refusal, lent_pieces(chunk)) == (piece, pool.REFUSAL_LENT, lent)
    assert pool.ReadChunk.FromString(message).data == bytes(chunk.data)


def test_unknown_fields_are_passed_over() -> None:
    unknown = b"\x78\x05" + b"\x7d\0\0\0\0" + b"\x79" + bytes(8) + b"\x7a\x01x"
    chunk = decode_chunk(unknown + encode_chunk(3, 4, [memoryview(b"d")]) + unknown)
    assert (chunk.piece, chunk.offset, bytes(chunk.data)) == (3, 4, b"d")


@given(st.binary(max_size=60))
def test_garbage_is_an_error_or_a_chunk_and_nothing_else(message: bytes) -> None:
    try:
        chunk = decode_chunk(message)
    except ChunkError:
        return
    assert chunk.data.nbytes <= len(message)
    assert 0 <= chunk.piece < 2**32
    assert 0 <= chunk.offset < 2**64


@pytest.mark.parametrize("message", [b"\x08", b"\x1a\x05abc", b"\x0b", b"\x08" + b"\xff" * 11, b"\x7d\0\0"])
def test_a_message_cut_off_is_an_error(message: bytes) -> None:
    with pytest.raises(ChunkError):
        decode_chunk(message)
