"""A file of the model in memory: one read-only mapping to serve from, one writable mapping to receive into.

Both show the same pages. The read-only mapping is what is registered for serving, so that its addresses stay good when
writing ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

from shardpool.errors import StoreError
from shardpool.model.files import store_error


class MappedFile:
    """An existing, non-empty file in memory.

    Args:
        path: of the file, for errors; it may be renamed later.
        size: bytes that it must have.
        writable: map it for writing too.
    """

    def __init__(self, path: Path, size: int, *, writable: bool) -> None:
        self.path = path
        self.size = size
        self._writable: mmap.mmap | None = None
        self.write_address = 0
        flags = os.O_RDWR if writable else os.O_RDONLY
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_size != size:
                    raise StoreError(
                        f"{path} has {os.fstat(descriptor).st_size} bytes and must have {size}",
                        hint="remove the directory and its state, and load again",
                    )
                self._readable = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)
                if writable:
                    self._writable = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise store_error(error, path, size) from error
        self.read_address = _address(self._readable)
        if self._writable is not None:
            self.write_address = _address(self._writable)

    @property
    def writable(self) -> bool:
        """There is a writable mapping."""
        return self._writable is not None

    def read_view(self, offset: int, length: int) -> memoryview:
        """Bytes of the file, read-only, without a copy.

        Raises StoreError when somebody has cut the file: touching what is gone would end this process.
        """
        if self._readable.size() < self.size:
            raise StoreError(
                f"{self.path} was cut to {self._readable.size()} of {self.size} bytes by another process",
                hint="nothing else may write to the model directory; restart to fetch what is missing",
            )
        writable = self._writable
        if (
            writable is not None
        ):  # its pages are touched already; touching them a second time would cost time and count twice
            with contextlib.suppress(ValueError):  # (sealed at this moment)
                return memoryview(writable)[offset : offset + length].toreadonly()
        return memoryview(self._readable)[offset : offset + length]

    def write_view(self, offset: int, length: int) -> memoryview:
        """Bytes of the file, writable. Raises StoreError after `seal`."""
        if self._writable is None:
            raise StoreError(f"{self.path} is sealed", hint="this is a bug: a committed file is never written")
        return memoryview(self._writable)[offset : offset + length]

    def seal(self) -> None:
        """Give up the writable mapping; where somebody still looks at it, it goes when they let go. Idempotent."""
        mapping, self._writable, self.write_address = self._writable, None, 0
        if mapping is not None:
            _close(mapping)

    def close(self) -> None:
        """Give up both mappings, in the same way."""
        self.seal()
        _close(self._readable)


def _close(mapping: mmap.mmap) -> None:
    with contextlib.suppress(BufferError):  # a view of it is in use; the last one to go unmaps it
        mapping.close()


class _Buffer(ctypes.Structure):
    """`Py_buffer` of CPython."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def _address(mapping: mmap.mmap) -> int:
    """Where a mapping begins (ctypes' own way refuses read-only memory)."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapping), ctypes.byref(buffer), 0)
    address: int = buffer.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address
