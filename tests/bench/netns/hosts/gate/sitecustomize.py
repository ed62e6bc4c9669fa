"""Holds the process of a rank back at the bench's gate once its modules are loaded.

Python imports this module at its start where the folder is on PYTHONPATH. Start-up is not what the bench compares: on a machine of two cores, sixteen
interpreters that load at once would say more of the machine than of the pool. Every contender waits so, ready to run, for the same signal.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

# What a rank loads on its way to its first byte, some of it only when it is needed.
MODULES = (
    "shardpool.node",
    "shardpool.replica",
    "shardpool.discovery.static",
    "shardpool.seed.hub",
    "shardpool.seed.directory",
    "shardpool.swarm.driver",
    "shardpool.transport.grpc_link",
    "shardpool.transport.stream",
    "shardpool.source.pool_service",
    "shardpool.source.worker_service",
    "shardpool.model.directory",
    "huggingface_hub.hf_api",
    "blake3",
    "dns.resolver",
    "grpc",
)


def wait() -> None:
    """Load the modules, say so, and wait for the line that opens the gate."""
    for module in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    sys.modules.pop("shardpool.replica", None)  # it is what this process runs, under the name __main__
    with open(os.environ["BENCH_GATE_MARK"], "w", encoding="ascii"):
        pass
    with open(os.environ["BENCH_GATE"], encoding="ascii") as gate:
        gate.readline()


# The rank's process, not that of its node, and not one that is started again later.
if "shardpool.replica" in sys.orig_argv and not os.path.exists(os.environ.get("BENCH_GATE_MARK", "/")):
    wait()
