"""How the address of a rank is written in settings: `{rank}` and `{port}` placeholders, ports, IPv6 literals."""

from __future__ import annotations

import ipaddress
import re
import string

from shardpool.errors import ConfigurationError

_NAME = re.compile(
    r"(?=.{1,253}\.?$)[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?(\.[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?)*\.?$"
)


def fill(pattern: str, setting: str, **values: int) -> str:
    """Replace the placeholders of a pattern as `str.format` does.

    Args:
        pattern: such as `model-rank-{rank}`.
        setting: name of the setting that the pattern comes from, for errors.
        values: the placeholders that the setting knows.

    Raises:
        ConfigurationError: an unknown placeholder, or braces that do not match.
    """
    known = ", ".join("{" + name + "}" for name in values)
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None]
        unknown = sorted({"{" + name + "}" for name in fields if name not in values})
        if unknown:
            raise ConfigurationError(
                f"{setting}={pattern!r} has the unknown placeholder {', '.join(unknown)}", hint=f"it may hold {known}"
            )
        return pattern.format(**values)
    except ValueError as error:
        raise ConfigurationError(f"{setting}={pattern!r}: {error}", hint=f"it may hold {known}") from None


def split(address: str, setting: str) -> tuple[str, int | None]:
    """Split `HOST`, `HOST:PORT`, `IPV6`, `[IPV6]` or `[IPV6]:PORT` into a host without brackets and a port.

    An IPv6 literal without brackets has no port: its colons are all its own.

    Raises:
        ConfigurationError: neither a DNS name nor an address, or a port that is none.
    """
    host, port = address, ""
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket or not is_literal(host) or (rest and not rest.startswith(":")):
            raise ConfigurationError(f"{setting}: {address!r} is not an address", hint="write [IPV6]:PORT")
        port = rest[1:]
        if rest and not port:
            raise ConfigurationError(f"{setting}: {address!r} has an empty port", hint="write [IPV6]:PORT")
    elif not is_literal(address) and ":" in address:
        host, _, port = address.rpartition(":")
        if ":" in host or not port:
            raise ConfigurationError(
                f"{setting}: {address!r} is not an address", hint="write HOST:PORT, and IPv6 literals as [IPV6]:PORT"
            )
    if not is_literal(host) and not _NAME.match(host):
        raise ConfigurationError(f"{setting}: {host!r} is neither a DNS name nor an address", hint="write HOST:PORT")
    if not port:
        return host, None
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ConfigurationError(f"{setting}: {port!r} is not a port", hint="ports are 1 to 65535")
    return host, int(port)


def is_literal(host: str) -> bool:
    """Whether the text is an IPv4 or IPv6 address (a scope such as `%eth0` included)."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
