"""shardpool: receivers of a replica that is complete, and a pool that is cold all over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import netns.hosts
from netns.contenders.base import STALL_SECONDS
from netns.contenders.web import bytes_served, serve
from netns.machine import BenchError
from netns.network import Host
from netns.payload import MODEL
from netns.stage import Stage, python

PORT = 6555
HTTP_PORT = 9465
HUB_PORT = 8080
GATE = Path(netns.hosts.__file__).with_name("gate")
STATUS = Path(netns.hosts.__file__).with_name("status.py")
SMALL_BYTES = 10_000_000  # the hub states a SHA-256 of files that are larger


class _Pool:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._members: list[Host] = []

    def _serve(self, host: Host, seed: str, environment: Mapping[str, str], *, gated: bool) -> None:
        stage = self.stage
        gate = {"BENCH_GATE": str(stage.gate(host).path), "BENCH_GATE_MARK": str(stage.gate(host).mark)}
        settings = {
            "SHARDPOOL_MODEL": MODEL,
            "SHARDPOOL_REVISION": stage.payload.revision,
            "SHARDPOOL_DIRECTORY": str(stage.copy(host)),
            "SHARDPOOL_SEED": seed,
            "SHARDPOOL_DISCOVERY": "static",
            "SHARDPOOL_PEERS": ",".join(f"{member.address}:{PORT}" for member in self._members),
            "SHARDPOOL_TRANSPORT": "stream",
            "SHARDPOOL_STALL_SECONDS": str(STALL_SECONDS),
            "SHARDPOOL_BIND_HOST": host.address,
            "SHARDPOOL_HTTP_HOST": host.address,
            "SHARDPOOL_HTTP_PORT": str(HTTP_PORT),
            "MX_WORKER_HOST": host.address,
            "MX_WORKER_GRPC_PORT": str(PORT),
            "POD_NAME": f"host-{host.number}",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HOME": str(stage.home(host)),
            **({"PYTHONPATH": str(GATE), **gate} if gated else {}),
            **environment,
        }
        stage.spawn(host, [python(), "-m", "shardpool", "serve"], "shardpool", settings)

    def _receive(self, seed: str = "none", environment: Mapping[str, str] | None = None) -> None:
        for host in self.stage.receivers:
            self._serve(host, seed, environment or {}, gated=True)

    def complete(self, host: Host) -> bool:
        return self.stage.copy(host).exists()

    def details(self) -> dict[str, Any]:
        statuses = self._statuses().items()
        return {"summaries": {number: rank.get("summary") for number, status in statuses for rank in status["ranks"]}}

    def _statuses(self) -> dict[str, dict[str, Any]]:
        """What each replica says of itself, by host number; a host that was made to fail is not asked."""
        asked = [host for host in self._members if host is not self.stage.failed]
        addresses = [f"{host.address}:{HTTP_PORT}" for host in asked]
        process = self.stage.spawn(self.stage.services, [python(), "-S", str(STATUS), *addresses], "status")
        if process.wait():
            raise BenchError(f"the replicas' status could not be read:\n{process.tail()}")
        answers = json.loads(process.log.read_text())
        return {str(host.number): answer for host, answer in zip(asked, answers, strict=True)}


class WarmPool(_Pool):
    """The sources are complete replicas and the receivers have no seed: every byte comes from the sources' links or from one another."""

    name: ClassVar[str] = "warm"
    title: ClassVar[str] = "shardpool, first replica complete"

    def prepare(self) -> None:
        stage = self.stage
        self._members = [*stage.sources, *stage.receivers]
        for source in stage.sources:
            self._serve(source, f"directory:{stage.payload.directory}", {}, gated=False)
        self._receive()
        stage.wait(lambda: all(stage.copy(source).exists() for source in stage.sources), "the sources to be complete")


class ColdPool(_Pool):
    """The source is a hub: storage behind a link like any other. All receivers may read it, and know of nobody who is complete."""

    name: ClassVar[str] = "cold"
    title: ClassVar[str] = "shardpool, all cold, a hub as storage"

    def prepare(self) -> None:
        stage = self.stage
        self._members = list(stage.receivers)
        for source in stage.sources:
            root, locations = self._hub(source)
            serve(stage, source, root, locations, HUB_PORT)
        self._receive("hf", {"HF_ENDPOINT": f"http://{stage.sources[0].address}:{HUB_PORT}", "NO_PROXY": "*"})

    def _hub(self, host: Host) -> tuple[Path, str]:
        """The hub's listing and files as documents of a web server."""
        payload = self.stage.payload
        root = self.stage.home(host) / "hub"
        root.mkdir()
        siblings = []
        for name, size in payload.sizes.items():
            large = {"sha256": payload.sha256[name], "size": size, "pointerSize": 134}
            siblings.append({"rfilename": name, "size": size, **({"lfs": large} if size > SMALL_BYTES else {})})
        listing = root / "listing.json"
        listing.write_text(json.dumps({"id": MODEL, "modelId": MODEL, "sha": payload.revision, "siblings": siblings}))
        return root, (
            f"location = /api/models/{MODEL}/revision/{payload.revision} "
            f"{{ default_type application/json; alias {listing}; }}\n"
            f"    location /{MODEL}/resolve/{payload.revision}/ {{ alias {payload.directory}/; }}"
        )

    def details(self) -> dict[str, Any]:
        return {
            **super().details(),
            "storage_bytes": sum(bytes_served(self.stage, host, HUB_PORT) for host in self.stage.sources),
        }
