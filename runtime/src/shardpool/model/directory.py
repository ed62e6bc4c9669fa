"""A model directory from nothing to committed: where its files lie meanwhile, whose it is, and how it becomes visible.

    /models/name              the final directory: not there (or empty) until every byte is verified
    /models/.name.shardpool/  the state beside it
        marker                identity and phase
        lock                  held by the process that owns the directory
        tree/                 the files while they are filled; renamed to the final directory by `commit`
        rank-R.lock, .journal, .catalog   of the process of rank R
        common-R/             rank R's own copy of files that several ranks hold (layout `sharded`)

Nothing of ours is ever inside the final directory.
"""

from __future__ import annotations

import contextlib
import enum
import filecmp
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardpool.errors import CatalogError, IntegrityError, ShardpoolError, StoreError
from shardpool.identity import SourceIdentity, explain_difference
from shardpool.log import logger
from shardpool.model.catalog import Catalog, FileEntry
from shardpool.model.files import FileLock, replace_file, store_error, sync_directory
from shardpool.model.journal import Journal
from shardpool.model.layout import rank_of_file
from shardpool.model.names import STATE_SUFFIX, shown
from shardpool.retry import Backoff, retry

_log = logger(__name__)
_VERSION = 1
_PATIENCE_SECONDS = 5.0  # for a killed run's processes to be gone
_CHANGE_SECONDS = 60.0  # a slow disk's fsync
_RANK_STATE = re.compile(r"(?:rank|common)-(\d+)(?:\.journal|\.catalog)?")
_REMOVE = "remove it, or set another SHARDPOOL_DIRECTORY"


class _Phase(enum.Enum):
    FILLING = "filling"
    COMMITTING = "committing"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class _Marker:
    mx_source_id: str
    identity: str
    phase: _Phase


