"""The ModelExpress contract as a stock client meets it: codes, texts, leases, large manifests.

The expected texts are those that ModelExpress 0.7.0 answers, recorded from its own server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from pool_peers import SOURCE_ID, Shard, Source

from shardpool.source.publication import Publication, PublishedTensor
from shardpool.wire import p2p

Start = Callable[..., Source]
OTHER_ID = "fedcba9876543210"
TENSORS = [
    PublishedTensor("model.embed.weight", 0x7F00_0000_1000, 4096, "torch.bfloat16"),
    PublishedTensor("empty", 0, 0, "torch.float32", device=3),
]


class StockClient:
    """Calls as the generated stubs of ModelExpress would: unary, default options of its backend."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target, options=[("grpc.max_receive_message_length", -1)])

    def call(self, name: str, request: Any) -> Any:
        response = getattr(p2p, type(request).__name__.replace("Request", "Response"))
        method = self._channel.unary_unary(
            f"/model_express.p2p.WorkerService/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return method(request, timeout=20)

    def refusal(self, name: str, request: Any) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as caught:
            self.call(name, request)
        return caught.value.code(), caught.value.details()

    def close(self) -> None:
        self._channel.close()


def publish(source: Source, **changes: Any) -> None:
    fields: dict[str, Any] = {
        "mx_source_id": SOURCE_ID,
        "worker_rank": 0,
        "tensors": lambda: TENSORS,
        "metadata_endpoint": "10.0.0.1:5555",
        "agent_name": "mx-auto-worker0-0123abcd",
        "accelerator": "cuda",
        "worker_id": "89abcdef",
    }
    source.server.publish(Publication(**fields | changes))


@pytest.fixture(params=["127.0.0.1", "::1"])
def source(request: pytest.FixtureRequest, start_source: Start, shard: Shard) -> Source:
    return start_source(shard, bind_host=request.param)


@pytest.fixture
def client(source: Source) -> Iterator[StockClient]:
    stock = StockClient(source.endpoint.target)
    yield stock
    stock.close()


def test_a_published_manifest_is_answered_in_full(source: Source, client: StockClient) -> None:
    publish(source)
    manifest = client.call("GetTensorManifest", p2p.GetTensorManifestRequest(mx_source_id=SOURCE_ID))
    assert [(t.name, t.addr, t.size, t.device_id, t.dtype) for t in manifest.tensors] == [
        ("model.embed.weight", 0x7F00_0000_1000, 4096, 0, "torch.bfloat16"),
        ("empty", 0, 0, 3, "torch.float32"),
    ]
    assert (manifest.mx_source_id, manifest.worker_rank, manifest.accelerator) == (SOURCE_ID, 0, "cuda")
    assert (manifest.metadata_endpoint, manifest.agent_name) == ("10.0.0.1:5555", "mx-auto-worker0-0123abcd")
    assert manifest.HasField("worker_id")
    assert manifest.worker_id == "89abcdef"


def test_without_a_worker_id_the_field_is_absent(source: Source, client: StockClient) -> None:
    publish(source, worker_id="")
    manifest = client.call("GetTensorManifest", p2p.GetTensorManifestRequest(mx_source_id=SOURCE_ID))
    assert not manifest.HasField("worker_id")


@pytest.mark.parametrize("name", ["GetTensorManifest", "PrepareTensorRead", "ReleaseTensorRead"])
def test_refusals_have_the_codes_and_texts_of_the_contract(name: str, source: Source, client: StockClient) -> None:
    request = getattr(p2p, f"{name}Request")
    code = grpc.StatusCode
    assert client.refusal(name, request(mx_source_id=OTHER_ID)) == (
        code.FAILED_PRECONDITION,
        f"mx_source_id mismatch: expected None, got {OTHER_ID}",
    )
    publish(source)
    assert client.refusal(name, request()) == (
        code.INVALID_ARGUMENT,
        "mx_source_id is required for tensor reads",
    )
    assert client.refusal(name, request(mx_source_id=OTHER_ID)) == (
        code.FAILED_PRECONDITION,
        f"mx_source_id mismatch: expected {SOURCE_ID}, got {OTHER_ID}",
    )
    for worker_id in ("", "00000000"):
        assert client.refusal(name, request(mx_source_id=SOURCE_ID, worker_id=worker_id)) == (
            code.FAILED_PRECONDITION,
            f"worker_id mismatch: expected 89abcdef, got {worker_id}",
        )


def test_a_lease_is_given_with_the_manifest_and_released_once(source: Source, client: StockClient) -> None:
    publish(source)
    prepared = client.call("PrepareTensorRead", p2p.PrepareTensorReadRequest(mx_source_id=SOURCE_ID))
    assert len(prepared.lease_id) == 32
    assert int(prepared.lease_id, 16) >= 0
    assert [tensor.name for tensor in prepared.manifest.tensors] == ["model.embed.weight", "empty"]
    assert len(source.server.contract_leases) == 1
    release = p2p.ReleaseTensorReadRequest(mx_source_id=SOURCE_ID, lease_id=prepared.lease_id)
    client.call("ReleaseTensorRead", release)
    assert client.refusal("ReleaseTensorRead", release) == (
        grpc.StatusCode.NOT_FOUND,
        f"tensor read lease not found or expired: {prepared.lease_id}",
    )


def test_draining_refuses_reads_but_takes_releases(source: Source, client: StockClient) -> None:
    publish(source)
    prepared = client.call("PrepareTensorRead", p2p.PrepareTensorReadRequest(mx_source_id=SOURCE_ID))
    source.server.contract_leases.refuse_new()
    draining = (grpc.StatusCode.UNAVAILABLE, "tensor source is draining")
    assert client.refusal("PrepareTensorRead", p2p.PrepareTensorReadRequest(mx_source_id=SOURCE_ID)) == draining
    client.call("ReleaseTensorRead", p2p.ReleaseTensorReadRequest(mx_source_id=SOURCE_ID, lease_id=prepared.lease_id))
    assert source.server.drain(5)
    assert client.refusal("GetTensorManifest", p2p.GetTensorManifestRequest(mx_source_id=SOURCE_ID)) == draining


@pytest.mark.parametrize(
    "request_message",
    [
        p2p.GetArtifactManifestHeaderRequest(mx_source_id=SOURCE_ID),
        p2p.GetArtifactManifestChunksRequest(),
        p2p.PrepareArtifactChunkRequest(mx_source_id=SOURCE_ID, chunk_index=1),
        p2p.ReleaseArtifactChunkRequest(mx_source_id=SOURCE_ID, lease_id="x"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_there_are_no_artifacts(request_message: Any, client: StockClient) -> None:
    name = type(request_message).__name__.removesuffix("Request")
    assert client.refusal(name, request_message) == (
        grpc.StatusCode.NOT_FOUND,
        "artifact manifest is not available for this worker",
    )


def test_a_manifest_of_a_hundred_thousand_tensors_passes(source: Source, client: StockClient) -> None:
    publish(
        source,
        tensors=lambda: (
            PublishedTensor(f"model.layers.{n}.mlp.experts.gate_up_proj.weight", 1 << 40, 4096, "torch.bfloat16")
            for n in range(100_000)
        ),
    )
    manifest = client.call("GetTensorManifest", p2p.GetTensorManifestRequest(mx_source_id=SOURCE_ID))
    assert manifest.ByteSize() > 4 * 1024 * 1024
    assert len(manifest.tensors) == 100_000
    assert manifest.tensors[99_999].name == "model.layers.99999.mlp.experts.gate_up_proj.weight"


def test_the_central_back_ends_service_is_not_served(client: StockClient, source: Source) -> None:
    with grpc.insecure_channel(source.endpoint.target) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/model_express.p2p.P2pService/ListSources")(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
