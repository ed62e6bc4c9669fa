"""Which pieces of a shard were verified, in a file that outlives the process.

The file is appended to without waiting for the disk: what it says is checked against the bytes at the next start. A record
is written in one call and carries its own checksum, so that a torn or foreign one is passed over.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from pathlib import Path

from shardpool.model.files import store_error

_MAGIC = b"SPJRNL\x00\x01"
_RECORD = struct.Struct("<I32sI")
_HEADER_SIZE = len(_MAGIC) + 32
_FORGOTTEN = bytes(32)


class Journal:
    """The journal of one rank. Thread-safe.

    Args:
        path: of the file.
        outline: digest of the catalog that it is about; a journal about another one is started anew.
    """

    def __init__(self, path: Path, outline: bytes) -> None:
        self.path = path
        self.outline = outline
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    def read(self) -> dict[int, bytes]:
        """The pieces recorded and their digests; empty where there is no journal about this outline."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise store_error(error, self.path) from error
        if data[:_HEADER_SIZE] != _MAGIC + self.outline:
            return {}
        pieces: dict[int, bytes] = {}
        whole = len(data) - (len(data) - _HEADER_SIZE) % _RECORD.size
        for piece, digest, checksum in _RECORD.iter_unpack(data[_HEADER_SIZE:whole]):
            if checksum == _checksum(piece, digest):
                if digest == _FORGOTTEN:
                    pieces.pop(piece, None)
                else:
                    pieces[piece] = digest
        return pieces

    def start(self, pieces: dict[int, bytes]) -> None:
        """Begin a journal that says just this, in place of the one before, and keep it open for appending."""
        data = _MAGIC + self.outline + b"".join(_packed(piece, digest) for piece, digest in pieces.items())
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            temporary.write_bytes(data)
            os.replace(temporary, self.path)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise store_error(error, self.path, len(data)) from error

    def record(self, piece: int, digest: bytes) -> None:
        """Note that a piece is verified."""
        if len(digest) != 32 or digest == _FORGOTTEN:
            raise ValueError(f"a digest of {len(digest)} bytes, or of zeros")
        self._append(_packed(piece, digest))

    def forget(self, *pieces: int) -> None:
        """Note that pieces are not verified any more. Also works on a journal that another process appends to."""
        if pieces:
            self._append(b"".join(_packed(piece, _FORGOTTEN) for piece in pieces))

    def sync(self) -> None:
        """Wait until the disk has it."""
        with self._lock:
            if self._descriptor is not None:
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _append(self, data: bytes) -> None:
        with self._lock:
            try:
                if self._descriptor is None:
                    self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                written = os.write(self._descriptor, data)
                if written != len(data):  # (a full disk) records that follow must stay aligned
                    os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
                    os.write(self._descriptor, data)
            except OSError as error:
                raise store_error(error, self.path, len(data)) from error


def _checksum(piece: int, digest: bytes) -> int:
    return zlib.crc32(digest, piece)


def _packed(piece: int, digest: bytes) -> bytes:
    return _RECORD.pack(piece, digest, _checksum(piece, digest))
