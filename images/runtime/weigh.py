"""Say what the parts of the running image weigh, largest first: `docker run -i --entrypoint python3 IMAGE - < weigh.py`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

PACKAGES = next(Path("/opt/shardpool/lib").glob("python3.*")) / "site-packages"


def megabytes(top: Path) -> float:
    """Size of a file or of everything in a folder, links not followed."""
    files = (Path(folder) / name for folder, _, names in os.walk(top) for name in names)
    return sum(file.lstat().st_size for file in ([top] if top.is_file() else files)) / 1e6


def show(title: str, entries: Iterable[Path]) -> None:
    """Print the twelve heaviest of the entries under a title with their sum."""
    sizes = sorted(((megabytes(entry), entry.name) for entry in entries), reverse=True)
    print(f"{sum(size for size, _ in sizes):7.1f} MB  {title}")
    for size, name in sizes[:12]:
        print(f"{size:7.1f}       {name}")


if __name__ == "__main__":
    show("/", (Path("/") / name for name in ("etc", "home", "opt", "usr", "var")))
    show(str(PACKAGES), PACKAGES.iterdir())
