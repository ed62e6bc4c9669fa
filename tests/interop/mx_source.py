"""A source of ModelExpress itself: `python mx_source.py RANK SEED`. Prints a JSON line when it serves; ends with its standard input.

An order a line: `publish` sets the source id, before which it answers "expected None".
"""

from __future__ import annotations

import json
import sys

import modelexpress_cpu as cpu
import torch
from modelexpress import p2p_pb2
from modelexpress.metadata.publish import build_tensor_protos
from modelexpress.metadata.source_id import compute_mx_source_id
from modelexpress.metadata.worker_server import WorkerGrpcServer
from modelexpress.nixl_transfer import NixlTransferManager
from ports import free_port


def tensors(seed: int) -> dict[str, torch.Tensor]:
    """Of several dtypes and sizes, one of them larger than a slice, one without an element."""
    torch.manual_seed(seed)
    return {
        "embed.weight": torch.randn(2048, 4096),
        "layer.weight": torch.randn(300, 7).to(torch.bfloat16),
        "layer.scale": torch.randn(1, dtype=torch.float16),
        "steps": torch.arange(17),
        "nothing": torch.empty(0, 4),
    }


def main() -> None:
    rank, seed = int(sys.argv[1]), int(sys.argv[2])
    port = free_port()
    manager = NixlTransferManager(
        agent_name=f"mx-auto-worker{rank}-{seed:08x}",
        device_id=0,
        listen_port=port,
        accelerator_backend=cpu.HostAccelerator(),
    )
    manager.initialize()
    held = tensors(seed)
    manager.register_tensors(held)
    server = WorkerGrpcServer(
        tensor_protos=build_tensor_protos(held, 0, rank),
        mx_source_id=None,
        metadata_endpoint=f"127.0.0.1:{port}",
        agent_name=manager.agent_name,
        worker_rank=rank,
        accelerator="cuda",
        worker_id="0a0b0c0d",
    )
    identity = p2p_pb2.SourceIdentity(**json.loads(sys.argv[3]))
    serving = {
        "port": server.start(),
        "mx_source_id": compute_mx_source_id(identity),
        "tensors": {
            name: {
                "dtype": str(tensor.dtype),
                "hex": cpu.raw_bytes(tensor)[:64].hex(),
                "size": len(cpu.raw_bytes(tensor)),
            }
            for name, tensor in held.items()
        },
        "digest": {name: _digest(tensor) for name, tensor in held.items()},
    }
    print(json.dumps(serving), flush=True)
    for line in sys.stdin:
        if line.strip() == "publish":
            server.set_mx_source_id(compute_mx_source_id(identity))
            print(json.dumps({"published": True}), flush=True)
    cpu.leave()


def _digest(tensor: torch.Tensor) -> str:
    from blake3 import blake3

    return blake3(cpu.raw_bytes(tensor)).hexdigest()


if __name__ == "__main__":
    main()
