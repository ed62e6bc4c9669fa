"""Both packages in one process: `python together.py modelexpress|shardpool` names the one that is imported first. Prints `ok`."""

from __future__ import annotations

import sys
from typing import Any

import modelexpress_cpu as cpu

IDENTITY = {"mx_version": "0.7.0", "model_name": "some/Model", "tensor_parallel_size": 1, "revision": "a" * 40}


def theirs() -> Any:
    from modelexpress import p2p_pb2

    return p2p_pb2


def ours() -> Any:
    from shardpool.wire import p2p

    return p2p


def main() -> None:
    first, second = (theirs(), ours()) if sys.argv[1] == "modelexpress" else (ours(), theirs())
    tensor = {"name": "w", "addr": 2**63, "size": 8, "dtype": "torch.bfloat16"}
    answer = {"tensors": [tensor], "mx_source_id": "0" * 16, "worker_rank": 3, "worker_id": ""}
    sent = first.GetTensorManifestResponse(**answer).SerializeToString()
    read = second.GetTensorManifestResponse.FromString(sent)
    assert read.SerializeToString() == sent
    assert read.HasField("worker_id")
    assert first.GetTensorManifestResponse is not second.GetTensorManifestResponse
    _talk()
    print("ok", flush=True)
    cpu.leave()


def _talk() -> None:
    """Their client at our server, and their identity as we compute it."""
    from modelexpress.metadata.k8s_service_client import MxK8sServiceClient
    from modelexpress.metadata.source_id import compute_mx_source_id

    from shardpool.identity import SourceIdentity
    from shardpool.settings import Settings
    from shardpool.source.publication import Publication, PublishedTensor
    from shardpool.source.server import PoolServer
    from shardpool.swarm.replica_state import ReplicaState
    from shardpool.swarm.state import Party

    identity = SourceIdentity(**IDENTITY)
    source_id = identity.mx_source_id()
    assert source_id == compute_mx_source_id(theirs().SourceIdentity(**IDENTITY))
    state = ReplicaState(Party("0" * 32, source_id, identity.canonical_json(), 0, 1, "whole"))
    server = PoolServer(Settings(bind_host="127.0.0.1"), state, port=0)
    port = server.start()
    try:
        server.publish(
            Publication(source_id, 0, lambda: [PublishedTensor("w", 4096, 8, "torch.bfloat16")], "127.0.0.1:1", "agent")
        )
        client = MxK8sServiceClient(worker_rank=0, service_pattern=f"127.0.0.1:{port}", max_retries=0)
        worker = client.get_metadata(source_id, "").worker
        assert (worker.agent_name, worker.metadata_endpoint) == ("agent", "127.0.0.1:1")
        assert [(t.name, t.addr, t.size, t.dtype) for t in worker.tensor_source.tensors] == [
            ("w", 4096, 8, "torch.bfloat16")
        ]
    finally:
        server.stop()


if __name__ == "__main__":
    main()
