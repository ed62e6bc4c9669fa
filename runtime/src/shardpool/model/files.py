"""What the store asks of the operating system, with errors that say which path, what is wrong and what is needed."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import socket
from pathlib import Path

from shardpool.errors import StoreError

MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs", "hugetlbfs"})
_MADV_POPULATE_WRITE = 23  # Linux 5.14
_PAGE = os.sysconf("SC_PAGESIZE")
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def store_error(error: OSError, path: str | os.PathLike[str], needed: int = 0) -> StoreError:
    """The typed error for what the operating system said.

    Args:
        error: as raised.
        path: the path that was worked on.
        needed: bytes that were to be written there, where that matters.
    """
    need = f" ({needed} bytes are needed)" if needed else ""
    code = error.errno
    if code == errno.ENOSPC:
        return StoreError(f"no space is left for {path}{need}", hint="enlarge the volume, or use another directory")
    if code == errno.EDQUOT:
        return StoreError(
            f"the disk quota does not allow {path}{need}", hint="raise the quota, or use another directory"
        )
    if code == errno.EROFS:
        return StoreError(
            f"the file system of {path} is read-only{need}",
            hint="mount a writable volume there, or use another directory",
        )
    if code in {errno.EACCES, errno.EPERM}:
        return StoreError(
            f"user {os.geteuid()} may not write {path}{need}",
            hint="set fsGroup or the owner of the volume, or use another directory",
        )
    if code in {errno.EMFILE, errno.ENFILE}:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return StoreError(f"the limit of {limit} open files is too low to open {path}", hint="raise it (`ulimit -n`)")
    if code == errno.EFBIG:
        return StoreError(f"the file system of {path} does not take files that large{need}", hint="use another volume")
    return StoreError(f"{path}: {os.strerror(code) if code else error}{need}", hint="check the volume")


def require_descriptors(needed: int) -> None:
    """Make sure that `needed` more files can be opened, raising the soft limit where the hard one lets us.

    Raises StoreError that names the limit and the value needed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 64
    wanted = in_use + needed
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard == resource.RLIM_INFINITY or wanted <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return
    raise StoreError(
        f"the limit of {hard} open files is too low: the model's files need {wanted}",
        hint=f"raise RLIMIT_NOFILE (`ulimit -n {wanted}`)",
    )


def filesystem_type(path: str | os.PathLike[str]) -> str:
    """The name of the file system that `path` is on, such as `ext4` or `tmpfs`; empty where it cannot be told."""
    try:
        device = os.stat(path).st_dev
        mark = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
            for line in table:
                mount, _, rest = line.partition(" - ")
                if mount.split(" ")[2] == mark:
                    return rest.split(" ")[0]
    except (OSError, IndexError):
        pass
    return ""


def require_space(path: Path, needed: int, already: int) -> None:
    """Raise StoreError when the volume of `path` has less than `needed` bytes free.

    Args:
        path: an existing directory.
        needed: bytes that are still to be allocated.
        already: bytes that the model has there already (for the error's text).
    """
    try:
        state = os.statvfs(path)
    except OSError as error:
        raise store_error(error, path, needed) from error
    free = state.f_bavail * state.f_frsize
    if state.f_blocks and needed > free:  # (some network file systems say 0 of 0)
        have = f", with {already} there already" if already else ""
        raise StoreError(
            f"{path} has {free} bytes free on {filesystem_type(path) or 'its volume'} and needs {needed}{have}",
            hint="enlarge the volume, or use another directory",
        )


def allocate(path: Path, offset: int, length: int, descriptor: int | None = None) -> None:
    """Reserve storage for bytes of an existing file, so that writing to its mapping cannot fail later.

    Does nothing where the file system cannot reserve. Raises StoreError.
    """
    opened = None
    try:
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC) if descriptor is None else None
        os.posix_fallocate(descriptor if opened is None else opened, offset, length)  # type: ignore[arg-type]
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise store_error(error, path, length) from error
    finally:
        if opened is not None:
            os.close(opened)


def populate(address: int, length: int) -> bool:
    """Touch writable memory ahead of its use; whether the kernel can. Releases the interpreter lock while it works."""
    first = address // _PAGE * _PAGE
    result: int = _libc.madvise(first, -(-(address + length - first) // _PAGE) * _PAGE, _MADV_POPULATE_WRITE)
    return result == 0 or ctypes.get_errno() not in _UNSUPPORTED


def sync_directory(path: Path) -> None:
    """Make what was created, renamed or removed in a directory outlive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Give a small file new contents: the old ones or the new ones are there at any time. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


class FileLock:
    """An advisory lock on a file; the kernel frees it when the process ends, however it ends.

    Args:
        path: of the lock file, which is created where it is missing.
        what: what the lock guards, for the error's text.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self.what = what
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """This object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock. Raises StoreError that names the holder when somebody has it."""
        if self._descriptor is not None:
            raise StoreError(f"{self.what} is locked by this process already", hint="close it first")
        while True:
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise store_error(error, self.path) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.exists(self.path) and os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}".encode(), 0)
                    self._descriptor = descriptor
                    return
            except FileNotFoundError:
                pass
            except BlockingIOError:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
                os.close(descriptor)
                raise StoreError(
                    f"{self.what} is in use by {ascii(holder)[1:-1]}", hint="end that process, or use another directory"
                ) from None
            except OSError as error:
                os.close(descriptor)
                raise store_error(error, self.path) from error
            os.close(descriptor)  # somebody removed the file meanwhile: lock the one that is there now

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FileLock:
        if self._descriptor is None:
            self.acquire()
        return self

    def __exit__(self, *unused: object) -> None:
        self.release()
