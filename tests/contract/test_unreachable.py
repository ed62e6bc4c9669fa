"""Addresses behind which there is no source: each ends the link with a typed error within the connect deadline, and with no trace."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pool_peers import Conversation, Shard, Source, make_party

from shardpool.discovery.base import Endpoint
from shardpool.errors import MismatchError, PeerUnreachableError

Connect = Callable[..., Conversation]
Serve = Callable[[Callable[[socket.socket], None]], Endpoint]
DEADLINE = {"connect_seconds": 0.5}


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A TCP server that does with each connection what it is told."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []
    open_sockets: list[socket.socket] = []

    def start(answer: Callable[[socket.socket], None]) -> Endpoint:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                open_sockets.append(connection)
                with contextlib.suppress(OSError):
                    answer(connection)

        threads.append(threading.Thread(target=accept))
        threads[-1].start()
        return Endpoint("127.0.0.1", listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for connection in open_sockets:
        connection.close()
    for thread in threads:
        thread.join(10)


def _refused(talk: Conversation) -> str:
    """The text of the error that closed the link; nothing else was told."""
    event = talk.told.next()
    assert event[0] == "closed"
    assert isinstance(event[1], PeerUnreachableError), repr(event[1])
    assert "\n" not in str(event[1])
    return str(event[1])


def test_a_closed_port(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert f"127.0.0.1:{port}" in _refused(connect(Endpoint("127.0.0.1", port)))


def test_a_reset_on_connect(connect: Connect, serve: Serve) -> None:
    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    _refused(connect(serve(reset), **DEADLINE))


def test_a_server_that_accepts_and_says_nothing(no_thread_left: None, connect: Connect, serve: Serve) -> None:
    talk = connect(serve(lambda connection: None), **DEADLINE)
    assert "no answer in time" in _refused(talk)
    talk.transport.close()


def test_a_black_hole_for_syn_packets(connect: Connect) -> None:
    """A listener whose backlog is full drops further SYNs, as a stale pod address does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(8):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            waiting.append(client)
        _refused(connect(Endpoint("127.0.0.1", listener.getsockname()[1]), **DEADLINE))
        for client in waiting:
            client.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        bytes(range(256)) * 40,
        b"\x00\x00\x00\x04\x01\x00\x00\x00\x01garbage after what looks like a frame",
    ],
    ids=["http error", "http", "ssh", "tls alert", "garbage", "almost http2"],
)
def test_another_protocol(answer: bytes, connect: Connect, serve: Serve) -> None:
    def speak(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(answer)

    _refused(connect(serve(speak), **DEADLINE))


def test_grpc_that_is_not_a_source(connect: Connect) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        error = connect(Endpoint("127.0.0.1", port)).told.next("closed")[1]
        server.stop(0).wait()
    assert isinstance(error, MismatchError)
    assert error.reason == "protocol"
    assert "is not a source" in str(error)


def test_a_name_that_does_not_resolve(connect: Connect) -> None:
    _refused(connect(Endpoint("no-such-pod.invalid", 6555), **DEADLINE))


def test_proxies_in_the_environment_are_for_others(
    monkeypatch: pytest.MonkeyPatch, shard: Shard, start_source: Callable[..., Source], connect: Connect
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    source = start_source(shard)
    talk = connect(source.endpoint)
    talk.told.next("opened")
    talk.link.request(0, shard.destination(0)[1])
    assert talk.told.next("landed", "failed")[0] == "landed"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca, pod (of that CA, for the name `shardpool`) and stranger (of its own), made by openssl."""
    place = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=place, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    openssl("req", *new[:-2], "-keyout", "pod.key", "-out", "pod.csr", "-subj", "/CN=pod")
    (place / "names").write_text("subjectAltName=DNS:shardpool\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "pod.csr", "-out", "pod.pem", *signed)
    openssl(
        *("req", "-x509", *new, "-keyout", "stranger.key", "-out", "stranger.pem", "-subj", "/CN=stranger"),
        *("-addext", "subjectAltName=DNS:shardpool"),
    )
    return place


def _tls(place: Path, name: str) -> dict[str, str]:
    return {"tls_cert": f"{place}/{name}.pem", "tls_key": f"{place}/{name}.key", "tls_ca": f"{place}/ca.pem"}


def test_mutual_tls_lets_in_only_certificates_of_the_pool(
    certificates: Path, shard: Shard, start_source: Callable[..., Source], connect: Connect
) -> None:
    source = start_source(shard, **_tls(certificates, "pod"))
    talk = connect(source.endpoint, **_tls(certificates, "pod"))
    talk.told.next("opened")
    talk.link.request(0, shard.destination(0)[1])
    assert talk.told.next("landed", "failed") == ("landed", 0, shard.digest(0))
    _refused(connect(source.endpoint, **_tls(certificates, "stranger")))
    _refused(connect(source.endpoint))


def test_a_source_with_a_strangers_certificate_is_not_trusted(
    certificates: Path, shard: Shard, start_source: Callable[..., Source], connect: Connect
) -> None:
    source = start_source(shard, **_tls(certificates, "stranger"))
    _refused(connect(source.endpoint, **_tls(certificates, "pod")))


def test_a_tls_server_met_without_tls(certificates: Path, connect: Connect, serve: Serve) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "pod.pem", certificates / "pod.key")

    def shake(connection: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError):
            context.wrap_socket(connection, server_side=True)

    _refused(connect(serve(shake), **DEADLINE))


def test_a_link_closed_while_it_connects_says_so_and_ends(no_thread_left: None, connect: Connect, serve: Serve) -> None:
    talk = connect(serve(lambda connection: None), make_party(), connect_seconds=30)
    talk.link.close()
    assert talk.told.next() == ("closed", None)
    talk.transport.close()
