"""Checkpoints and empty volumes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from make_checkpoint import make_checkpoint


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of two files with odd tensors and small files; about 2 MB."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "model", size=2 << 20, files=2, tensors=40, odd=True)


@pytest.fixture(scope="session")
def per_rank_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of per-rank files for two ranks, two parts each."""
    return make_checkpoint(tmp_path_factory.mktemp("ranks") / "model", size=1 << 20, files=2, tensors=16, ranks=2)


@pytest.fixture(params=["disk", "memory"])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An empty directory on a disk, and one on a memory file system."""
    if request.param == "disk":
        yield tmp_path
        return
    place = Path("/dev/shm", f"shardpool-test-{os.getpid()}-{tmp_path.name}")
    place.mkdir()
    yield place
    for directory, _, _ in os.walk(place):
        Path(directory).chmod(0o755)
    shutil.rmtree(place)
