"""Seeds as they are in the world: directories, hub caches, a hub process, an S3 process, and faults in front of both."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import huggingface_hub
import pytest

from shardpool.retry import Backoff
from shardpool.seed import Seed, filling, make_seed
from shardpool.settings import Settings

HUB_SERVER = Path(__file__).parents[2] / "tools" / "hub_server.py"
MODEL = "acme/tiny-model"
BIG = "model-00001-of-00001.safetensors"
TREE = {
    BIG: random.Random(1).randbytes(3_000_001),
    "config.json": b'{"a": 1}\n',
    "empty.txt": b"",
    "sub/dir/tokenizer.json": random.Random(2).randbytes(1000),
    "sub/n\u00e4me with spaces #1 50%+.bin": random.Random(3).randbytes(70_000),
}
S3_MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


def write_tree(root: Path) -> Path:
    for path, content in TREE.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


class Process:
    """A server process that prints a number or an object to say where it listens."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,  # which closes when these tests end, however they do
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self.process.stdout
        self.first_line = next((line for line in self.process.stdout if line[0] in "{0123456789"), "")
        assert self.first_line, f"{arguments} ended before it listened"

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()


class Hub(Process):
    """tests/tools/hub_server.py, serving one model."""

    def __init__(self, root: Path, *options: str) -> None:
        super().__init__(str(HUB_SERVER), str(root), "--port", "0", "--with-parent", *options)
        said = json.loads(self.first_line)
        self.url: str = said["hub"]
        self.commit: str = said["models"][MODEL]

    def fault(self, *faults: dict[str, Any]) -> None:
        self._call("PUT", "/faults", json.dumps(faults).encode())

    def reset(self) -> None:
        self.fault()
        self._call("DELETE", "/stats")

    def stats(self) -> dict[str, Any]:
        return json.loads(self._call("GET", "/stats"))

    def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(self.url + path, body, method=method), timeout=20) as answer:
            return answer.read()


class Gateway:
    """Stands between a client and an S3 server: passes everything on, with faults as tests/tools/hub_server.py has them."""

    def __init__(self, port: int) -> None:
        self.faults: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.bytes = 0
        self.connections = 0
        self.page = 1000  # objects in an answer to a listing
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                with gateway.lock:
                    gateway.connections += 1

            def log_message(self, *arguments: Any) -> None:
                pass

            def do_GET(self) -> None:
                fault = gateway.take(self.path)
                if "status" in fault:
                    body = f"<Error><Code>{fault.get('code', '')}</Code><Message>as told</Message></Error>".encode()
                    self.answer(fault["status"], {"Content-Type": "application/xml"}, body, len(body))
                    return
                if fault.get("hang"):
                    self.connection.settimeout(600)
                    self.connection.recv(1)
                    self.close_connection = True
                    return
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                headers = dict(self.headers.items())
                if fault.get("ignore_range"):
                    headers.pop("Range", None)
                path = f"{self.path}&max-keys={gateway.page}" if "list-type=2" in self.path else self.path
                upstream.request(self.command, path, headers=headers)
                reply = upstream.getresponse()
                body = reply.read()
                upstream.close()
                passed = {
                    k: v for k, v in reply.getheaders() if k.lower() not in {"connection", "content-length", "date"}
                }
                self.answer(reply.status, passed, body[: fault.get("short")], len(body), "stall" in fault)

            do_HEAD = do_GET

            def answer(
                self, status: int, headers: dict[str, str], body: bytes, length: int, stall: bool = False
            ) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(length)}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)
                    with gateway.lock:
                        gateway.bytes += len(body) if "content-range" in map(str.lower, headers) else 0
                if len(body) < length:
                    if stall:
                        self.connection.settimeout(600)
                        self.connection.recv(1)
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *arguments: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def fault(self, *faults: dict[str, Any]) -> None:
        with self.lock:
            self.faults = list(faults)

    def take(self, path: str) -> dict[str, Any]:
        with self.lock:
            for fault in self.faults:
                if fault.get("match", "") in path and fault.get("times", -1) != 0:
                    fault["times"] = fault.get("times", -1) - 1
                    return fault
        return {}

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join(20)
        self.server.server_close()


