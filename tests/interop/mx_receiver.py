"""A receiver of ModelExpress itself: `python mx_receiver.py PATTERN RANK IDENTITY DESTINATIONS`. Prints one JSON line.

It finds the source by MxK8sServiceClient, fetches NIXL metadata from the source's listener, and reads into tensors of the names, dtypes
and sizes in DESTINATIONS (JSON).
"""

from __future__ import annotations

import json
import sys

import modelexpress_cpu as cpu
import torch
from blake3 import blake3
from modelexpress import p2p_pb2
from modelexpress.metadata.k8s_service_client import MxK8sServiceClient
from modelexpress.metadata.payload import worker_tensor_descriptors
from modelexpress.metadata.source_id import compute_mx_source_id
from modelexpress.nixl_transfer import NixlTransferManager
from modelexpress.types import TensorDescriptor
from ports import free_port


def main() -> None:
    pattern, rank, identity, destinations = (
        sys.argv[1],
        int(sys.argv[2]),
        json.loads(sys.argv[3]),
        json.loads(sys.argv[4]),
    )
    client = MxK8sServiceClient(worker_rank=rank, service_pattern=pattern, max_retries=3, backoff_seconds=0.2)
    source_id = compute_mx_source_id(p2p_pb2.SourceIdentity(**identity))
    worker = client.get_metadata(source_id, "").worker
    manager = NixlTransferManager(
        agent_name="mx-auto-worker-receiver",
        device_id=0,
        listen_port=free_port(),
        accelerator_backend=cpu.HostAccelerator(),
    )
    manager.initialize()
    mine = {
        name: torch.zeros(shape, dtype=getattr(torch, dtype.removeprefix("torch.")))
        for name, (dtype, shape) in destinations.items()
    }
    manager.register_tensors(mine)
    host, port = worker.metadata_endpoint.rsplit(":", 1)
    manager.fetch_remote_and_wait(worker.agent_name, host, int(port), timeout_seconds=30)
    offered = [
        TensorDescriptor(name=t.name, addr=t.addr, size=t.size, device_id=t.device_id, dtype=t.dtype)
        for t in worker_tensor_descriptors(worker)
    ]
    size, count, _ = manager.receive_from_source(
        b"", offered, timeout_seconds=60, remote_agent_name=worker.agent_name, require_exact_match=True
    )
    print(
        json.dumps(
            {
                "worker_rank": worker.worker_rank,
                "bytes": size,
                "tensors": count,
                "digest": {name: blake3(cpu.raw_bytes(tensor)).hexdigest() for name, tensor in mine.items()},
            }
        )
    )
    cpu.leave()


if __name__ == "__main__":
    main()
