"""A model that lies in a directory: plain, a snapshot of a hub cache, or a whole hub cache."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardpool.errors import SeedError
from shardpool.seed.base import SeedFile
from shardpool.seed.filling import SLICE, fill

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NOT_OF_THE_MODEL = {".git", ".cache", "lost+found"}
"""Directories at the top that tools and file systems leave there: git, `hf download --local-dir`, ext4."""

_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR, errno.ENETDOWN, errno.ENETUNREACH}
_HINT = "check that the volume is mounted there and that this user (uid 65532 in the image) may read it"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the files are: links may lead into `root` or `blobs` and nowhere else."""

    root: Path
    blobs: Path | None


@dataclass(frozen=True, slots=True)
class _Found:
    path: str
    real: Path
    size: int
    sha256: str
    stamp: tuple[int, int, int, int]


class DirectorySeed:
    """Reads files where they lie.

    Args:
        path: a directory with the model's files; or one snapshot of a hub cache; or a hub cache (of one model, or the
            folder that holds many, or HF_HOME).
        model: hub id, to choose in a cache of many models.
        revision: commit or ref, to choose in a cache of several snapshots.
    """

    def __init__(self, path: str | Path, *, model: str = "", revision: str = "") -> None:
        self._path = Path(path)
        self._model = model
        self._revision = revision
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._found: dict[str, _Found] | None = None

    def describe(self) -> str:
        """Such as `directory /seed`."""
        return f"directory {self._path}"

    def files(self) -> Sequence[SeedFile]:
        """Walk the directory once; later calls repeat what was found. Reads no file."""
        return [SeedFile(found.path, found.size, found.sha256) for found in self._listing().values()]

    def read_into(self, path: str, offset: int, buffer: memoryview) -> None:
        """Fill the buffer from a file. A file that was changed or replaced since it was listed is refused."""
        found = self._listing().get(path)
        where = f"{self._path / path}"
        if found is None:
            raise SeedError(f"{where} is not a file of the seed")
        if offset < 0 or offset + len(buffer) > found.size:
            raise SeedError(f"{where}: bytes {offset} to {offset + len(buffer)} are outside its {found.size}")
        fill(buffer, offset, lambda at, rest: _read(found, where, at, rest), where=where, stop=self._stop)

    def close(self) -> None:
        """Let reads under way end."""
        self._stop.set()

    def _listing(self) -> dict[str, _Found]:
        with self._lock:
            if self._found is None:
                try:
                    place = self._place()
                    found = sorted(_walk(place, place.root, ""), key=lambda file: file.path)
                except OSError as error:
                    raise _failure(error, error.filename or str(self._path)) from error
                if not found:
                    raise SeedError(f"{self.describe()} holds no file", hint=_HINT)
                self._found = {file.path: file for file in found}
            return self._found

    def _place(self) -> _Place:
        if not str(self._path).strip() or str(self._path) == ".":
            raise SeedError("the seed's directory has no path", hint="set SHARDPOOL_SEED=directory:/path")
        root = Path(os.path.realpath(self._path))
        if not root.is_dir():
            what = "is not a directory" if root.exists() else "does not exist"
            raise SeedError(f"{self.describe()} {what}", hint=_HINT)
        folder = "models--" + self._model.replace("/", "--")
        for cache in (root, root / folder, root / "hub" / folder):
            if (cache.name.startswith("models--") or cache == root) and _is_cache(cache):
                return self._snapshot(cache)
        if any(
            _is_cache(other) for parent in (root, root / "hub") if parent.is_dir() for other in parent.glob("models--*")
        ):
            raise SeedError(
                f"{self.describe()} is a hub cache without {self._model or 'a chosen model'}",
                hint="set SHARDPOOL_MODEL to one that it holds, or point SHARDPOOL_SEED at a snapshot",
            )
        if root.parent.name == "snapshots" and (blobs := root.parent.parent / "blobs").is_dir():
            return _Place(root, Path(os.path.realpath(blobs)))
        return _Place(root, None)

    def _snapshot(self, cache: Path) -> _Place:
        known = sorted(entry.name for entry in (cache / "snapshots").iterdir() if entry.is_dir())
        wanted = self._revision
        if wanted and wanted not in known and not _COMMIT.fullmatch(wanted):
            reference = Path(os.path.normpath(cache / "refs" / wanted))
            if (cache / "refs") in reference.parents and reference.is_file():
                wanted = reference.read_text().strip()
        if not wanted and len(known) == 1:
            wanted = known[0]
        if wanted not in known:
            raise SeedError(
                f"{self.describe()} has no snapshot of revision {self._revision or '(none given)'}",
                hint=f"it holds {', '.join(known) or 'none'}; set SHARDPOOL_REVISION to one of them",
            )
        return _Place(Path(os.path.realpath(cache / "snapshots" / wanted)), Path(os.path.realpath(cache / "blobs")))


