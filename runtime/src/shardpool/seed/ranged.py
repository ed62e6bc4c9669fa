"""Ranges of files over HTTP: connections kept, redirects followed without carrying the token to another host."""

from __future__ import annotations

import re
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, SSLError

from shardpool import __version__
from shardpool.errors import SeedError
from shardpool.seed.filling import SLICE

CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0
"""Longest silence within a response."""

RESPONSE_SECONDS = 300.0
"""Bound on one response, which is at most a piece: a server that drips is asked again."""

LOCATION_SECONDS = 600.0
"""For so long a redirect is remembered. Signed addresses last longer, and the hub counts how often it is asked."""

_HOPS = 5
_LONGEST_SKIP = 64 << 20  # what is read and dropped of a server that ignores ranges
_LONGEST_PAUSE = 30.0
_LONGEST_TEXT = 64 << 10
_PASSING = {408, 425, 429, 500, 502, 503, 504, 522, 524}
_STALE = {400, 401, 403, 404, 410, 416}  # what a signed address says once it has expired
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class RefusedError(Exception):
    """A status that another attempt will not change. `code` is the hub's own name for the reason, if it gave one."""

    def __init__(self, status: int, host: str, code: str, message: str) -> None:
        super().__init__(f"{host} answers {status} {code} {message}".strip())
        self.status = status
        self.host = host
        self.code = code
        self.message = message


