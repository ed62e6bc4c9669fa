"""A DNS server on loopback that answers, denies, fails or keeps silent as a test says."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from shardpool.discovery.dns import Resolver

SERVFAIL = "SERVFAIL"
SILENCE = "SILENCE"


class DnsServer:
    """Serves `zone`: full name (with the last dot) to addresses, SERVFAIL or SILENCE; other names get NXDOMAIN.

    `zone[name, "AAAA"]` overrides one kind of record. `asked` counts the questions by name and kind.
    """

    def __init__(self) -> None:
        self.zone: dict[object, object] = {}
        self.everything: str = ""  # SERVFAIL or SILENCE for whatever is asked
        self.asked: Counter[tuple[str, str]] = Counter()
        self.by_tcp = 0
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 0))
        self.port: int = self._udp.getsockname()[1]
        self._tcp = socket.create_server(("127.0.0.1", self.port))
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="dns-server")
        self._thread.start()

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self._wake.send(b"x")
        self._thread.join(10)
        for held in (self._udp, self._tcp, self._wake, self._woken):
            held.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            for held in (self._udp, self._tcp, self._woken):
                selector.register(held, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._udp:
                        wire, caller = self._udp.recvfrom(4096)
                        if (reply := self._reply(wire, 512)) is not None:
                            self._udp.sendto(reply, caller)
                    else:
                        connection, _ = self._tcp.accept()
                        with connection:
                            connection.settimeout(5)
                            (length,) = struct.unpack("!H", connection.recv(2, socket.MSG_WAITALL))
                            reply = self._reply(connection.recv(length, socket.MSG_WAITALL), 65535)
                            self.by_tcp += 1
                            if reply is not None:
                                connection.sendall(struct.pack("!H", len(reply)) + reply)

    def _reply(self, wire: bytes, limit: int) -> bytes | None:
        query = dns.message.from_wire(wire)
        name, kind = query.question[0].name.to_text(), dns.rdatatype.to_text(query.question[0].rdtype)
        self.asked[name, kind] += 1
        content = self.everything or self.zone.get((name, kind), self.zone.get(name))
        if content == SILENCE:
            return None
        reply = dns.message.make_response(query)
        reply.flags |= dns.flags.AA
        if content is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        elif content == SERVFAIL:
            reply.set_rcode(dns.rcode.SERVFAIL)
        else:
            fitting = [a for a in content if (":" in a) == (kind == "AAAA")]  # type: ignore[attr-defined]
            if fitting:
                reply.answer.append(dns.rrset.from_text(name, 3600, "IN", kind, *fitting))
        encoded = reply.to_wire(max_size=65535)
        if len(encoded) > limit:
            reply.answer.clear()
            reply.flags |= dns.flags.TC
            encoded = reply.to_wire()
        return encoded


@pytest.fixture
def dns_server() -> Iterator[DnsServer]:
    server = DnsServer()
    yield server
    server.close()


@pytest.fixture
def resolver(dns_server: DnsServer, tmp_path: Path) -> Resolver:
    """As in a pod of namespace `ns`."""
    configuration = tmp_path / "resolv.conf"
    configuration.write_text(
        "nameserver 127.0.0.1\nsearch ns.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
    )
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost # both\n10.9.9.9 Alias.example\nnonsense line\n")
    return Resolver(configuration, hosts, port=dns_server.port)
