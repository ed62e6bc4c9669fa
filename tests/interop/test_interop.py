"""ModelExpress 0.7.0 as it is published reads from our pool, and we read from it."""

from __future__ import annotations

import json
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from conftest import ENVIRONMENT, HERE, MX_IDENTITY, PATIENCE, Source, await_ready, run
from ports import free_port, free_ports_in_a_row

REVISION = "b" * 40
POOL_IDENTITY = {
    "mx_version": "0.7.0",
    "model_name": "some/Pool",
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "revision": REVISION,
    "extra_parameters": {"shardpool_layout": "whole"},
}
TENSORS = {
    "embed.weight": ("F32", "torch.float32", (1024, 2048), 4),
    "layer.weight": ("BF16", "torch.bfloat16", (300, 7), 2),
    "layer.scale": ("F16", "torch.float16", (1,), 2),
    "steps": ("I64", "torch.int64", (17,), 8),
}


def _checkpoint(folder: Path) -> dict[str, str]:
    """Write a safetensors file; the digest of each tensor's bytes."""
    folder.mkdir()
    entries, data, digests = {}, b"", {}
    for seed, (name, (dtype, _, shape, item)) in enumerate(TENSORS.items()):
        size = item
        for extent in shape:
            size *= extent
        content = random.Random(seed).randbytes(size)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + size]}
        data += content
        digests[name] = blake3(content).hexdigest()
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    (folder / "config.json").write_text("{}")
    return digests


@pytest.fixture
def pool(tmp_path: Path, start: Callable[..., Source]) -> tuple[Source, int, dict[str, str]]:
    """A ready replica of shardpool with NIXL's listener open, its port, and its tensors' digests."""
    digests = _checkpoint(tmp_path / "seed")
    port, http = free_ports_in_a_row(1), free_port()
    source = start(
        "-m",
        "shardpool",
        "serve",
        MX_VERSION="0.7.0",
        SHARDPOOL_MODEL="some/Pool",
        SHARDPOOL_REVISION=REVISION,
        SHARDPOOL_DIRECTORY=str(tmp_path / "store" / "model"),
        SHARDPOOL_SEED=f"directory:{tmp_path / 'seed'}",
        SHARDPOOL_DISCOVERY="none",
        SHARDPOOL_TRANSPORT="stream",
        SHARDPOOL_NIXL_LISTENER="true",
        SHARDPOOL_BIND_HOST="127.0.0.1",
        SHARDPOOL_HTTP_HOST="127.0.0.1",
        SHARDPOOL_HTTP_PORT=str(http),
        MX_WORKER_GRPC_PORT=str(port),
        MX_METADATA_PORT=str(free_port()),
    )
    await_ready(http, source)
    return source, port, digests


def _destinations() -> dict[str, Any]:
    return {name: [dtype, shape] for name, (_, dtype, shape, _) in TENSORS.items()}


def test_modelexpress_reads_our_tensors(pool: tuple[Source, int, dict[str, str]]) -> None:
    source, port, digests = pool
    got = run("mx_receiver.py", f"127.0.0.1:{port}", "0", json.dumps(POOL_IDENTITY), json.dumps(_destinations()))
    assert got["digest"] == digests
    assert (got["tensors"], got["worker_rank"]) == (len(TENSORS), 0)
    assert source.end(signal.SIGTERM) == 0, "the source leaves cleanly after it was read from"


def test_modelexpress_is_told_that_our_identity_is_another(pool: tuple[Source, int, dict[str, str]]) -> None:
    _, port, _ = pool
    other = {**POOL_IDENTITY, "revision": "c" * 40}
    done = subprocess.run(
        [
            sys.executable,
            str(HERE / "mx_receiver.py"),
            f"127.0.0.1:{port}",
            "0",
            json.dumps(other),
            json.dumps(_destinations()),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**ENVIRONMENT, "PATH": "/usr/bin:/bin", "HOME": "/"},
        check=False,
    )
    assert done.returncode != 0
    assert "mx_source_id mismatch: expected" in done.stderr