class RangedClient:
    """Thread-safe ranged reads.

    Args:
        token: sent as a bearer token to the origin of the first address of a read, and to no other.
        connections: kept per host.
        stop: set when the owner is closed.
    """

    def __init__(self, *, token: str, connections: int, stop: threading.Event) -> None:
        self._token = token
        self._stop = stop
        self._lock = threading.Lock()
        self._locations: dict[str, tuple[float, str]] = {}
        self._active: set[urllib3.BaseHTTPResponse] = set()
        options: dict[str, Any] = {
            "num_pools": 16,
            "maxsize": connections,
            "retries": False,
            "timeout": urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            "ssl_context": _trust(),
        }
        self._direct = urllib3.PoolManager(**options)
        self._proxies = {
            scheme: urllib3.ProxyManager(address if "://" in address else f"http://{address}", **options)
            for scheme, address in urllib.request.getproxies().items()
            if scheme in {"http", "https"} and address
        }

    def read(self, url: str, size: int, offset: int, buffer: memoryview) -> Iterator[int]:
        """One attempt to fill the buffer from `offset` of the file at `url`; yields each part's size as it lands.

        Args:
            url: of the whole file, which has `size` bytes.
            size: as published; a server that says otherwise is refused.
            offset: of the first byte wanted.
            buffer: filled from its start, perhaps partly.

        Raises:
            SeedError: transient where another attempt may do.
            RefusedError: a status that will not change.
        """
        remembered = self._remembered(url)
        try:
            response = self._open(remembered or url, url, offset, len(buffer))
        except SeedError:
            self._forget(url)  # the hub may send us elsewhere now
            raise
        except RefusedError as refusal:
            if remembered is None or refusal.status not in _STALE:
                raise
            self._forget(url)
            response = self._open(url, url, offset, len(buffer))
        with self._lock:
            self._active.add(response)
        try:
            yield from self._body(response, url, size, offset, buffer)
        except (HTTPError, OSError) as error:
            raise SeedError(f"{url} broke off: {_short(error)}", transient=True) from error
        finally:
            with self._lock:
                self._active.discard(response)
            response.release_conn()  # reused if the body was read to its end, which is when urllib3 lets go of it

    def close(self) -> None:
        """Cut responses under way off and close idle connections."""
        with self._lock:
            active = list(self._active)
        for response in active:
            with suppress(OSError, ValueError, RuntimeError):
                response.shutdown()
        for pool in (self._direct, *self._proxies.values()):
            pool.clear()

    def _open(self, url: str, origin: str, offset: int, length: int) -> urllib3.BaseHTTPResponse:
        for _ in range(_HOPS):
            headers = {
                "User-Agent": f"shardpool/{__version__}",
                "Accept-Encoding": "identity",
                "Range": f"bytes={offset}-{offset + length - 1}",
            }
            if self._token and _same_origin(url, origin):
                headers["Authorization"] = f"Bearer {self._token}"
            response = self._request(url, headers)
            if response.status in {301, 302, 303, 307, 308} and (location := response.headers.get("Location")):
                _put_away(response)
                target = urljoin(url, location)
                if urlsplit(target).scheme not in {"http", "https"} or (
                    urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https"
                ):
                    raise SeedError(
                        f"{_host(url)} redirects to {urlsplit(target).scheme}://{_host(target)}, which is refused"
                    )
                url = target
                with self._lock:
                    self._locations[origin] = (time.monotonic() + LOCATION_SECONDS, target)
                continue
            if response.status in {200, 206}:
                return response
            raise self._refusal(response, url)
        raise SeedError(f"{_host(origin)} redirects more than {_HOPS} times", hint="check HF_ENDPOINT")

    def _request(self, url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        parts = urlsplit(url)
        pool = self._proxies.get(parts.scheme)
        if pool is None or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
            manager: urllib3.PoolManager = self._direct
        else:
            manager = pool
        try:
            return manager.request(
                "GET", url, headers=headers, preload_content=False, decode_content=False, redirect=False
            )
        except SSLError as error:
            raise SeedError(
                f"{_host(url)} cannot be trusted: {_short(error)}",
                hint="put its CA in SSL_CERT_FILE, or check the clock",
            ) from error
        except LocationParseError as error:
            raise SeedError(f"{url!r} is not an address", hint="check HF_ENDPOINT") from error
        except (HTTPError, OSError) as error:
            raise SeedError(
                f"{_host(url)} cannot be reached: {_short(error)}",
                hint="check HF_ENDPOINT, the network and the proxy settings",
                transient=True,
            ) from error

    def _refusal(self, response: urllib3.BaseHTTPResponse, url: str) -> Exception:
        _put_away(response)
        if response.status in _PASSING:
            after = response.headers.get("Retry-After", "")
            if after.isdigit():
                self._stop.wait(min(float(after), _LONGEST_PAUSE))
            return SeedError(f"{_host(url)} answers {response.status}", transient=True)
        return RefusedError(
            response.status,
            _host(url),
            response.headers.get("X-Error-Code", ""),
            response.headers.get("X-Error-Message", ""),
        )

    def _body(
        self, response: urllib3.BaseHTTPResponse, url: str, size: int, offset: int, buffer: memoryview
    ) -> Iterator[int]:
        if response.headers.get("Content-Encoding", "identity") not in {"", "identity"}:
            raise SeedError(
                f"{url} comes encoded as {response.headers['Content-Encoding']}", hint="fix the proxy between"
            )
        skip, length = 0, len(buffer)
        if response.status == 206:
            stated = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if stated is None or int(stated[1]) != offset or stated[3] not in {"*", str(size)}:
                raise SeedError(
                    f"{url}: asked for bytes from {offset} of {size}, got {response.headers.get('Content-Range', 'no range')!r}",
                    hint="the file has changed since it was listed, or a proxy answers for another",
                )
            length = min(length, int(stated[2]) - offset + 1)
        else:
            stated_size = response.headers.get("Content-Length", "")
            if stated_size.isdigit() and int(stated_size) != size:
                raise SeedError(f"{url} has {stated_size} bytes, not {size}", hint="it has changed since it was listed")
            skip = offset
            if skip > _LONGEST_SKIP:
                raise SeedError(f"{_host(url)} ignores ranges", hint="use a hub or mirror that serves them")
        until = time.monotonic() + RESPONSE_SECONDS
        while skip:
            dropped = len(response.read(min(skip, SLICE)))
            if not dropped or self._stop.is_set():
                return
            skip -= dropped
        done = 0
        while done < length:
            count = response.readinto(buffer[done : min(length, done + SLICE)])
            if not count:
                return
            done += count
            yield count
            if time.monotonic() > until and done < length:
                raise SeedError(f"{url} takes more than {RESPONSE_SECONDS:.0f} s for {length} bytes", transient=True)
        if response.status == 206:
            response.read(1)  # the end, after which the connection is free for the next read

    def _remembered(self, url: str) -> str | None:
        with self._lock:
            until, location = self._locations.get(url, (0.0, ""))
            return location if time.monotonic() < until else None

    def _forget(self, url: str) -> None:
        with self._lock:
            self._locations.pop(url, None)


def _trust() -> ssl.SSLContext:
    """The system's certificates, and those that came with the hub's client: slim images may have none of their own."""
    context = ssl.create_default_context()
    with suppress(ImportError):
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def _put_away(response: urllib3.BaseHTTPResponse) -> None:
    """Read a short answer's text, so that its connection can be used again; drop the connection of any other."""
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and int(length) <= _LONGEST_TEXT:
        response.drain_conn()
    else:
        response.close()


def _same_origin(url: str, other: str) -> bool:
    one, two = urlsplit(url), urlsplit(other)
    return (one.scheme, one.hostname, one.port) == (two.scheme, two.hostname, two.port)


def _host(url: str) -> str:
    """Host and port: signed addresses are secrets, and so are passwords in them."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _short(error: Exception) -> str:
    """The cause without urllib3's object addresses."""
    text = str(getattr(error, "reason", None) or error)
    return text.partition(">: ")[2] or text or type(error).__name__
