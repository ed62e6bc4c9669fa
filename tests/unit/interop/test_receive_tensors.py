"""What `receive_tensors` believes of a source before it reads a byte, and what it takes as a destination."""

from __future__ import annotations

import array
import mmap
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shardpool
from shardpool.errors import ConfigurationError, MismatchError, NoSourceError, ShardpoolError, TensorMismatchError
from shardpool.identity import SourceIdentity
from shardpool.interop_buffers import host_buffers
from shardpool.settings import Settings
from shardpool.source.publication import Publication, PublishedTensor
from shardpool.source.server import PoolServer
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Party

IDENTITY = SourceIdentity(mx_version="0.7.0", model_name="some/Model", tensor_parallel_size=1)
SETTINGS = Settings(source_retries=1, source_backoff_seconds=0.05, connect_seconds=20.0)


@pytest.fixture
def source() -> Iterator[Callable[..., tuple[str, PoolServer]]]:
    """A source that publishes what a test says; its address."""
    started: list[PoolServer] = []

    def begin(*tensors: PublishedTensor, **more: Any) -> tuple[str, PoolServer]:
        state = ReplicaState(
            Party(secrets.token_hex(16), IDENTITY.mx_source_id(), IDENTITY.canonical_json(), 0, 1, "whole")
        )
        server = PoolServer(Settings(bind_host="127.0.0.1"), state, port=0)
        started.append(server)
        port = server.start()
        values = {
            "mx_source_id": IDENTITY.mx_source_id(),
            "worker_rank": 0,
            "metadata_endpoint": "127.0.0.1:1",
            "agent_name": "agent",
            **more,
        }
        server.publish(Publication(tensors=lambda: tensors, **values))
        return f"127.0.0.1:{port}", server

    yield begin
    for server in started:
        server.stop()


def _tensor(name: str = "w", **more: Any) -> PublishedTensor:
    return PublishedTensor(**{"name": name, "address": 4096, "size": 8, "dtype": "torch.float32", **more})


def _receive(address: str, **buffers: Any) -> Any:
    return shardpool.receive_tensors(address, IDENTITY, buffers, settings=SETTINGS, deadline_seconds=60)


def test_nothing_to_read_needs_no_nixl(source: Callable[..., Any]) -> None:
    address, _ = source(_tensor("empty", size=0, address=0))
    received = _receive(address, empty=bytearray())
    assert (received.tensors, received.bytes, received.endpoint) == (1, 0, address)


def test_all_that_does_not_fit_is_listed_in_one_error(source: Callable[..., Any]) -> None:
    address, server = source(_tensor("a"), _tensor("b", size=16), _tensor("c"), _tensor("d"))
    with pytest.raises(TensorMismatchError) as caught:
        _receive(address, b=bytearray(8), c=array.array("d", [0.0]), d=bytearray(8), e=bytearray(8))
    error = caught.value
    assert (error.missing, error.unknown) == (("e",), ("a",))
    assert error.differing == {"b": "8 bytes here, 16 there", "c": "torch.float64 here, torch.float32 there"}
    assert error.exit_code == 7
    assert "1 missing: e; 1 unknown: a; 2 differing: b (8 bytes here" in str(error)
    assert len(server.contract_leases) == 0, "the lease was given back"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"worker_rank": 1}, "it is rank 1, asked for rank 0"),
        ({"metadata_endpoint": "pod.example:5555"}, "is not IPv4:port"),
        ({"metadata_endpoint": "[::1]:5555"}, "is not IPv4:port"),
        ({"metadata_endpoint": "127.0.0.1:0"}, "is not IPv4:port"),
        ({"metadata_endpoint": ""}, "is not IPv4:port"),
        ({"agent_name": ""}, "names no NIXL agent"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(source: Callable[..., Any], more: dict[str, Any], text: str) -> None:
    address, _ = source(_tensor(), **more)
    with pytest.raises(MismatchError, match=text):
        _receive(address, w=bytearray(8))


@pytest.mark.parametrize(
    "tensors",
    [(_tensor(), _tensor()), (_tensor(address=2**64 - 4),), (_tensor(address=0),), (_tensor("x" * 5000),)],
    ids=["twice", "past the end of memory", "nowhere", "long name"],
)
def test_a_manifest_that_contradicts_itself_is_refused(
    source: Callable[..., Any], tensors: tuple[PublishedTensor, ...]
) -> None:
    address, _ = source(*tensors)
    with pytest.raises(MismatchError) as caught:
        _receive(address, w=bytearray(8))
    assert caught.value.reason == "protocol"


def test_before_publication_the_refusal_says_so(source: Callable[..., Any]) -> None:
    address, server = source(_tensor())
    server.publish(None)
    with pytest.raises(MismatchError, match="expected None"):
        _receive(address, w=bytearray(8))


def test_nobody_there_names_the_address() -> None:
    with pytest.raises(NoSourceError, match=r"127\.0\.0\.1:1"):
        shardpool.receive_tensors(
            "127.0.0.1:1", IDENTITY, {"w": bytearray(8)}, settings=Settings(source_retries=0, connect_seconds=0.5)
        )


def test_the_deadline_ends_it() -> None:
    with pytest.raises(ShardpoolError, match=r"within 0\.3 s"):
        shardpool.receive_tensors(
            "127.0.0.1:1",
            IDENTITY,
            {"w": bytearray(8)},
            deadline_seconds=0.3,
            settings=Settings(source_retries=1000, source_backoff_seconds=0.05, connect_seconds=0.1),
        )


def test_an_unknown_placeholder_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ConfigurationError, match="placeholder"):
        _receive("pool-{what}", w=bytearray(8))


def test_buffers_of_every_kind_say_where_they_are_and_what_they_hold() -> None:
    matrix = np.zeros((3, 4), dtype=np.float32)
    found = host_buffers(
        {
            "matrix": matrix,
            "raw": bytearray(5),
            "mapped": mmap.mmap(-1, 4096),
            "half": np.zeros(2, dtype=np.float16),
            "long": array.array("q", [1, 2]),
            "flag": np.zeros(1, dtype=np.bool_),
            "scalar": np.zeros((), dtype=np.int32),
            "none": np.zeros((0, 4), dtype=np.float32),
        },
        {"raw": "torch.bfloat16"},
    )
    assert {name: (buffer.size, buffer.dtype) for name, buffer in found.items()} == {
        "matrix": (48, "torch.float32"),
        "raw": (5, "torch.bfloat16"),
        "mapped": (4096, ""),
        "half": (4, "torch.float16"),
        "long": (16, "torch.int64"),
        "flag": (1, "torch.bool"),
        "scalar": (4, "torch.int32"),
        "none": (0, "torch.float32"),
    }
    assert found["matrix"].address == matrix.ctypes.data


def test_every_buffer_that_cannot_be_written_to_is_named() -> None:
    shared = bytearray(64)
    with pytest.raises(ConfigurationError) as caught:
        host_buffers(
            {
                "constant": b"1234",
                "strided": np.zeros((4, 4))[:, 1],
                "number": 3,
                "left": memoryview(shared)[:40],
                "right": memoryview(shared)[32:],
            },
            {"nobody": "torch.int8"},
        )
    text = str(caught.value)
    assert text.startswith("5 buffer(s) cannot be used")
    for part in (
        "nobody: a dtype but no buffer",
        "constant: read-only",
        "strided: not contiguous",
        "number: ",
        "right: shares",
    ):
        assert part in text
