"""The small HTTP server behind /readyz, /livez, /status and /metrics."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from shardpool.errors import ConfigurationError
from shardpool.log import logger

LOG = logger(__name__)
REQUEST_SECONDS = 5.0
MOST_REQUESTS_AT_ONCE = 32
JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a probe: 200 when `ok`, else 503, with the reason as text."""

    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class StatusPages:
    """What the server shows. Each is called per request, from the server's threads, and must be bounded in time."""

    readyz: Callable[[], Verdict]
    livez: Callable[[], Verdict]
    status: Callable[[], Mapping[str, Any]]
    metrics: Callable[[], bytes]


class _Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        # One socket for both families where the host has IPv6; IPv4 alone elsewhere or where an IPv4 address is asked for.
        self.address_family = socket.AF_INET6 if (":" in host or (not host and socket.has_ipv6)) else socket.AF_INET
        self._places = threading.BoundedSemaphore(MOST_REQUESTS_AT_ONCE)
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # HTTPServer.server_bind looks the host's name up, which can hang on DNS; the name is not used here.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug("request of %s failed", client_address, exc_info=True)


class StatusServer:
    """Serves the four pages until `close`. Port 0 takes a free one; `port` tells which."""

    def __init__(self, host: str, port: int, pages: StatusPages) -> None:
        try:
            self._server = _open(host, port, _handler(pages))
        except OSError as error:
            raise ConfigurationError(
                f"HTTP port {port} of {host or 'every address'} cannot be bound: {error.strerror or error}",
                hint="another process has it, or set SHARDPOOL_HTTP_PORT",
            ) from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; requests under way end by their own bound."""
        self._server.shutdown()
        self._thread.join(REQUEST_SECONDS)
        self._server.server_close()


def _open(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> _Server:
    try:
        return _Server(host, port, handler)
    except OSError:
        if host:
            raise
        return _Server("0.0.0.0", port, handler)  # noqa: S104  a host whose kernel has no IPv6


def _handler(pages: StatusPages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS
        protocol_version = "HTTP/1.1"
        server_version = "shardpool"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path in ("/readyz", "/livez"):
                verdict = pages.readyz() if path == "/readyz" else pages.livez()
                status = HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, "text/plain; charset=utf-8", (verdict.reason + "\n").encode())
            elif path == "/status":
                self._answer(HTTPStatus.OK, JSON, json.dumps(pages.status(), indent=2).encode() + b"\n")
            elif path == "/metrics":
                self._answer(HTTPStatus.OK, PROMETHEUS, pages.metrics())
            else:
                self._answer(
                    HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"try /readyz /livez /status /metrics\n"
                )

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            LOG.debug(format, *args)

    return Handler