class ModelDirectory:
    """The place of one model on a volume.

    The process that owns the pod locks and prepares it; the processes of its ranks fill it through `ShardStore`; the owner
    commits it. Every method may raise StoreError, which names the path.

    Args:
        path: the final directory. Its parent must exist and be writable.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        if not self.path.name:
            raise StoreError(
                f"{path} cannot be a model directory", hint="set SHARDPOOL_DIRECTORY to a path below a volume"
            )
        self.state = self.path.parent / f".{self.path.name}{STATE_SUFFIX}"
        self.tree = self.state / "tree"
        self._owner = FileLock(self.state / "lock", f"{self.path}")

    def lock(self) -> FileLock:
        """Take the directory for this process; a context manager. Raises StoreError that names who has it."""
        self._make_state()
        self._owner.acquire()
        return self._owner

    def unlock(self) -> None:
        """Give the directory back. Idempotent."""
        self._owner.release()

    def rank_lock(self, rank: int) -> FileLock:
        """Take one rank's part for this process; a context manager."""
        self._make_state()
        lock = FileLock(self.state / f"rank-{rank}.lock", f"rank {rank} of {self.path}")
        lock.acquire()
        return lock

    def prepare(self, identity: SourceIdentity, ranks: Iterable[int] | None = None) -> None:
        """Make sure that the directory is this identity's, finish or clean up what a killed run left.

        The owner calls it, before ranks open their stores. What ranks other than `ranks` left is removed.

        What is committed under another identity, or was not made by shardpool, is refused by name and left alone; what
        another identity left unfinished is removed. Processes of a killed run get a moment to end.
        """
        if os.path.ismount(self.path):
            raise StoreError(
                f"{self.path} is a mount point, which nothing can be renamed to",
                hint="mount the volume one level up, or set SHARDPOOL_DIRECTORY to a directory inside it",
            )
        self._make_state()
        with _typed(self.state):
            for lock in sorted(self.state.glob("rank-*.lock")):
                _wait_for(FileLock(lock, f"{lock.stem} of {self.path}")).release()
            marker = self._marker()
            ours = identity.mx_source_id()
            if marker is not None and marker.mx_source_id != ours and not self._finished(marker):
                _log.warning("removing the unfinished files of %s from %s", marker.mx_source_id, self.state)
                self._empty_state()
                marker = None
            if self._has_final() and (marker is None or not self._finished(marker)):
                raise StoreError(f"{self.path} exists and was not made by shardpool", hint=_REMOVE)
            if marker is None:
                self._empty_state()
                self._write_marker(_Marker(ours, identity.canonical_json(), _Phase.FILLING))
            elif marker.mx_source_id != ours:
                difference = explain_difference(identity, marker.identity)
                raise StoreError(f"{self.path} holds another model ({difference})", hint=_REMOVE)
            elif marker.phase is _Phase.COMMITTING and self._finished(marker):
                self._finish(marker)
            for leftover in self.state.glob("*.tmp"):
                leftover.unlink(missing_ok=True)
            if ranks is not None:
                self._keep_ranks(set(ranks))

    def committed(self, identity_id: str) -> bool:
        """Whether the final directory is complete, for the `mx_source_id` given. Raises StoreError when it is another's."""
        marker = self._marker()
        if marker is None or marker.phase is not _Phase.COMMITTED or not self._has_final():
            return False
        if marker.mx_source_id != identity_id:
            raise StoreError(
                f"{self.path} holds the model of identity {marker.mx_source_id}, not {identity_id}", hint=_REMOVE
            )
        return True

    @property
    def is_committed(self) -> bool:
        """Whether the final directory is complete, whosever it is."""
        marker = self._marker()
        return marker is not None and marker.phase is _Phase.COMMITTED and self._has_final()

    @property
    def root(self) -> Path:
        """Where the files are now: the final directory when committed, else the tree beside it."""
        return self.path if self.is_committed else self.tree

    def file_path(self, catalog: Catalog, entry: FileEntry) -> Path:
        """Where the process of a rank keeps a file now.

        In layout `sharded` the common files are each rank's own: two processes never write to one range of a file.
        """
        if catalog.layout == "sharded" and rank_of_file(entry.path) is None:
            return self.state / f"common-{catalog.rank}" / entry.path
        return self.root / entry.path

    def journal(self, catalog: Catalog) -> Journal:
        """The journal of a rank."""
        return Journal(self.state / f"rank-{catalog.rank}.journal", catalog.digest)

    def save_catalog(self, catalog: Catalog) -> None:
        """Keep a rank's outline for the next start."""
        self._make_state()
        with _typed(self.state):
            replace_file(self.state / f"rank-{catalog.rank}.catalog", catalog.encode())

    def saved_catalog(self, rank: int) -> Catalog | None:
        """The outline that a rank had at its last start; None where there is none that can be used."""
        path = self.state / f"rank-{rank}.catalog"
        try:
            return Catalog.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except CatalogError as error:
            _log.warning("%s is not used: %s", path, error)
            return None
        except OSError as error:
            raise store_error(error, path) from error

    def saved_catalogs(self) -> list[Catalog]:
        """The outlines of all ranks that have one here, by rank."""
        ranks = sorted(int(path.stem.removeprefix("rank-")) for path in self.state.glob("rank-*.catalog"))
        return [catalog for rank in ranks if (catalog := self.saved_catalog(rank)) is not None]

    def places(self) -> dict[str, list[Path]]:
        """Where each file of the saved outlines lies now: several places where ranks have a copy each."""
        places: dict[str, list[Path]] = {}
        for catalog in self.saved_catalogs():
            for entry in catalog.files:
                place = self.file_path(catalog, entry)
                if place not in places.setdefault(entry.path, []):
                    places[entry.path].append(place)
        return places

    def commit(self, identity: SourceIdentity, catalogs: Sequence[Catalog] | None = None) -> None:
        """Make the directory visible: complete, on disk, read-only. Does nothing when it is committed already.

        Args:
            identity: whose the directory is.
            catalogs: of every local rank; None for those that the ranks' stores have saved.

        Raises:
            StoreError: a piece or a file is missing, the directory is another identity's, or the volume fails.
        """
        if self.committed(identity.mx_source_id()):
            return
        marker = _Marker(identity.mx_source_id(), identity.canonical_json(), _Phase.COMMITTING)
        known = self._marker()
        if known is not None and known.mx_source_id != marker.mx_source_id:
            difference = explain_difference(identity, known.identity)
            raise StoreError(f"{self.state} is of another model ({difference})", hint="prepare the directory first")
        catalogs = self.saved_catalogs() if catalogs is None else catalogs
        if not catalogs:
            raise StoreError(f"nothing was loaded into {self.tree}", hint="load first")
        for catalog in catalogs:
            missing = catalog.pieces - sum(piece < catalog.pieces for piece in self.journal(catalog).read())
            if missing:
                raise StoreError(
                    f"{missing} of {catalog.pieces} pieces of rank {catalog.rank} are not verified; {self.path} stays hidden",
                    hint="load the rank to its end first",
                )
        _check_complete(catalogs)
        with _typed(self.path):
            self._join_common_files(catalogs)
            sizes = {entry.path: entry.size for catalog in catalogs for entry in catalog.files}
            self._settle_tree(sizes)
            with self.changing():
                for path in sizes:  # once more: a rank that starts anew makes its files writable
                    (self.tree / path).chmod(0o444)
                self._write_marker(marker)
                try:
                    os.rename(self.tree, self.path)
                except OSError as error:
                    if self._has_final():
                        raise StoreError(f"{self.path} exists and was not made by shardpool", hint=_REMOVE) from error
                    raise
                self._finish(marker)

    def changing(self) -> FileLock:
        """A context in which this process alone decides where the files are: `tree` or the final directory. Short."""
        return _wait_for(FileLock(self.state / "change.lock", str(self.path)), _CHANGE_SECONDS)

    def reopen(self) -> None:
        """Hide a committed directory again, since some of its bytes are not what they were; they are to be fetched again.

        Ranks may call it at once.
        """
        with self.changing(), _typed(self.path):
            marker = self._marker()
            if marker is None or marker.phase is not _Phase.COMMITTED or not self._has_final():
                return
            _log.warning("%s is hidden until it is whole again", self.path)
            self.path.chmod(0o755)
            os.rename(self.path, self.tree)
            sync_directory(self.path.parent)
            self._write_marker(_Marker(marker.mx_source_id, marker.identity, _Phase.FILLING))

    def clean(self) -> None:
        """Remove everything that is not committed. A committed directory stays, with the state that a restart needs.

        Raises StoreError that names the process which still works on it.
        """
        if not self.state.is_dir():
            return
        with contextlib.ExitStack() as held, _typed(self.state):
            if not self._owner.held:
                held.enter_context(self.lock())
            for path in sorted(self.state.glob("rank-*.lock")):
                held.enter_context(_wait_for(FileLock(path, f"{path.stem} of {self.path}")))
            if self.is_committed:
                _remove_tree(self.tree)
                return
            self._empty_state()
            for path in self.state.iterdir():
                path.unlink()  # locks that we hold; whoever opened one meanwhile sees that it is gone and makes a new one
            self.state.rmdir()

    def _join_common_files(self, catalogs: Sequence[Catalog]) -> None:
        """Give the tree the common files that each rank has a copy of, after comparing the copies."""
        placed: dict[str, Path] = {}
        for catalog in sorted(catalogs, key=lambda one: one.rank):
            for entry in catalog.files:
                source = self.file_path(catalog, entry)
                target = self.tree / entry.path
                if source == target:
                    continue
                if entry.path not in placed:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.unlink(missing_ok=True)
                    os.link(source, target)
                    placed[entry.path] = source
                elif not filecmp.cmp(placed[entry.path], source, shallow=False):
                    raise IntegrityError(
                        f"ranks hold different bytes of {shown(entry.path)}",
                        hint="a rank took another revision; remove the directory's state and load again",
                    )

    def _settle_tree(self, sizes: Mapping[str, int]) -> None:
        """The tree holds these files, read-only and on disk, and no others."""
        directories = []
        for directory, names, files in os.walk(self.tree, topdown=False):
            Path(directory).chmod(0o755)
            for name in files:
                place = Path(directory, name)
                if place.relative_to(self.tree).as_posix() not in sizes:
                    place.unlink()
            for name in names:
                with contextlib.suppress(OSError):
                    Path(directory, name).rmdir()  # (only where it is empty)
            directories.append(Path(directory))
        self.tree.mkdir(exist_ok=True)
        for path, size in sizes.items():
            place = self.tree / path
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_size != size:
                    raise StoreError(
                        f"{place} has {os.fstat(descriptor).st_size} bytes and must have {size}",
                        hint="nothing else may write to the model directory; load again",
                    )
                os.fsync(descriptor)
                os.fchmod(descriptor, 0o444)
            finally:
                os.close(descriptor)
        for place in directories:
            if place.exists():
                sync_directory(place)
                if place != self.tree:  # renaming needs the top one writable
                    place.chmod(0o555)

    def _finish(self, marker: _Marker) -> None:
        self.path.chmod(0o555)
        sync_directory(self.path)
        sync_directory(self.path.parent)
        self._write_marker(_Marker(marker.mx_source_id, marker.identity, _Phase.COMMITTED))

    def _finished(self, marker: _Marker) -> bool:
        """The final directory is there because of this marker: it is committed, or was renamed just before the end."""
        renamed = marker.phase is _Phase.COMMITTED or (marker.phase is _Phase.COMMITTING and not self.tree.exists())
        return renamed and self._has_final()

    def _has_final(self) -> bool:
        """Something is in the final place; an empty directory counts as nothing, since renaming replaces it."""
        try:
            with os.scandir(self.path) as entries:
                return next(entries, None) is not None
        except FileNotFoundError:
            return False
        except NotADirectoryError as error:
            raise StoreError(f"{self.path} is a file", hint=_REMOVE) from error
        except OSError as error:
            raise store_error(error, self.path) from error

    def _marker(self) -> _Marker | None:
        try:
            data = (self.state / "marker").read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise store_error(error, self.state) from error
        try:
            fields = json.loads(data)
            if fields["version"] != _VERSION:
                raise StoreError(
                    f"{self.state} was made by another version of shardpool (state version {fields['version']!a})",
                    hint=_REMOVE,
                )
            return _Marker(str(fields["mx_source_id"]), str(fields["identity"]), _Phase(fields["phase"]))
        except (ValueError, KeyError, TypeError):
            return None

    def _write_marker(self, marker: _Marker) -> None:
        fields = {
            "version": _VERSION,
            "mx_source_id": marker.mx_source_id,
            "identity": marker.identity,
            "phase": marker.phase.value,
        }
        replace_file(self.state / "marker", json.dumps(fields).encode())

    def _make_state(self) -> None:
        try:
            self.state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise store_error(error, error.filename or self.state) from error

    def _keep_ranks(self, ranks: set[int]) -> None:
        for path in self.state.iterdir():
            match = _RANK_STATE.fullmatch(path.name)
            if match and int(match[1]) not in ranks:
                _remove_tree(path)

    def _empty_state(self) -> None:
        """Remove everything in the state but locks: those may be held, and hold nothing."""
        for place in self.state.iterdir():
            if place.is_dir() and not place.is_symlink():
                _remove_tree(place)
            elif place.suffix != ".lock" and place.name != "lock":
                place.unlink(missing_ok=True)


