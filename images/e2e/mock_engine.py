"""An engine that loads with ModelExpress, as the pool sees it: the worker servers of modelexpress 0.7.0 itself, on CPU, told when to publish.

    python3 mock_engine.py --ranks 2 --port 8000

    GET  /health            200 while healthy
    POST /publish?rank=0    that rank has published its tensors from now on
    POST /health?ok=0       unhealthy from now on; ok=1: healthy

The gRPC servers are `modelexpress.metadata.worker_server.WorkerGrpcServer`, unchanged. Only the package's own `__init__` is passed by: it
imports loaders, and with them torch, which that server does not use. What no loader does here is done by these requests.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.machinery
import importlib.util
import os
import signal
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

SOURCE_ID = "0123456789abcdef"
TENSOR_BYTES = 4096


def package_alone(name: str) -> None:
    """Make the modules of an installed package importable without running the package's own `__init__`."""
    found = importlib.util.find_spec(name)
    assert found is not None
    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = found.submodule_search_locations
    sys.modules[name] = importlib.util.module_from_spec(spec)


def worker(rank: int, port: int) -> Any:
    """A started WorkerGrpcServer that has not published."""
    messages = importlib.import_module("modelexpress.p2p_pb2")
    server = importlib.import_module("modelexpress.metadata.worker_server").WorkerGrpcServer(
        tensor_protos=[
            messages.TensorDescriptor(name=f"weight.{rank}", addr=0, size=TENSOR_BYTES, dtype="torch.float32")
        ],
        mx_source_id=None,
        port=port,
        metadata_endpoint=f"{os.environ.get('MX_WORKER_HOST', '127.0.0.1')}:{5555 + rank}",
        agent_name=f"mx-auto-worker{rank}-{os.urandom(4).hex()}",
        worker_rank=rank,
        accelerator="cuda",
        worker_id=os.urandom(4).hex(),
    )
    server.start()
    return server


class Engine:
    """What the HTTP side knows and changes."""

    def __init__(self, ranks: int, base_port: int) -> None:
        self.healthy = threading.Event()
        self.healthy.set()
        self.workers = [worker(rank, base_port + rank) for rank in range(ranks)]

    def tell(self, path: str, query: dict[str, list[str]]) -> bool:
        """Carry out a request; False where there is no such one."""
        if path == "/publish":
            self.workers[int(query["rank"][0])].set_mx_source_id(SOURCE_ID)
        elif path == "/health":
            (self.healthy.set if query["ok"] == ["1"] else self.healthy.clear)()
        else:
            return False
        return True


def handler(engine: Engine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            ok = self.path == "/health" and engine.healthy.is_set()
            self._reply(HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE)

        def do_POST(self) -> None:
            url = urlsplit(self.path)
            self._reply(HTTPStatus.OK if engine.tell(url.path, parse_qs(url.query)) else HTTPStatus.NOT_FOUND)

        def _reply(self, status: HTTPStatus) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description="A mock engine with ModelExpress's worker servers.")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    package_alone("modelexpress")
    package_alone("modelexpress.metadata")
    engine = Engine(options.ranks, int(os.environ.get("MX_WORKER_GRPC_PORT", "6555")))
    with ThreadingHTTPServer(("", options.port), handler(engine)) as server:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        server.serve_forever()


if __name__ == "__main__":
    main()
