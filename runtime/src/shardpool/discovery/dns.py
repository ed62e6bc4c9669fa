"""Names to addresses, asked of the DNS servers themselves, anew each time.

Not `getaddrinfo`: it has no deadline, cannot tell "no such name" from "the server is broken", and a caching daemon
behind it may go on naming pods that are gone. What people expect of it is kept: address literals, the hosts file,
search domains and `ndots`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shardpool.discovery.pattern import is_literal

if TYPE_CHECKING:
    from dns.name import Name
    from dns.resolver import Resolver as StubResolver

LOOKUP_SECONDS = 3.0
"""Bound on one name: all its search domains and both kinds of address."""

_EXCHANGE_SECONDS = 0.75  # one question to one server; a lost datagram is asked again within the lookup
_EXTRA_SECONDS = 1.0
_RECORDS = ("A", "AAAA")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a name stands for now.

    `addresses` are sorted. `problem` says why there is none, or why some may be missing. `definite` is false where no
    server gave a usable answer, so that what was known before may still hold.
    """

    addresses: tuple[str, ...]
    problem: str = ""
    definite: bool = True


class Resolver:
    """A stub resolver for pods.

    Args:
        resolv_conf: the system's resolver configuration; read again when it changes.
        hosts: the system's hosts file.
        port: of the DNS servers.
    """

    def __init__(
        self, resolv_conf: str | Path = "/etc/resolv.conf", hosts: str | Path = "/etc/hosts", port: int = 53
    ) -> None:
        self._resolv_conf = Path(resolv_conf)
        self._hosts = Path(hosts)
        self._port = port
        self._lock = threading.Lock()
        self._stub: StubResolver | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._worked: dict[str, Name] = {}  # which of a name's candidates had addresses last

    def lookup(self, host: str, seconds: float = LOOKUP_SECONDS) -> Answer:
        """Find the addresses of a host within `seconds`. Never raises for what DNS says or does not say."""
        if is_literal(host):
            return Answer((host,))
        if listed := self._listed(host):
            return Answer(listed)
        import dns.exception

        try:
            stub = self._configured()
        except (dns.exception.DNSException, OSError, ValueError) as error:
            return Answer((), f"{self._resolv_conf} cannot be used: {error}", definite=False)
        return self._ask(stub, host, time.monotonic() + seconds)

    def _ask(self, stub: StubResolver, host: str, deadline: float) -> Answer:
        import dns.exception
        import dns.resolver

        problem, definite = f"{host} is not in DNS (NXDOMAIN)", True
        for name in self._candidates(stub, host):
            addresses: set[str] = set()
            failures: list[str] = []
            for kind in _RECORDS:
                left = deadline - time.monotonic()
                if addresses:  # what is known is not kept back for a server that ignores questions for AAAA
                    left = min(left, _EXTRA_SECONDS)
                if left <= 0:
                    failures.append("no DNS server answers in time")
                    break
                try:
                    found = stub.resolve(name, kind, raise_on_no_answer=False, search=False, lifetime=left)
                    addresses.update(record.address for record in found.rrset or ())
                except dns.resolver.NXDOMAIN:
                    break
                except dns.exception.Timeout:
                    failures.append("no DNS server answers")
                    break
                except dns.resolver.NoNameservers as error:
                    failures.append(_reason(error))
                except (dns.exception.DNSException, OSError, ValueError) as error:
                    failures.append(f"{type(error).__name__}: {error}")
            else:
                if not addresses and not failures and definite:
                    problem = f"{host} has no address in DNS"
            if addresses:
                with self._lock:
                    self._worked[host] = name
                reason = f"{host}: only some records could be read: {failures[0]}" if failures else ""
                return Answer(tuple(sorted(addresses)), reason)
            if failures and definite:
                problem, definite = f"{host}: {failures[0]}", False
            if deadline <= time.monotonic():
                break
        return Answer((), problem, definite)

    def _candidates(self, stub: StubResolver, host: str) -> Iterator[Name]:
        """The full names that a name may stand for, in the order of resolv.conf(5), but what worked last comes first."""
        import dns.exception
        import dns.name

        try:
            relative = dns.name.from_text(host, None)
            absolute = dns.name.from_text(host)
        except (dns.exception.DNSException, UnicodeError):
            return
        names = [absolute]
        if not relative.is_absolute():
            searched = []
            for suffix in stub.search or ([stub.domain] if stub.domain and stub.domain != dns.name.root else []):
                with suppress(dns.name.NameTooLong):
                    searched.append(relative.concatenate(suffix))
            dots = len(relative) - 1
            names = (
                [absolute, *searched] if dots >= (1 if stub.ndots is None else stub.ndots) else [*searched, absolute]
            )
        with self._lock:
            last = self._worked.get(host)
        if last in names:
            yield last
        yield from (name for name in names if name != last)

    def _configured(self) -> StubResolver:
        import dns.resolver

        stat = self._resolv_conf.stat()
        stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        with self._lock:
            if self._stub is None or stamp != self._stamp:
                stub = dns.resolver.Resolver(filename=str(self._resolv_conf))
                stub.port = self._port
                stub.timeout = _EXCHANGE_SECONDS
                stub.cache = None
                self._stub, self._stamp = stub, stamp
            return self._stub

    def _listed(self, host: str) -> tuple[str, ...]:
        wanted = host.rstrip(".").lower()
        found: set[str] = set()
        with suppress(OSError, UnicodeDecodeError):
            for line in self._hosts.read_text().splitlines():
                address, *names = line.partition("#")[0].split() or ("",)
                if wanted in (name.lower() for name in names) and is_literal(address):
                    found.add(address)
        return tuple(sorted(found))


def _reason(error: Exception) -> str:
    """Why no server gave an answer, in a few words (dnspython's own text names every server and attempt)."""
    import dns.rcode

    for entry in getattr(error, "kwargs", {}).get("errors", ()):
        response = entry[4]
        if response is not None:
            return f"DNS answers {dns.rcode.to_text(response.rcode())}"
    return "no DNS server gives a usable answer"