def _is_cache(path: Path) -> bool:
    return (path / "snapshots").is_dir() and (path / "blobs").is_dir()


def _walk(place: _Place, directory: Path, prefix: str, above: tuple[Path, ...] = ()) -> Iterator[_Found]:
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        # Kubernetes projects ConfigMaps and Secrets through `..data`; what it holds is linked to from beside it.
        if name.startswith("..") or (not prefix and name in _NOT_OF_THE_MODEL):
            continue
        path = prefix + name
        real = _real(place, directory / name, path)
        kind = os.stat(real)
        if stat.S_ISDIR(kind.st_mode):
            if real in above or real == place.root:
                raise SeedError(f"{directory / name} is a link to a directory above it", hint="remove the link")
            yield from _walk(place, real, path + "/", (*above, real))
        elif stat.S_ISREG(kind.st_mode):
            named = place.blobs is not None and real.parent == place.blobs and _SHA256.fullmatch(real.name)
            yield _Found(path, real, kind.st_size, real.name if named else "", _stamp(kind))
        else:
            raise SeedError(f"{directory / name} is neither a file nor a directory", hint="remove it from the seed")


def _real(place: _Place, path: Path, name: str) -> Path:
    """Where a path leads to, which must be inside the model or among the cache's blobs."""
    real = Path(os.path.realpath(path))
    if place.blobs is not None and path.is_symlink() and not real.exists():
        # A cache that is mounted elsewhere than it was made: its absolute links still name the blob.
        target = Path(os.readlink(path))
        if target.is_absolute() and target.parent.name == "blobs":
            real = Path(os.path.realpath(place.blobs / target.name))
    inside = place.root in real.parents or (place.blobs is not None and place.blobs in real.parents)
    if not inside:
        raise SeedError(
            f"{name} in {place.root} is a link that leaves the seed (to {real})",
            hint="copy the file into the seed, or point SHARDPOOL_SEED at where it lies",
        )
    if not real.exists():
        raise SeedError(
            f"{name} in {place.root} is a link to {real}, which does not exist",
            hint="fetch the file into the seed anew",
        )
    return real


def _stamp(kind: os.stat_result) -> tuple[int, int, int, int]:
    return kind.st_dev, kind.st_ino, kind.st_size, kind.st_mtime_ns


def _read(found: _Found, where: str, offset: int, buffer: memoryview) -> Iterator[int]:
    try:
        descriptor = os.open(found.real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if _stamp(os.fstat(descriptor)) != found.stamp:
                raise SeedError(
                    f"{where} has changed since it was listed", hint="a seed must not change; start the replica again"
                )
            done = 0
            while done < len(buffer):
                count = os.preadv(descriptor, [buffer[done : done + SLICE]], offset + done)
                if count == 0:
                    raise SeedError(f"{where} ends at byte {offset + done} of {found.size}", hint="it was truncated")
                done += count
                yield count
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _failure(error, where) from error


def _failure(error: OSError, where: str) -> SeedError:
    return SeedError(f"{where} cannot be read: {error.strerror}", hint=_HINT, transient=error.errno in _PASSING)