@pytest.fixture(autouse=True)
def _no_configuration_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "HF_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    huggingface_hub.close_session()  # it keeps the proxy settings that it was opened with


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeats without the pauses."""
    monkeypatch.setattr(filling, "BACKOFF", Backoff(first=0.001, longest=0.001))


@pytest.fixture(scope="session")
def hub_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub-root")
    write_tree(root / MODEL)
    return root


@pytest.fixture(scope="session")
def hubs(hub_root: Path) -> Iterator[dict[tuple[str, ...], Hub]]:
    hubs: dict[tuple[str, ...], Hub] = {}
    yield hubs
    for hub in hubs.values():
        hub.close()


@pytest.fixture
def start_hub(hub_root: Path, hubs: dict[tuple[str, ...], Hub]) -> Callable[..., Hub]:
    """A hub process with these options, without faults and with its counters at zero."""

    def start(*options: str) -> Hub:
        if options not in hubs:
            hubs[options] = Hub(hub_root, *options)
        hubs[options].reset()
        return hubs[options]

    return start


@pytest.fixture(scope="session")
def moto() -> Iterator[int]:
    server = Process("-c", S3_MOTO)
    yield int(server.first_line)
    server.close()


def fill_bucket(port: int, name: str) -> Any:
    """The large file has a SHA-256 that the store keeps."""
    session = boto3.session.Session("key", "very-secret", region_name="us-east-1")
    bucket = session.resource("s3", endpoint_url=f"http://127.0.0.1:{port}").Bucket(name)
    bucket.create()
    for path, content in TREE.items():
        extra = {"ChecksumAlgorithm": "SHA256"} if path == BIG else {}
        bucket.put_object(Key=f"some/tiny/{path}", Body=content, **extra)
    bucket.put_object(Key="some/tiny/", Body=b"")
    bucket.put_object(Key="some/tiny-other/config.json", Body=b"not ours")
    return bucket


@pytest.fixture(scope="session")
def shared_bucket(moto: int) -> Any:
    """Not to be changed."""
    return fill_bucket(moto, "models")


@pytest.fixture
def bucket(moto: int, request: pytest.FixtureRequest) -> Any:
    """A bucket of this test's own."""
    return fill_bucket(moto, f"models-{abs(hash(request.node.nodeid))}")


@pytest.fixture
def gateway(moto: int) -> Iterator[Gateway]:
    gateway = Gateway(moto)
    yield gateway
    gateway.close()


def make_cache(root: Path, links: str) -> Path:
    """A hub cache with one snapshot, as huggingface_hub lays it out; links `relative` or `absolute`."""
    import hashlib

    cache = root / f"models--{MODEL.replace('/', '--')}"
    snapshot = cache / "snapshots" / ("ab" * 20)
    (cache / "blobs").mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("ab" * 20)
    for path, content in TREE.items():
        kind = hashlib.sha256 if len(content) > 50_000 else hashlib.sha1
        blob = cache / "blobs" / kind(content).hexdigest()
        blob.write_bytes(content)
        link = snapshot / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob if links == "absolute" else os.path.relpath(blob, link.parent))
    return cache


@pytest.fixture
def open_seed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], tuple[Seed, Hub | Gateway | None]]]:
    """A seed of a kind that holds TREE, and where its faults are set."""
    opened: list[Seed] = []

    def build(kind: str) -> tuple[Settings, Hub | Gateway | None]:
        if kind.startswith("hub"):
            options = ("--cdn-port", "0", "--token", "sesame") if "CDN" in kind else ()
            hub = request.getfixturevalue("start_hub")(*options)
            return Settings(seed="hf", model=MODEL, revision=hub.commit, hub_endpoint=hub.url, hub_token="sesame"), hub
        if kind == "s3":
            bucket, gateway = request.getfixturevalue("shared_bucket"), request.getfixturevalue("gateway")
            return Settings(seed=f"s3://{bucket.name}/some/tiny", s3_endpoint=gateway.url), gateway
        if kind == "plain directory":
            return Settings(seed=f"directory:{write_tree(tmp_path / 'plain')}"), None
        cache = make_cache(tmp_path, "absolute" if "absolute" in kind else "relative")
        if kind == "moved cache, absolute links":
            cache = Path(shutil.move(cache, tmp_path / "elsewhere" / cache.name))
        path = cache / "snapshots" / ("ab" * 20) if kind == "snapshot of a cache" else cache
        return Settings(seed=f"directory:{path}", model=MODEL, revision="ab" * 20), None

    def open_(kind: str) -> tuple[Seed, Hub | Gateway | None]:
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        settings, remote = build(kind)
        seed = make_seed(settings)
        assert seed is not None
        opened.append(seed)
        return seed, remote

    yield open_
    for seed in opened:
        seed.close()


@pytest.fixture
def tree() -> dict[str, bytes]:
    return TREE
