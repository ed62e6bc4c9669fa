"""A .torrent file (BEP 3) of a directory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path


def encode(value: object) -> bytes:
    """Bencode."""
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, str):
        return encode(value.encode())
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    if isinstance(value, Mapping):
        return b"d" + b"".join(encode(key) + encode(value[key]) for key in sorted(value)) + b"e"
    if isinstance(value, Sequence):
        return b"l" + b"".join(map(encode, value)) + b"e"
    raise TypeError(f"{type(value).__name__} has no bencoding")


def torrent(directory: Path, sizes: Mapping[str, int], piece_length: int, announce: str) -> bytes:
    """The .torrent of the files `sizes` (name -> bytes) of a directory, private to its tracker."""
    names = sorted(sizes)
    content = b"".join((directory / name).read_bytes() for name in names)
    pieces = b"".join(
        hashlib.sha1(content[start : start + piece_length], usedforsecurity=False).digest()
        for start in range(0, len(content), piece_length)
    )
    information = {
        "name": directory.name,
        "piece length": piece_length,
        "pieces": pieces,
        "files": [{"length": sizes[name], "path": [name]} for name in names],
    }
    return encode({"announce": announce, "info": information})