def pieces_of_file(catalog: Catalog, path: str) -> list[int]:
    """The pieces that hold bytes of a file."""
    pieces: set[int] = set()
    for extent in catalog.extents:
        if catalog.files[extent.file].path == path:
            last = (extent.start + extent.length - 1) // catalog.piece_size
            pieces.update(range(extent.start // catalog.piece_size, last + 1))
    return sorted(pieces)


def _check_complete(catalogs: Sequence[Catalog]) -> None:
    """Together the catalogs hold every byte of the files that they name, and agree on their sizes."""
    sizes: dict[str, int] = {}
    ranges: dict[str, list[tuple[int, int]]] = {}
    for catalog in catalogs:
        for entry in catalog.files:
            if sizes.setdefault(entry.path, entry.size) != entry.size:
                raise StoreError(
                    f"ranks say that {shown(entry.path)} has {sizes[entry.path]} and {entry.size} bytes",
                    hint="a rank took another revision; remove the directory's state and load again",
                )
        for extent in catalog.extents:
            ranges.setdefault(catalog.files[extent.file].path, []).append((extent.offset, extent.length))
    for path, size in sizes.items():
        position = 0
        for offset, length in sorted(ranges.get(path, [])):
            if offset > position:
                break
            position = max(position, offset + length)
        if position != size:
            raise StoreError(
                f"no local rank holds byte {position} of {shown(path)}",
                hint="commit with the catalogs of all local ranks",
            )


def _remove_tree(place: Path) -> None:
    """Remove a directory of ours, also where it is read-only already. A symbolic link is removed, never followed."""
    if place.is_symlink() or not place.is_dir():
        place.unlink(missing_ok=True)
        return
    for directory, _, _ in os.walk(place):
        Path(directory).chmod(0o755)
    shutil.rmtree(place)


def _wait_for(lock: FileLock, seconds: float = _PATIENCE_SECONDS) -> FileLock:
    """Take a lock that its holder is about to give back. Raises StoreError that names the holder after some seconds."""
    retry(
        lock.acquire,
        on=(StoreError,),
        deadline=time.monotonic() + seconds,
        backoff=Backoff(0.01, longest=0.2),
    )
    return lock


@contextlib.contextmanager
def _typed(path: Path) -> Iterator[None]:
    try:
        yield
    except ShardpoolError:
        raise
    except OSError as error:
        raise store_error(error, error.filename or path) from error
