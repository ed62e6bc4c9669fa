"""A whole pull over NIXL, by the commands that a pod runs: lease, offer, reads, digests, commit."""

from __future__ import annotations

import filecmp
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE = 120.0
TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "UCX_LOG_LEVEL": "fatal"}


def _free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    """A small model of two files, whose pieces span both."""
    folder = tmp_path / "seed"
    folder.mkdir()
    for number, size in enumerate((3_000_000, 5_000_000)):
        entry = {f"t{number}": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
        header = json.dumps(entry).encode()
        header += b" " * (-len(header) % 8)
        data = random.Random(number).randbytes(size)
        (folder / f"model-{number}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    (folder / "config.json").write_text('{"a": 1}')
    return folder


def _environment(directory: Path, port: int, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        **TCP,
        "SHARDPOOL_MODEL": "some/Model",
        "SHARDPOOL_REVISION": "a" * 40,
        "SHARDPOOL_DIRECTORY": str(directory),
        "SHARDPOOL_TRANSPORT": "nixl",
        "SHARDPOOL_HTTP_HOST": "127.0.0.1",
        "MX_WORKER_GRPC_PORT": str(port),
        "MX_WORKER_HOST": "127.0.0.1",
        "SHARDPOOL_BIND_HOST": "127.0.0.1",
        **more,
    }


@pytest.fixture
def source(tmp_path: Path, seed: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A ready replica that serves over NIXL, and its port."""
    port, http = _free_port(), _free_port()
    settings = _environment(
        tmp_path / "source" / "model",
        port,
        SHARDPOOL_SEED=f"directory:{seed}",
        SHARDPOOL_DISCOVERY="none",
        SHARDPOOL_HTTP_PORT=str(http),
    )
    child = subprocess.Popen([sys.executable, "-m", "shardpool", "serve"], env=settings)
    try:
        _await_ready(child, http)
        yield child, port
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE)


def _await_ready(child: subprocess.Popen[bytes], http: int) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.1)):
        assert child.poll() is None, f"the source ended with {child.returncode}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http}/readyz", timeout=10) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        pause.wait(0.1)
    pytest.fail("the source did not become ready")


def test_a_pull_over_nixl_ends_with_the_seeds_files(
    tmp_path: Path, seed: Path, source: tuple[subprocess.Popen[bytes], int]
) -> None:
    child, port = source
    directory = tmp_path / "receiver" / "model"
    settings = _environment(directory, _free_port(), SHARDPOOL_SEED="none", SHARDPOOL_PEERS=f"127.0.0.1:{port}")
    done = subprocess.run(
        [sys.executable, "-m", "shardpool", "pull"],
        env=settings,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = sorted(file.name for file in seed.iterdir())
    assert sorted(file.name for file in directory.iterdir()) == names
    assert filecmp.cmpfiles(seed, directory, names, shallow=False) == (names, [], [])
    assert "transport nixl" in done.stderr
    assert "cannot be used" not in done.stderr, "no link fell back to another transport"
    child.send_signal(signal.SIGTERM)
    assert child.wait(PATIENCE) == 0, "a source that was read from over NIXL leaves cleanly"
