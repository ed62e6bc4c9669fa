"""Take out of an environment what shardpool never loads; run while the image is built.

- NIXL: what neither its UCX plugin nor its POSIX plugin needs, its expert-parallel package, and everything that works on GPU memory: a pool's
  bytes are in host memory. What stays is found by following the libraries' own dependencies, so that a newer wheel needs no new list.
- botocore: the descriptions of services other than S3 and those that give credentials for it.
- numpy: tests, headers, and the parts that arrays in themselves do not need.
- pygments: the lexers of languages that a traceback is not written in.
- Programs, headers and examples that packages install beside their modules.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PLUGINS = ("libplugin_UCX.so", "libplugin_POSIX.so")
GPU_ONLY = re.compile(r"cuda|perftest|gda|gdp|gdr|rocm|_ze")
SERVICES = frozenset({"s3", "sts", "sso", "sso-oidc", "signin"})
NUMPY_UNUSED = ("f2py", "distutils", "random", "polynomial", "ma", "testing", "_core/include", "_core/lib")
LEXERS = frozenset({"__init__.py", "_mapping.py", "python.py", "json.py", "data.py", "special.py"})
PROGRAMS = re.compile(r"python.*|shardpool")


def prune_nixl(packages: Path) -> None:
    """Keep the closure of NIXL's bindings, PLUGINS and UCX's host modules."""
    shutil.rmtree(packages / "nixl_ep_cu12", ignore_errors=True)
    libraries = packages / "nixl_cu12.libs"
    roots = [
        *(packages / "nixl_cu12").glob("*.so"),
        *(libraries / "nixl" / name for name in PLUGINS),
        *(module for module in (libraries / "ucx").glob("*.so*") if not GPU_ONLY.search(module.name)),
    ]
    kept = needed(roots)
    for file in libraries.rglob("*"):
        if file.is_file() and file.resolve() not in kept:
            file.unlink()


def needed(roots: Iterable[Path]) -> set[Path]:
    """The roots and every library that they load, as the dynamic linker finds them."""
    kept = set()
    for root in roots:
        kept.add(root.resolve(strict=True))
        listing = subprocess.run(["ldd", str(root)], check=True, capture_output=True, text=True).stdout
        kept |= {Path(path).resolve() for path in re.findall(r"=> (/\S+)", listing)}
    return kept


def prune_botocore(packages: Path) -> None:
    """Keep the data of SERVICES and the files that all of them share."""
    for entry in (packages / "botocore" / "data").iterdir():
        if entry.is_dir() and entry.name not in SERVICES:
            shutil.rmtree(entry)
    for entry in (packages / "boto3" / "data").iterdir():
        if entry.is_dir() and entry.name not in SERVICES:
            shutil.rmtree(entry)


def prune_numpy(packages: Path) -> None:
    """Drop what only building and testing against numpy needs, and parts that are loaded only when they are used."""
    for unused in (packages / "numpy" / name for name in NUMPY_UNUSED):
        shutil.rmtree(unused, ignore_errors=True)
    for pattern in ("*.pyi", "*.pxd", "_core/_*tests*.so", "_core/_simd*.so"):
        for file in (packages / "numpy").rglob(pattern):
            file.unlink()


def prune_lexers(packages: Path) -> None:
    """Keep LEXERS of pygments."""
    for lexer in (packages / "pygments" / "lexers").iterdir():
        if lexer.name not in LEXERS:
            lexer.unlink()


def prune_surroundings(environment: Path, packages: Path) -> None:
    """Drop other programs than shardpool, headers, examples, tests."""
    for program in (environment / "bin").iterdir():
        if not PROGRAMS.fullmatch(program.name):
            program.unlink()
    for folder in (environment / "include", environment / "pkgconfig", packages / "nixl_cu12.scripts"):
        shutil.rmtree(folder, ignore_errors=True)
    for tests in [found for found in packages.rglob("tests") if found.is_dir()]:
        shutil.rmtree(tests)


def main() -> None:
    [environment] = map(Path, sys.argv[1:])
    [packages] = environment.glob("lib/python3.*/site-packages")
    prune_nixl(packages)
    prune_botocore(packages)
    prune_numpy(packages)
    prune_lexers(packages)
    prune_surroundings(environment, packages)


if __name__ == "__main__":
    main()
