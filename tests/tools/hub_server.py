"""A small model hub over HTTP: enough of the Hugging Face hub's protocol for its real client, from a directory.

    python tests/tools/hub_server.py ROOT --port 8080

ROOT holds OWNER/NAME/ folders (or NAME/ alone), whose files are the model's. A model's commit follows from its files, or is
what `OWNER/NAME.revision` beside the folder says; `main` names it too. Large files (`--lfs-bytes` and more) have a SHA-256
and are redirected to a second address with its own port, as the hub does with its CDN.

Besides the hub's own paths: GET /stats (what was served, as JSON), DELETE /stats, PUT /faults (a list of faults, below), and
GET /healthz. Needs Python's standard library only.

A fault is an object: `match` (part of a path), `times` (how often; -1 for ever), and one of
`status` (with `code`, `retry_after`), `short` (bytes after which the connection breaks, or with
`stall` stays open), `rate` (bytes a second),
`ignore_range`, `shift` (serves another range than asked), `total` (states another size), `encode`, `hang` (sends nothing).
`at` is `hub` or `cdn` and chooses the address.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

RANGE = re.compile(r"bytes=(\d+)-(\d*)")
SHA1 = re.compile(r"[0-9a-f]{40}")
CHUNK = 1 << 20


@dataclass
class File:
    path: str
    real: Path
    size: int
    blob: str
    sha256: str


class Catalogue:
    """The models below a directory. Files are hashed once, when a model is first asked for."""

    def __init__(self, root: Path, lfs_bytes: int) -> None:
        self.root = root
        self.lfs_bytes = lfs_bytes
        self.lock = threading.Lock()
        self.models: dict[str, tuple[str, dict[str, File]]] = {}
        self.by_sha256: dict[str, File] = {}

    def model(self, name: str) -> tuple[str, dict[str, File]] | None:
        with self.lock:
            if name not in self.models:
                folder = self.root / name
                if ".." in name.split("/") or not folder.is_dir():
                    return None
                files = {}
                for real in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
                    path = real.relative_to(folder).as_posix()
                    files[path] = self._file(path, real)
                stated = folder.with_name(folder.name + ".revision")
                if stated.is_file():
                    commit = stated.read_text().strip()
                else:
                    listing = "".join(f"{file.blob} {file.path}\n" for file in files.values())
                    commit = hashlib.sha1(listing.encode()).hexdigest()
                self.by_sha256.update({file.sha256: file for file in files.values() if file.sha256})
                self.models[name] = (commit, files)
            return self.models[name]

    def _file(self, path: str, real: Path) -> File:
        size = real.stat().st_size
        blob, whole = hashlib.sha1(f"blob {size}\0".encode()), hashlib.sha256()
        with real.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                blob.update(chunk)
                whole.update(chunk)
        return File(path, real, size, blob.hexdigest(), whole.hexdigest() if size >= self.lfs_bytes else "")


@dataclass
class State:
    """What every handler shares."""

    catalogue: Catalogue
    token: str
    gated: bool
    rate: float
    cdn: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    faults: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    bytes_by_file: Counter[str] = field(default_factory=Counter)

    def count(self, what: str, by: int = 1) -> None:
        with self.lock:
            self.counts[what] += by

    def stats(self) -> dict[str, Any]:
        with self.lock:
            names = ("bytes", "requests", "connections", "ranges", "redirects", "listings", "leaked_tokens", "refused")
            return {name: self.counts[name] for name in names} | {"files": dict(self.bytes_by_file)}

    def fault(self, path: str, at: str) -> dict[str, Any]:
        with self.lock:
            for fault in self.faults:
                if fault.get("match", "") in path and fault.get("at", at) == at and fault.get("times", -1) != 0:
                    fault["times"] = fault.get("times", -1) - 1
                    return fault
        return {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State
    at: str

    def setup(self) -> None:
        super().setup()
        self.state.count("connections")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: /stats says it."""

    def do_GET(self) -> None:
        self.state.count("requests")
        path = unquote(urlsplit(self.path).path)
        if path == "/stats":
            self._json(self.state.stats())
        elif path == "/healthz":
            self._json({"ok": True})
        elif self.at == "cdn":
            self._cdn(path)
        elif path.startswith("/api/models/"):
            self._api(path.removeprefix("/api/models/"))
        elif "/resolve/" in path:
            self._resolve(path)
        else:
            self._refuse(404, "RepoNotFound", "no such path")

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        if urlsplit(self.path).path == "/stats":
            with self.state.lock:
                self.state.counts.clear()
                self.state.bytes_by_file.clear()
        self._json({})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if urlsplit(self.path).path == "/faults":
            with self.state.lock:
                self.state.faults = json.loads(body)
        self._json({})

    def _admitted(self) -> bool:
        if not self.state.token or self.headers.get("Authorization") == f"Bearer {self.state.token}":
            return True
        self.state.count("refused")
        if self.state.gated:
            self._refuse(
                401 if "Authorization" not in self.headers else 403, "GatedRepo", "Access to model is restricted."
            )
        else:
            self._refuse(401, "RepoNotFound", "Invalid username or password.")
        return False

    def _model(self, name: str, revision: str) -> tuple[str, dict[str, File]] | None:
        found = self.state.catalogue.model(name)
        if found is None:
            self._refuse(404 if self.state.token else 401, "RepoNotFound", "Repository not found")
        elif revision not in {"main", found[0]}:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return found
        return None

    def _api(self, rest: str) -> None:
        self.state.count("listings")
        if self._broken(rest):
            return
        match = re.fullmatch(r"(.+?)(?:/(revision|tree)/([^/]+)(?:/(.*))?)?", rest)
        assert match
        name, kind, revision = match[1], match[2], match[3] or "main"
        # A gated model's listing is public, its files are not.
        if not self.state.gated and not self._admitted():
            return
        model = self._model(name, revision)
        if model is None:
            return
        commit, files = model
        if kind == "tree":
            self._json([self._entry(file, "path") | {"type": "file", "oid": file.blob} for file in files.values()])
            return
        full = "blobs" in parse_qs(urlsplit(self.path).query)
        siblings = [self._entry(file, "rfilename") if full else {"rfilename": file.path} for file in files.values()]
        self._json(
            {
                "id": name,
                "modelId": name,
                "sha": commit,
                "private": False,
                "tags": [],
                "downloads": 0,
                "siblings": siblings,
            }
        )

    def _entry(self, file: File, key: str) -> dict[str, Any]:
        entry: dict[str, Any] = {key: file.path, "size": file.size, "blobId": file.blob}
        if file.sha256:
            entry["lfs"] = {"oid": file.sha256, "sha256": file.sha256, "size": file.size, "pointerSize": 135}
        return entry

    def _resolve(self, path: str) -> None:
        if self._broken(path) or not self._admitted():
            return
        name, _, rest = path.lstrip("/").partition("/resolve/")
        revision, _, inner = rest.partition("/")
        model = self._model(name, revision)
        if model is None:
            return
        commit, files = model
        file = files.get(inner)
        if file is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        headers = {"X-Repo-Commit": commit, "ETag": f'"{file.blob}"', "Accept-Ranges": "bytes"}
        if file.sha256:
            headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
            if self.state.cdn:
                self.state.count("redirects")
                host = self.headers.get("Host", "127.0.0.1").rpartition(":")[0] or "127.0.0.1"
                location = self.state.cdn.format(host=host) + f"/{file.sha256}?Signature=secret"
                self._answer(302, headers | {"Location": location}, b"Found. Redirecting")
                return
            headers["ETag"] = f'"{file.sha256}"'
        self._send(file, headers, path)

    def _cdn(self, path: str) -> None:
        if "Authorization" in self.headers:
            self.state.count("leaked_tokens")
            self._refuse(400, "InvalidArgument", "Only one auth mechanism allowed")
            return
        file = self.state.catalogue.by_sha256.get(path.strip("/"))
        if file is None:
            self._refuse(403, "", "Missing Key")
        elif not self._broken(file.path):
            self._send(file, {"ETag": f'"{file.sha256}"', "Accept-Ranges": "bytes"}, file.path)

    def _broken(self, path: str) -> bool:
        """Carry out a fault that replaces the answer; others are left in `self.fault` for `_send`."""
        self.fault = self.state.fault(path, self.at)
        if "status" in self.fault:
            extra = {"Retry-After": str(self.fault["retry_after"])} if "retry_after" in self.fault else {}
            self._refuse(self.fault["status"], self.fault.get("code", ""), "as told", extra)
            return True
        if self.fault.get("hang"):
            self._wait_for_the_caller()
            self.close_connection = True
            return True
        return False

    def _wait_for_the_caller(self) -> None:
        """Until the caller gives up."""
        self.connection.settimeout(600)
        with contextlib.suppress(OSError):
            self.connection.recv(1)

    def _send(self, file: File, headers: dict[str, str], path: str) -> None:
        fault = self.fault
        asked = RANGE.fullmatch(self.headers.get("Range", ""))
        start, end, status = 0, file.size, 200
        if asked and not fault.get("ignore_range"):
            self.state.count("ranges")
            start = int(asked[1]) + fault.get("shift", 0)
            end = min(int(asked[2]) + 1 + fault.get("shift", 0) if asked[2] else file.size, file.size)
            if start >= end:
                self._refuse(416, "", "Range Not Satisfiable", {"Content-Range": f"bytes */{file.size}"})
                return
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{fault.get('total', file.size)}"
        if "encode" in fault:
            headers["Content-Encoding"] = fault["encode"]
        length = fault["total"] if "total" in fault and status == 200 else end - start
        self.send_response(status)
        for name, value in {
            **headers,
            "Content-Length": str(length),
            "Content-Type": "application/octet-stream",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.flush()
        end = min(end, start + fault.get("short", end - start))
        rate = fault.get("rate", self.state.rate)
        sent = self._body(file, start, end - start, rate)
        with self.state.lock:
            self.state.counts["bytes"] += sent
            self.state.bytes_by_file[file.path] += sent
        if sent < length:
            if fault.get("stall"):
                self._wait_for_the_caller()
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def _body(self, file: File, start: int, length: int, rate: float) -> int:
        began, sent = time.monotonic(), 0
        with file.real.open("rb") as stream:
            while sent < length:
                part = min(length - sent, CHUNK if not rate else max(1, min(CHUNK, int(rate / 20))))
                try:
                    self.connection.sendfile(stream, start + sent, part)
                except OSError:
                    break
                sent += part
                if rate and (ahead := sent / rate - (time.monotonic() - began)) > 0:
                    time.sleep(ahead)
        return sent

    def _json(self, content: Any) -> None:
        self._answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def _refuse(self, status: int, code: str, message: str, extra: dict[str, str] | None = None) -> None:
        headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(extra or {})}
        self._answer(status, headers | {"Content-Type": "application/json"}, json.dumps({"error": message}).encode())

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, state: State, at: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), type("Bound", (Handler,), {"state": state, "at": at}))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that goes away is no error."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A small model hub over HTTP, for tests and demonstrations.")
    parser.add_argument("root", type=Path, help="folder of OWNER/NAME/ folders")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="0: any free one")
    parser.add_argument(
        "--cdn-port", type=int, default=-1, help="0: any free one; -1: no redirects, files come from the hub itself"
    )
    parser.add_argument(
        "--cdn-url", default="", help="how callers reach the CDN port; {host} is the host that they called"
    )
    parser.add_argument("--lfs-bytes", type=int, default=64 * 1024, help="files of this size and more have a SHA-256")
    parser.add_argument("--token", default="", help="what callers must show")
    parser.add_argument("--gated", action="store_true", help="refuse files, not listings, without the token")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input closes")
    parser.add_argument("--rate-mbps", type=float, default=0, help="megabits a second of each response")
    arguments = parser.parse_args()
    if not arguments.root.is_dir():
        parser.error(f"{arguments.root} is not a directory")
    catalogue = Catalogue(arguments.root, arguments.lfs_bytes)
    state = State(catalogue, arguments.token, arguments.gated, arguments.rate_mbps * 1e6 / 8)
    servers = [Server(arguments.host, arguments.port, state, "hub")]
    if arguments.cdn_port >= 0:
        servers.append(Server(arguments.host, arguments.cdn_port, state, "cdn"))
        state.cdn = arguments.cdn_url or f"http://{{host}}:{servers[1].server_port}"
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    models = {
        name: model[0]
        for folder in sorted(arguments.root.glob("*/*"))
        if folder.is_dir() and (model := catalogue.model(name := folder.relative_to(arguments.root).as_posix()))
    }
    print(json.dumps({"hub": f"http://{arguments.host}:{servers[0].server_port}", "models": models}), flush=True)
    if arguments.with_parent:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    os._exit(0)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
