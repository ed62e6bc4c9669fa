"""Resolve what the image installs into requirements.txt: every wheel's version and SHA-256, for each architecture.

    python images/runtime/lock.py --python 3.11 > images/runtime/requirements.txt

The output names no index: `pip download --require-hashes` then takes the same bytes from whichever index it is given.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parents[1] / "runtime"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# Every manylinux tag that glibc 2.36 (bookworm) satisfies and that wheels are published for.
GLIBC_MINORS = (5, 12, 17, 24, 26, 27, 28, 31, 34)
PIP = (sys.executable, "-m", "pip")
WITHOUT_DEPENDENCIES = ("nixl-cu12",)


def platform_arguments(architecture: str, python: str) -> list[str]:
    """pip's arguments that make it choose wheels for an architecture (`amd64`, `arm64`) and a Python (`3.11`)."""
    machine = MACHINES[architecture]
    tags = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS] + [f"manylinux2014_{machine}"]
    platforms = [argument for tag in tags for argument in ("--platform", tag)]
    return [*platforms, "--python-version", python, "--implementation", "cp", "--only-binary=:all:"]


def resolve(architecture: str, python: str) -> dict[str, tuple[str, str]]:
    """Name to (version, sha256) of every wheel that `requirements.in` and shardpool's own needs come to."""
    wanted = [
        line
        for line in (HERE / "requirements.in").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    bare = [line for line in wanted if line.startswith(WITHOUT_DEPENDENCIES)]
    with tempfile.TemporaryDirectory() as folder:
        # The project itself has to be a wheel: pip builds nothing for a foreign platform.
        subprocess.run(
            [*PIP, "wheel", "-q", "--no-deps", "-w", folder, str(RUNTIME)],
            check=True,
            stdout=sys.stderr,
        )
        wheel = next(Path(folder).glob("shardpool-*.whl"))
        full = [f"shardpool[hub,s3] @ {wheel.as_uri()}", *(line for line in wanted if line not in bare)]
        found = _report([*platform_arguments(architecture, python), *full], folder)
        found |= _report([*platform_arguments(architecture, python), "--no-deps", *bare], folder)
    found.pop("shardpool")
    return found


def _report(arguments: Iterable[str], folder: str) -> dict[str, tuple[str, str]]:
    report = Path(folder) / "report.json"
    subprocess.run(
        [*PIP, "install", "-q", "--dry-run", "--ignore-installed", "--target", folder, "--report", report, *arguments],
        check=True,
        stdout=sys.stderr,
    )
    return {
        _canonical(item["metadata"]["name"]): (
            item["metadata"]["version"],
            item["download_info"]["archive_info"].get("hashes", {}).get("sha256", ""),
        )
        for item in json.loads(report.read_text(encoding="utf-8"))["install"]
    }


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def render(resolved: Mapping[str, Mapping[str, tuple[str, str]]], python: str) -> str:
    """The text of requirements.txt. Architectures must agree on versions; ValueError names the first that do not."""
    versions: dict[str, str] = {}
    hashes: dict[str, list[str]] = {}
    for found in resolved.values():
        for name, (version, digest) in found.items():
            if versions.setdefault(name, version) != version:
                raise ValueError(f"{name} is {versions[name]} on one architecture and {version} on another")
            if digest not in hashes.setdefault(name, []):
                hashes[name].append(digest)
    lines = [f"# Made by `make image-lock` for Python {python} on {', '.join(resolved)}. Do not edit."]
    for name in sorted(versions):
        lines.append(" \\\n    ".join([f"{name}=={versions[name]}", *(f"--hash=sha256:{d}" for d in hashes[name])]))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.11", help="Python version of the base image")
    parser.add_argument("--arguments", choices=tuple(MACHINES), help="print pip's arguments for an architecture, end")
    options = parser.parse_args()
    if options.arguments:
        print(*platform_arguments(options.arguments, options.python))
        return
    print(render({name: resolve(name, options.python) for name in MACHINES}, options.python), end="")


if __name__ == "__main__":
    main()
