"""Names in a checkpoint or a catalog are data: what a file's path may be before it ever reaches the file system."""

from __future__ import annotations

import re
from collections.abc import Iterable

STATE_SUFFIX = ".shardpool"
_UNFIT = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_DRIVE = re.compile(r"[A-Za-z]:")
_LONGEST_COMPONENT = 255


def path_fault(path: str, longest: int) -> str:
    """Why `path` cannot be a file of a model; empty when it can.

    A fit path is relative, in POSIX form, at most `longest` bytes of UTF-8, stays inside its directory, and is spelled the
    one way that names its file.
    """
    if not path:
        return "is empty"
    if _UNFIT.search(path):
        return "has a control character, a backslash or half of a surrogate pair"
    if len(path.encode()) > longest:
        return f"is longer than {longest} bytes"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    for component in path.split("/"):
        if component in {"", ".", ".."}:
            return f"has a part {component!r}"
        if len(component.encode()) > _LONGEST_COMPONENT:
            return f"has a part longer than {_LONGEST_COMPONENT} bytes"
        if component.startswith(".") and component.lower().endswith(STATE_SUFFIX):
            return f"has a part {component!r}, a name that is reserved for the state of a load"
    return ""


def tree_fault(paths: Iterable[str]) -> str:
    """Why files of these (fit) paths cannot lie in one directory; empty when they can.

    Paths that differ in case only are refused: on some volumes they are one file.
    """
    files: dict[str, str] = {}
    for path in paths:
        folded = path.casefold()
        other = files.get(folded)
        if other == path:
            return f"names {shown(path)} twice"
        if other is not None:
            return f"names {shown(other)} and {shown(path)}, which differ in case only"
        files[folded] = path
    directories: dict[str, str] = {}
    for path in files.values():
        end = path.rfind("/")
        while end > 0:
            parent = path[:end]
            known = directories.setdefault(parent.casefold(), parent)
            if known != parent:
                return f"names directories {shown(known)} and {shown(parent)}, which differ in case only"
            if parent.casefold() in files:
                return f"names {shown(parent)} both as a file and as a directory"
            end = path.rfind("/", 0, end)
    return ""


def shown(name: str, longest: int = 120) -> str:
    """A name for an error's text: quoted, ASCII, on one line, cut where it is long."""
    return ascii(name if len(name) <= longest else name[:longest] + "...")
