"""Plain HTTP: everybody from the first, or from whoever is complete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import netns.hosts
from netns.contenders.base import STALL_SECONDS
from netns.network import Host
from netns.payload import LARGE
from netns.stage import Stage, python

PORT = 8080
PROGRAM = Path(netns.hosts.__file__).with_name("http_receiver.py")
NGINX = """
daemon off; user root; worker_processes 1; pid {home}/nginx.pid; error_log {home}/nginx-error.log warn;
events {{ worker_connections 512; }}
http {{
  log_format bytes '$status $body_bytes_sent $request_method $uri'; access_log {home}/nginx-access.log bytes;
  sendfile on; tcp_nopush on; keepalive_timeout 5;
  client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home}; uwsgi_temp_path {home}; scgi_temp_path {home};
  limit_conn_zone $server_name zone=everybody:1m;
  server {{
    listen {address}:{port} backlog=512; server_name all; root {root};
    {locations}
  }}
}}
"""
ONE_READER = f"location = /{LARGE} {{ limit_conn everybody 1; }}"


def serve(stage: Stage, host: Host, root: Path, locations: str = "", port: int = PORT) -> None:
    """Run nginx on a host with `root` as its documents."""
    home = stage.home(host) / f"nginx-{port}"
    home.mkdir()
    configuration = home / "nginx.conf"
    configuration.write_text(NGINX.format(home=home, address=host.address, port=port, root=root, locations=locations))
    stage.spawn(host, ["nginx", "-c", str(configuration), "-e", str(home / "nginx-error.log")], f"nginx-{port}")
    stage.wait((home / "nginx.pid").exists, "nginx to start")


def bytes_served(stage: Stage, host: Host, port: int = PORT) -> int:
    """Bytes of bodies that a host's nginx has sent, by its own log."""
    log = stage.home(host) / f"nginx-{port}" / "nginx-access.log"
    return sum(int(line.split()[1]) for line in log.read_text().splitlines())


class _Web:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def _receive(self, host: Host, sources: Sequence[Host], *, shuffle: bool) -> None:
        gate, home = self.stage.gate(host), self.stage.home(host)
        plan = {
            "gate": str(gate.path),
            "mark": str(gate.mark),
            "staging": str(home / "staging"),
            "final": str(self.stage.copy(host)),
            "files": {name: [size, self.stage.payload.sha256[name]] for name, size in self.stage.payload.sizes.items()},
            "sources": [f"{source.address}:{PORT}" for source in sources],
            "shuffle": shuffle,
            "stall_seconds": STALL_SECONDS,
        }
        path = home / "plan.json"
        path.write_text(json.dumps(plan))
        self.stage.spawn(host, [python(), "-S", str(PROGRAM), str(path)], "receiver")

    def complete(self, host: Host) -> bool:
        return self.stage.copy(host).exists()

    def details(self) -> dict[str, Any]:
        return {"bytes_sent_by_sources": [bytes_served(self.stage, host) for host in self.stage.sources]}


class Star(_Web):
    """Every receiver pulls from the first source; from another one when that fails."""

    name: ClassVar[str] = "star"
    title: ClassVar[str] = "star (HTTP, all from the first)"

    def prepare(self) -> None:
        for source in self.stage.sources:
            serve(self.stage, source, self.stage.payload.directory)
        for host in self.stage.receivers:
            self._receive(host, self.stage.sources, shuffle=False)


class WholeCopies(_Web):
    """Who is complete serves, one reader at a time (so that the number of complete ones doubles); a receiver takes any that is free."""

    name: ClassVar[str] = "whole"
    title: ClassVar[str] = "whole copies (HTTP, complete ones serve)"

    def prepare(self) -> None:
        everybody = [*self.stage.sources, *self.stage.receivers]
        for host in everybody:
            root = self.stage.payload.directory if host in self.stage.sources else self.stage.copy(host)
            serve(self.stage, host, root, ONE_READER)
        for host in self.stage.receivers:
            self._receive(host, [other for other in everybody if other is not host], shuffle=True)
