"""One rank's bytes in the model directory: made room for, mapped, journalled, served from the same pages."""

from __future__ import annotations

import contextlib
import os
import queue
import stat
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blake3 import blake3

from shardpool.errors import ShardpoolError, StoreError
from shardpool.log import logger
from shardpool.model.base import Region
from shardpool.model.catalog import Catalog, FileEntry, Span
from shardpool.model.directory import ModelDirectory, pieces_of_file
from shardpool.model.files import (
    MEMORY_FILESYSTEMS,
    FileLock,
    allocate,
    filesystem_type,
    populate,
    require_descriptors,
    require_space,
    store_error,
)
from shardpool.model.mapping import MappedFile

_log = logger(__name__)
_ALLOCATION_SECONDS = 0.25  # on disks reserving takes no time; in memory it does, and then goes on ahead of the data
_ALLOCATION_STEP = 64 << 20
_DESCRIPTORS_KEPT_FREE = 32  # for sockets and pipes of the process


class ShardStore:
    """The `PieceStore` of a model directory. Thread-safe between `open` and `close`.

    The files are ours alone: another process that cuts them while they are mapped can end this one.

    Args:
        directory: prepared by its owner (`ModelDirectory.prepare`).
        catalog: the outline of this rank.
    """

    def __init__(self, directory: ModelDirectory, catalog: Catalog) -> None:
        self.directory = directory
        self.catalog = catalog
        self._journal = directory.journal(catalog)
        self._lock: FileLock | None = None
        self._files: dict[int, MappedFile] = {}
        self._allocated: set[int] = set()  # pieces whose storage is reserved
        self._allocation = threading.Lock()
        self._wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._toucher: threading.Thread | None = None
        self._stop = threading.Event()
        self._sealed = False
        self._spans = [catalog.piece_spans(piece) for piece in range(catalog.pieces)] if catalog.pieces < 4096 else None

    def open(self) -> dict[int, bytes]:
        """Make room for the shard and return the pieces that are there already, verified, with their digests.

        Free space is checked before the first file is made. Files that a failed call made are removed, except in layout
        `striped`: there another rank may be at work on them, and the owner's `ModelDirectory.clean` removes them.
        A committed directory is opened read-only; where some of its bytes are not what they were it is hidden again
        (`ModelDirectory.reopen`) and what is missing can be filled.
        """
        if self._lock is not None:
            raise StoreError(
                f"rank {self.catalog.rank} of {self.directory.path} is open already", hint="close it first"
            )
        self._lock = self.directory.rank_lock(self.catalog.rank)
        self._sealed = False
        self._stop.clear()
        self._allocated.clear()
        made: list[Path] = []
        try:
            require_descriptors(2 * len(self.catalog.extents) + _DESCRIPTORS_KEPT_FREE)
            kept = self._load(made)
            self.directory.save_catalog(self.catalog)
            self._journal.start(kept)
        except BaseException:
            if self.catalog.layout != "striped":
                self._remove(made)
            self.close()
            raise
        return kept

    def destination(self, piece: int) -> list[memoryview]:
        """Writable memory for a piece, in all exactly its length; its storage is reserved."""
        if self._sealed:
            raise StoreError(
                f"{self.directory.path} is sealed", hint="this is a bug: a committed piece is never written"
            )
        views = [self._file(span.file).write_view(span.offset, span.length) for span in self._spans_of(piece)]
        self._allocate(piece)
        if self._toucher is not None:
            self._wanted.put(piece)
        return views

    def contents(self, piece: int) -> list[memoryview]:
        """The bytes of a piece, read-only, without a copy."""
        return [self._file(span.file).read_view(span.offset, span.length) for span in self._spans_of(piece)]

    def digest(self, piece: int) -> bytes:
        """BLAKE3 of what is there now. Releases the interpreter lock while it works."""
        hasher = blake3()
        for view in self.contents(piece):
            hasher.update(view)
            view.release()
        return hasher.digest()

    def record(self, piece: int, digest: bytes) -> None:
        """Remember, also beyond the death of this process, that a piece is verified."""
        self.catalog.piece_start(piece)
        self._journal.record(piece, digest)

    def forget(self, piece: int) -> None:
        """Take `record` back."""
        self.catalog.piece_start(piece)
        self._journal.forget(piece)

    def forget_file(self, path: str) -> list[int]:
        """Take `record` back for every piece that holds bytes of a file; which they were."""
        pieces = pieces_of_file(self.catalog, path)
        self._journal.forget(*pieces)
        return pieces

    def regions(self) -> list[Region]:
        """Read-only memory of the whole shard, one region an extent. Addresses hold until `close`, through `seal`."""
        return [
            Region(extent.start, extent.length, self._file(extent.file).read_address + extent.offset)
            for extent in self.catalog.extents
        ]

    def writable_regions(self) -> list[Region]:
        """Writable memory of the whole shard, one region an extent. Addresses hold until `seal`; none after it.

        Whoever registers them for a device must have called `destination` for what is to be written.
        """
        return [
            Region(extent.start, extent.length, file.write_address + extent.offset)
            for extent in self.catalog.extents
            if (file := self._file(extent.file)).writable
        ]

    def prefault(self) -> None:
        """Start touching destinations ahead of their bytes, in a thread that `seal` or `close` ends.

        Fresh pages cost more than the copy into them. Pieces that `destination` was called for come first; where the
        directory lies in memory the others follow.
        """
        if self._toucher is None and not self._sealed and self.catalog.pieces:
            self._toucher = threading.Thread(target=self._touch, name="prefault", daemon=True)
            self._toucher.start()

    def seal(self) -> None:
        """Give up writing: no destination any more. Idempotent."""
        self._sealed = True
        self._end_toucher()
        for file in self._files.values():
            file.seal()

    def close(self) -> None:
        """End the thread, unmap, unlock. Memory that somebody still looks at stays mapped until they let go. Idempotent."""
        self.seal()
        self._unmap()
        self._journal.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _load(self, made: list[Path]) -> dict[int, bytes]:
        """Map the files, committed or not, and tell which recorded pieces are still what they were."""
        recorded = self._recorded()
        with self.directory.changing():
            committed = self.directory.is_committed
            mapped = self._map_committed() if committed else self._map_filling(made)
        if committed:
            kept = self._verified(recorded) if mapped else {}
            if mapped and len(kept) == self.catalog.pieces:
                self._sealed = True
                return kept
            self._unmap()
            self.directory.reopen()
            with self.directory.changing():
                self._map_filling(made)
        new = {number for number, file in self._files.items() if file.path in set(made)}
        kept = self._verified(
            {p: digest for p, digest in recorded.items() if not any(span.file in new for span in self._spans_of(p))}
        )
        self._allocated.update(kept)
        self._allocate_ahead()
        return kept

    def _map_filling(self, made: list[Path]) -> bool:
        self._make_files(made)
        self._map(writable=True)
        return True

    def _map_committed(self) -> bool:
        """Whether all files are there in their sizes."""
        try:
            self._map(writable=False)
        except StoreError as error:
            _log.warning("%s", error)
            return False
        return True

    def _unmap(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}

    def _recorded(self) -> dict[int, bytes]:
        return {piece: digest for piece, digest in self._journal.read().items() if piece < self.catalog.pieces}

    def _map(self, *, writable: bool) -> None:
        for extent in self.catalog.extents:
            if extent.file not in self._files:
                entry = self.catalog.files[extent.file]
                path = self.directory.file_path(self.catalog, entry)
                self._files[extent.file] = MappedFile(path, entry.size, writable=writable)

    def _make_files(self, made: list[Path]) -> None:
        """Every file of the catalog is there in its size, with room on the volume for what this rank holds of it."""
        held: dict[int, int] = {}
        for extent in self.catalog.extents:
            held[extent.file] = held.get(extent.file, 0) + extent.length
        needed, already = 0, 0
        places = [(entry, self.directory.file_path(self.catalog, entry)) for entry in self.catalog.files]
        for number, (entry, path) in enumerate(places):
            try:
                blocks = path.stat().st_blocks * 512
            except (FileNotFoundError, NotADirectoryError):
                blocks = 0
            except OSError as error:
                raise store_error(error, path, self.catalog.size) from error
            needed += min(held.get(number, 0), max(0, entry.size - blocks))
            already += min(held.get(number, 0), blocks)
        require_space(self.directory.state, needed, already)
        for entry, path in places:
            try:
                self._make_file(entry, path, made)
            except OSError as error:
                raise store_error(error, path, needed) from error

    def _make_file(self, entry: FileEntry, path: Path, made: list[Path]) -> None:
        top = self.directory.state
        for directory in reversed(path.relative_to(top).parents):
            (top / directory).mkdir(exist_ok=True)
            if not os.access(top / directory, os.W_OK):
                (top / directory).chmod(0o755)  # (made read-only by a commit that did not end)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            made.append(path)
        except FileExistsError:
            if not stat.S_ISREG(path.lstat().st_mode):
                raise StoreError(f"{path} is not a regular file", hint=f"remove {top} and load again") from None
            with contextlib.suppress(PermissionError):
                path.chmod(0o644)  # (read-only by a commit)
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(descriptor).st_size
            if size < entry.size:
                os.ftruncate(descriptor, entry.size)  # several ranks may do so at once: it only ever grows
            elif size > entry.size:
                if self.catalog.layout == "striped":
                    raise StoreError(
                        f"{path} has {size} bytes and must have {entry.size}: it is of another revision",
                        hint=f"remove {self.directory.state} and load again",
                    )
                os.ftruncate(descriptor, entry.size)
        finally:
            os.close(descriptor)

    def _remove(self, made: Iterable[Path]) -> None:
        """Undo what a failed `open` made, and the directories that are empty then."""
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()
            parent = path.parent
            while parent != self.directory.state:
                try:
                    parent.rmdir()
                except OSError:
                    break
                parent = parent.parent

    def _verified(self, recorded: dict[int, bytes]) -> dict[int, bytes]:
        """Those of the recorded pieces whose bytes are still what they were, in order."""
        pieces = sorted(recorded)
        if not pieces:
            return {}
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1), thread_name_prefix="verify") as pool:
            digests = pool.map(self.digest, pieces)
            kept = {piece: digest for piece, digest in zip(pieces, digests, strict=True) if digest == recorded[piece]}
        if len(kept) != len(pieces):
            _log.warning(
                "%d of %d recorded pieces in %s are not what they were; they are fetched again",
                len(pieces) - len(kept),
                len(pieces),
                self.directory.path,
            )
        return kept

    def _allocate_ahead(self) -> None:
        """Reserve storage for the shard, as far as it goes at once."""
        deadline = time.monotonic() + _ALLOCATION_SECONDS
        for extent in self.catalog.extents:
            path = self.directory.file_path(self.catalog, self.catalog.files[extent.file])
            for start in range(0, extent.length, _ALLOCATION_STEP):
                length = min(_ALLOCATION_STEP, extent.length - start)
                allocate(path, extent.offset + start, length)
                end = extent.start + start + length
                first = -(-(extent.start + start) // self.catalog.piece_size)
                stop = self.catalog.pieces if end == self.catalog.size else end // self.catalog.piece_size
                self._allocated.update(range(first, stop))
                if time.monotonic() > deadline:
                    return

    def _allocate(self, piece: int) -> None:
        if piece in self._allocated:
            return
        with self._allocation:
            if piece in self._allocated:
                return
            for span in self._spans_of(piece):
                entry = self.catalog.files[span.file]
                allocate(self.directory.file_path(self.catalog, entry), span.offset, span.length)
            self._allocated.add(piece)

    def _touch(self) -> None:
        ahead = iter(range(self.catalog.pieces) if self._in_memory() else ())
        touched: set[int] = set()
        try:
            while not self._stop.is_set():
                try:
                    piece = self._wanted.get_nowait()
                except queue.Empty:
                    piece = next(ahead, None)
                    if piece is None:
                        piece = self._wanted.get()
                if piece is None:
                    return
                if piece in touched:
                    continue
                self._allocate(piece)
                touched.add(piece)
                for span in self._spans_of(piece):
                    if not populate(self._files[span.file].write_address + span.offset, span.length):
                        return  # a kernel without this: pages are touched as they are written
        except ShardpoolError as error:
            _log.debug("touching ahead ends: %s", error)  # whoever asks for the piece is told

    def _end_toucher(self) -> None:
        thread, self._toucher = self._toucher, None
        if thread is not None:
            self._stop.set()
            self._wanted.put(None)
            thread.join()

    def _in_memory(self) -> bool:
        return filesystem_type(self.directory.state) in MEMORY_FILESYSTEMS

    def _spans_of(self, piece: int) -> list[Span]:
        return self.catalog.piece_spans(piece) if self._spans is None else self._spans[piece]

    def _file(self, number: int) -> MappedFile:
        try:
            return self._files[number]
        except KeyError:
            raise StoreError(f"{self.directory.path} is not open", hint="open the store first") from None