def _order(said: dict[str, Any], **changes: Any) -> str:
    order = {
        "source": f"127.0.0.1:{said['port']}",
        "mx_source_id": said["mx_source_id"],
        "buffers": {name: tensor["size"] for name, tensor in said["tensors"].items()},
        "dtypes": {name: tensor["dtype"] for name, tensor in said["tensors"].items()},
    }
    return json.dumps({**order, **changes})


def test_we_take_tensors_from_modelexpress(modelexpress_source: tuple[Source, dict[str, Any]]) -> None:
    _, said = modelexpress_source
    got = run("taker.py", _order(said))
    assert got["digest"] == said["digest"]
    assert got["tensors"] == len(said["tensors"])
    assert got["bytes"] == sum(tensor["size"] for tensor in said["tensors"].values())
    assert run("taker.py", _order(said))["digest"] == said["digest"], "a second receiver finds the lease given back"


def test_every_tensor_that_does_not_fit_is_listed(modelexpress_source: tuple[Source, dict[str, Any]]) -> None:
    _, said = modelexpress_source
    order = json.loads(_order(said))
    buffers, dtypes = order["buffers"], order["dtypes"]
    del buffers["steps"], dtypes["steps"]
    buffers["extra"] = 4
    buffers["layer.scale"] += 2
    dtypes["layer.weight"] = "torch.float16"
    got = run("taker.py", json.dumps(order))
    assert got["error"] == "TensorMismatchError"
    assert (got["missing"], got["unknown"]) == (["extra"], ["steps"])
    assert got["differing"] == {
        "layer.scale": "4 bytes here, 2 there",
        "layer.weight": "torch.float16 here, torch.bfloat16 there",
    }


def test_tensors_may_be_left_out_by_name(modelexpress_source: tuple[Source, dict[str, Any]]) -> None:
    _, said = modelexpress_source
    order = json.loads(_order(said, ignore=["steps"]))
    del order["buffers"]["steps"], order["dtypes"]["steps"]
    got = run("taker.py", json.dumps(order))
    assert got["digest"] == {name: digest for name, digest in said["digest"].items() if name != "steps"}


def test_a_source_that_has_not_published_is_named(start: Callable[..., Source]) -> None:
    said = start(str(HERE / "mx_source.py"), "0", "7", json.dumps(MX_IDENTITY)).line()
    got = run("taker.py", _order(said))
    assert got["error"] == "MismatchError"
    assert "expected None" in got["text"]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"rank": 1}, "MismatchError", "it is rank 0, asked for rank 1"),
        ({"mx_source_id": "0" * 16}, "MismatchError", "mx_source_id mismatch"),
        ({"source": "127.0.0.1:1"}, "NoSourceError", "no connection"),
    ],
    ids=["another rank", "another identity", "nobody there"],
)
def test_a_source_that_cannot_be_used_is_named_with_the_reason(
    modelexpress_source: tuple[Source, dict[str, Any]], change: dict[str, Any], error: str, text: str
) -> None:
    _, said = modelexpress_source
    got = run("taker.py", _order(said, **change))
    assert got["error"] == error
    assert text in got["text"]


def test_a_source_whose_listener_is_gone_is_given_up_in_time(
    modelexpress_source: tuple[Source, dict[str, Any]],
) -> None:
    source, said = modelexpress_source
    source.child.send_signal(signal.SIGSTOP)
    got = run("taker.py", _order(said, deadline=3, retries=0))
    source.child.send_signal(signal.SIGCONT)
    assert got["error"] in {"NoSourceError", "DeadlineExceededError"}


@pytest.mark.parametrize("first", ["modelexpress", "shardpool"])
def test_both_packages_live_in_one_process(first: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "together.py"), first],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**ENVIRONMENT, "PATH": "/usr/bin:/bin", "HOME": "/", "PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert done.stdout.strip() == "ok", done.stderr[-4000:]
