"""Ports for processes that cannot pick one themselves."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def free_ports_in_a_row(count: int) -> int:
    """The first of `count` ports that were free together a moment ago."""
    for first in range(21_000, 27_000, count):
        held = []
        try:
            held = [socket.create_server(("127.0.0.1", first + n)) for n in range(count)]
        except OSError:
            continue
        finally:
            for server in held:
                server.close()
        if len(held) == count:
            return first
    raise RuntimeError(f"no {count} free ports in a row")
