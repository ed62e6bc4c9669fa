"""An egress cap that is read from a file and followed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpool.egress_file import follow_limit, read_limit
from shardpool.errors import ConfigurationError


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[tuple[Path, queue.SimpleQueue[float]]]:
    """A file with 100, and what its follower is told."""
    path = tmp_path / "limit"
    path.write_text("100\n")
    told: queue.SimpleQueue[float] = queue.SimpleQueue()
    stop = threading.Event()
    thread = threading.Thread(target=follow_limit, args=(path, told.put, stop))
    thread.start()
    yield path, told
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def test_the_limit_is_told_at_once_and_when_it_changes(followed: tuple[Path, queue.SimpleQueue[float]]) -> None:
    path, told = followed
    assert told.get(timeout=20) == 100
    path.write_text("250.5")
    assert told.get(timeout=20) == 250.5


def test_a_file_that_makes_no_sense_leaves_the_cap_as_it_is(followed: tuple[Path, queue.SimpleQueue[float]]) -> None:
    path, told = followed
    assert told.get(timeout=20) == 100
    for text in ("fast", "-1", "nan", ""):
        path.write_text(text)
    path.unlink()
    path.write_text("7")
    assert told.get(timeout=20) == 7
    assert told.empty()


@pytest.mark.parametrize("text", ["fast", "-1", "nan", "", "1e9"])
def test_what_is_no_limit_is_refused_with_the_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "limit"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=str(path)):
        read_limit(path)
    path.unlink()
    with pytest.raises(ConfigurationError, match=str(path)):
        read_limit(path)
