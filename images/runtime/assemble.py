"""Lay out the image's root file system: Python, the libraries that it and an environment load, certificates, a user. Nothing else.

    python3 assemble.py ENVIRONMENT ROOT

Runs in the base image while the image is built. No shell, package manager, compiler or installer comes along. For every Debian package of
which a file is taken, its licence and its entry of the package list do, so that scanners and auditors see what is there.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

STDLIB_UNUSED = re.compile(
    r"__pycache__|test|idlelib|tkinter|turtledemo|turtle\.py|ensurepip|lib2to3|pydoc_data|site-packages|dist-packages|config-.*"
)
# Loaded by name at run time (thread cancellation), so no dependency list has it.
LOADED_BY_NAME = "libgcc_s.so.1"
DATA = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/openssl.cnf",
    "/usr/lib/ssl/openssl.cnf",
    "/usr/lib/ssl/cert.pem",
    "/usr/lib/ssl/certs",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/debian_version",
    "/etc/ld.so.cache",
    "/etc/mime.types",
)
MERGED = ("bin", "sbin", "lib", "lib64")
USER = 65532


class Root:
    """The tree being made. Copies keep their path, and the symbolic links that lead to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.taken: set[Path] = set()
        root.mkdir(parents=True)
        for name in MERGED:
            if os.path.islink(f"/{name}"):
                os.symlink(os.readlink(f"/{name}"), root / name)

    def take(self, path: Path) -> None:
        """Copy a file with all links on the way to it, or a link to a folder alone. A path that is not there is left out."""
        while True:
            path = path.parent.resolve() / path.name  # so that /lib/x is taken as /usr/lib/x where they are one
            if path in self.taken or not path.exists():
                return
            self.taken.add(path)
            target = self.root / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_symlink():
                shutil.copy2(path, target)
                return
            os.symlink(os.readlink(path), target)
            path = path.parent / os.readlink(path)
            if path.is_dir():
                return

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def stdlib() -> Iterator[Path]:
    """Every file of the standard library that a service may load."""
    for folder, folders, files in os.walk(sysconfig.get_path("stdlib")):
        folders[:] = [name for name in folders if not STDLIB_UNUSED.fullmatch(name)]
        yield from (Path(folder) / name for name in files if not STDLIB_UNUSED.fullmatch(name))


def libraries(programs: Iterable[Path], environment: Path) -> set[Path]:
    """What the dynamic linker loads for the programs from outside the environment, itself included."""
    found: set[Path] = set()
    for program in programs:
        listing = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
        found |= {Path(path) for path in re.findall(r"(?:=> |^\s*)(/\S+) \(", listing, re.MULTILINE)}
    return {path for path in found if environment not in path.resolve().parents}


def owners(paths: Iterable[Path]) -> set[str]:
    """Names of the Debian packages that the files are from."""
    names = [str(path) for path in paths]
    names += [name.removeprefix("/usr") for name in names if name.startswith("/usr/lib")]
    # It ends with 1 when any of the files is no package's, such as a Python built from source.
    answer = subprocess.run(["dpkg-query", "-S", *names], check=False, capture_output=True, text=True).stdout
    return {line.partition(":")[0] for line in answer.splitlines() if not line.startswith("diversion")}


def main() -> None:
    environment, root = Path(sys.argv[1]), Root(Path(sys.argv[2]))
    interpreter = Path(sys.executable)
    programs = [interpreter.resolve(), *Path(sysconfig.get_path("platstdlib")).rglob("lib-dynload/*.so")]
    programs += [file for file in environment.rglob("*.so*") if file.is_file()]
    needed = libraries(programs, environment)
    home_of_libc = next(path.parent for path in needed if path.name.startswith("libc.so"))
    for path in (
        *(interpreter.parent / name for name in ("python3", "python", interpreter.resolve().name)),
        *stdlib(),
        *needed,
        home_of_libc / LOADED_BY_NAME,
        *map(Path, DATA),
    ):
        root.take(path)
    for package in sorted(owners(root.taken)):
        root.take(Path("/usr/share/doc") / package / "copyright")
        status = subprocess.run(["dpkg-query", "-s", package], check=True, capture_output=True, text=True).stdout
        root.write(f"var/lib/dpkg/status.d/{package}", status)
    root.write(
        "etc/passwd", f"root:x:0:0:root:/root:/sbin/nologin\nshardpool:x:{USER}:{USER}::/home/shardpool:/sbin/nologin\n"
    )
    root.write("etc/group", f"root:x:0:\nshardpool:x:{USER}:\n")
    for name, mode, owner in (("tmp", 0o1777, 0), ("home/shardpool", 0o750, USER)):
        made = root.root / name
        made.mkdir(parents=True)
        made.chmod(mode)
        os.chown(made, owner, owner)
    # The root is read-only when it runs: what is not compiled now would be compiled at every start.
    library = root.root / sysconfig.get_path("stdlib").lstrip("/")
    for folder, strip in ((library, str(root.root)), (environment / "lib", None)):
        trusted = py_compile.PycInvalidationMode.UNCHECKED_HASH
        if not compileall.compile_dir(folder, stripdir=strip, quiet=1, workers=0, invalidation_mode=trusted):
            raise SystemExit(f"a module in {folder} does not compile")


if __name__ == "__main__":
    main()
