"""Whole files against the SHA-256 that their publisher states."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shardpool.model.files import store_error

_STEP = 8 << 20


def files_that_differ(expected: Mapping[str, tuple[Path, str]], threads: int | None = None) -> list[str]:
    """The names, sorted, of the files whose bytes are not what they must be.

    Args:
        expected: name to the place of the file and its SHA-256 in hex.
        threads: files that are read at once; None for one a core, at most 4.

    Raises StoreError when a file cannot be read.
    """
    workers = threads or min(4, os.cpu_count() or 1)
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="sha256") as pool:
        digests = pool.map(_sha256, [place for place, _ in expected.values()])
        return sorted(
            name for (name, (_, sha256)), digest in zip(expected.items(), digests, strict=True) if digest != sha256
        )


def _sha256(path: Path) -> str:
    hasher = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size:
                with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapping, memoryview(mapping) as view:
                    for start in range(0, size, _STEP):
                        with view[start : start + _STEP] as step:
                            hasher.update(step)
    except OSError as error:
        raise store_error(error, path) from error
    return hasher.hexdigest()
