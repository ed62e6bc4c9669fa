"""Whole files against the SHA-256 that their publisher states: for after the last piece, before the commit."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shardpool.model.directory import ModelDirectory
from shardpool.model.files import store_error

_STEP = 8 << 20


def verify_files(
    directory: ModelDirectory, sha256s: Mapping[str, str], *, stop: threading.Event | None = None
) -> list[str]:
    """The paths, sorted, of the files whose bytes are not what their publisher states; their pieces are to be fetched again.

    Args:
        directory: all of whose ranks have their pieces.
        sha256s: path to 64 hex digits; paths that no local rank holds are passed over.
        stop: setting it ends the work early; what is returned then is not the whole answer.

    Raises StoreError when a file cannot be read.
    """
    stop = stop or threading.Event()
    held = directory.places()
    wanted = [(path, place) for path in sha256s for place in held.get(path, [])]
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1), thread_name_prefix="sha256") as pool:
        digests = pool.map(lambda item: _sha256(item[1], stop), wanted)
        return sorted(
            {
                path
                for (path, _), digest in zip(wanted, digests, strict=True)
                if digest is not None and digest != sha256s[path].lower()
            }
        )


def _sha256(path: Path, stop: threading.Event) -> str | None:
    """The digest in hex; None when stopped."""
    hasher = hashlib.sha256()
    buffer = memoryview(bytearray(_STEP))
    try:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                hasher.update(buffer[:count])
                if stop.is_set():
                    return None
    except OSError as error:
        raise store_error(error, path) from error
    return hasher.hexdigest()
