"""A small checkpoint and pods on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from make_checkpoint import make_checkpoint
from pods import Pod, pods


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 MB in two files with small files beside them: 62 pieces."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "model", size=16 << 20, files=2, tensors=24)


@pytest.fixture
def pod() -> Iterator[Callable[..., Pod]]:
    """Makes pods that end with the test."""
    with pods() as make:
        yield make
