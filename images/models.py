"""Lay out the models that the demo's and the tests' hubs serve, in two editions: the same ids at two revisions.

    python images/models.py demo OUT MINILM     the MiniLM model; its second edition has another model card
    python images/models.py e2e OUT             made checkpoints: whole ones and per-rank ones

OUT/first and OUT/second hold OWNER/NAME folders. Prints a list of what was made: edition, id, revision, and each file's size and SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "tools"))

import hub_server
from make_checkpoint import make_checkpoint

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
EDITIONS = ("first", "second")
MIB = 1 << 20
LFS_BYTES = 64 * 1024  # the default of hub_server.py
# name, bytes, per-rank files for so many ranks, editions
MADE = (
    ("whole", 24 * MIB, 0, EDITIONS),
    ("two-ranks", 16 * MIB, 2, EDITIONS),
    ("four-ranks", 16 * MIB, 4, EDITIONS),
    ("other", 8 * MIB, 0, EDITIONS[:1]),
)


def lay_out_demo(out: Path, source: Path) -> None:
    """Both editions of MiniLM. The second shares the first's files by links, so that the image holds the weights once."""
    first, second = (out / edition / MINILM for edition in EDITIONS)
    shutil.copytree(source, first, ignore=shutil.ignore_patterns("__pycache__"))
    for file in [path for path in first.rglob("*") if path.is_file()]:
        link = second / file.relative_to(first)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(file, link.parent))
    card = second / "README.md"
    text = card.read_text(encoding="utf-8")
    card.unlink()
    card.write_text(f"{text}\nSecond edition: the weights of the first, another model card.\n", encoding="utf-8")


def lay_out_made(out: Path) -> None:
    """Checkpoints whose bytes differ from edition to edition."""
    for name, size, ranks, editions in MADE:
        for edition in editions:
            seed = EDITIONS.index(edition)
            make_checkpoint(out / edition / "e2e" / name, size=size, files=2, tensors=48, ranks=ranks, seed=seed)


def listing(out: Path) -> list[dict[str, Any]]:
    """What the hub will say of the models below OUT."""
    found = []
    for edition in EDITIONS:
        catalogue = hub_server.Catalogue(out / edition, LFS_BYTES)
        for folder in sorted((out / edition).glob("*/*")):
            model = folder.relative_to(out / edition).as_posix()
            answer = catalogue.model(model)
            assert answer is not None
            revision, files = answer
            contents = {
                path: {"size": file.size, "sha256": hashlib.sha256(file.real.read_bytes()).hexdigest()}
                for path, file in files.items()
            }
            found.append({"edition": edition, "id": model, "revision": revision, "files": contents})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("demo", "e2e"))
    parser.add_argument("out", type=Path)
    parser.add_argument("source", type=Path, nargs="?")
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    if options.what == "demo":
        lay_out_demo(options.out, options.source)
    else:
        lay_out_made(options.out)
    print(json.dumps(listing(options.out), indent=1))


if __name__ == "__main__":
    main()
