"""`shardpool.receive_tensors` as a process: `python taker.py ORDER` (JSON). Prints one JSON line: what came, or the error."""

from __future__ import annotations

import json
import os
import sys

from blake3 import blake3

import shardpool
from shardpool.errors import ShardpoolError, TensorMismatchError
from shardpool.settings import Settings


def main() -> None:
    order = json.loads(sys.argv[1])
    buffers = {name: bytearray(size) for name, size in order["buffers"].items()}
    settings = Settings(source_retries=order.get("retries", 1), source_backoff_seconds=0.1, worker_host="127.0.0.1")
    try:
        received = shardpool.receive_tensors(
            order["source"],
            order["mx_source_id"],
            buffers,
            rank=order.get("rank", 0),
            dtypes=order.get("dtypes", {}),
            ignore=order.get("ignore", ()),
            deadline_seconds=order.get("deadline", 60),
            settings=settings,
        )
    except ShardpoolError as error:
        said = {"error": type(error).__name__, "text": str(error)}
        if isinstance(error, TensorMismatchError):
            said |= {"missing": error.missing, "unknown": error.unknown, "differing": error.differing}
    else:
        said = {
            "tensors": received.tensors,
            "bytes": received.bytes,
            "endpoint": received.endpoint,
            "digest": {name: blake3(buffer).hexdigest() for name, buffer in buffers.items()},
        }
    print(json.dumps(said), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
