"""`shardpool serve` and `shardpool pull` as processes of their own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from netns.machine import BenchError

MODEL = "bench/ratios"
REVISION = "5e" * 20
LOOK_SECONDS = 0.02
DEADLINE_SECONDS = 600.0
MAKE_CHECKPOINT = Path(__file__).parents[2] / "tools" / "make_checkpoint.py"


class Bench:
    """A folder for models and logs, and the processes of a run. Leaving it ends and removes everything.

    Args:
        work: where the folder is made; best in memory, so that no disk is measured.
    """

    def __init__(self, work: Path) -> None:
        self.folder = work / f"shardpool-bench-{os.getpid()}"
        self._processes: list[subprocess.Popen[Any]] = []
        self._count = 0

    def __enter__(self) -> Bench:
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        remove(self.folder)

    def new_folder(self, name: str) -> Path:
        """An empty folder of its own."""
        self._count += 1
        folder = self.folder / f"{self._count:03}-{name}"
        folder.mkdir()
        return folder

    def spawn(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process that ends with the bench."""
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **options)
        self._processes.append(process)
        return process

    def checkpoint(self, size: int, *, tensors: int = 256, files: int = 4) -> Path:
        """A model of about `size` bytes."""
        folder = self.new_folder("checkpoint") / "model"
        command = [sys.executable, str(MAKE_CHECKPOINT), str(folder), "--size", str(size), "--tensors", str(tensors)]
        subprocess.run([*command, "--files", str(files)], check=True, stdout=subprocess.DEVNULL)
        return folder

    def serve(self, **options: Any) -> Replica:
        """Start a replica that serves."""
        return Replica(self, **options)

    def pull(
        self, peers: Sequence[str], *, prefix: Sequence[str] = (), settings: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Run `shardpool pull` to its end; what it printed, with the whole command's `wall` seconds."""
        folder = self.new_folder("pull")
        command = [*prefix, sys.executable, "-m", "shardpool", "pull", "--json"]
        log = folder / "log"
        started = time.monotonic()
        with log.open("wb") as errors:
            process = self.spawn(
                command,
                env=environment(folder / "model", "none", peers, settings or {}),
                stdout=subprocess.PIPE,
                stderr=errors,
            )
            output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        wall = time.monotonic() - started
        if process.returncode:
            raise BenchError(f"shardpool pull ended with {process.returncode}: {log.read_text()[-1500:]}")
        remove(folder)
        result: dict[str, Any] = json.loads(output) | {"wall": wall}
        return result


class Replica:
    """One `shardpool serve` process.

    Args:
        bench: owns it.
        seed: as SHARDPOOL_SEED.
        peers: `HOST:PORT` of others.
        host: address to bind.
        prefix: put before the command.
        settings: further environment.
    """

    def __init__(
        self,
        bench: Bench,
        *,
        seed: str = "none",
        peers: Sequence[str] = (),
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        folder = bench.new_folder("replica")
        self.directory = folder / "model"
        self._log = folder / "log"
        self._host = host
        port, self._http_port = free_ports(2)
        self.address = f"{host}:{port}"
        own = {
            "SHARDPOOL_BIND_HOST": host,
            "SHARDPOOL_HTTP_HOST": host,
            "SHARDPOOL_HTTP_PORT": str(self._http_port),
            "MX_WORKER_GRPC_PORT": str(port),
            "MX_WORKER_HOST": host,
            **(settings or {}),
        }
        self.started = time.monotonic()
        with self._log.open("wb") as log:
            self.process = bench.spawn(
                [*prefix, sys.executable, "-m", "shardpool", "serve"],
                env=environment(self.directory, seed, peers, own),
                stdout=log,
                stderr=log,
            )

    def status(self) -> dict[str, Any]:
        """The page /status; empty while nobody answers."""
        if self.process.poll() is not None:
            raise BenchError(f"shardpool serve ended with {self.process.returncode}: {self._log.read_text()[-1500:]}")
        connection = http.client.HTTPConnection(self._host, self._http_port, timeout=5)
        try:
            connection.request("GET", "/status")
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()
        return answer

    def verified(self) -> int:
        """Bytes verified so far."""
        return sum(int(rank.get("verified_bytes") or 0) for rank in self.status().get("ranks", ()))

    def wait(self) -> Replica:
        """Until it is ready."""
        until(lambda: bool(self.status().get("ready")), "a replica to be ready")
        return self

    def wait_for_directory(self) -> Replica:
        """Until the model directory is there, for a replica whose pages cannot be reached from here."""
        until(self.directory.exists, "a model directory")
        return self

    def summary(self) -> dict[str, Any]:
        """Of its rank's load."""
        (rank,) = self.status()["ranks"]
        summary: dict[str, Any] = rank["summary"]
        return summary

    def pids(self) -> list[int]:
        """The pod's processes: the node's and the ranks'."""
        return [self.process.pid, *(int(rank["pid"]) for rank in self.status()["ranks"])]

    def signal(self, number: int, pids: Sequence[int]) -> None:
        """Send a signal to processes of `pids()`, the ranks first: they are what serves."""
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate()
        self.process.wait(60)


def environment(directory: Path, seed: str, peers: Sequence[str], settings: Mapping[str, str]) -> dict[str, str]:
    """Of a shardpool process: nothing that this shell has set for another one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHARDPOOL_", "MX_", "POD_"))}
    return kept | {
        "SHARDPOOL_MODEL": MODEL,
        "SHARDPOOL_REVISION": REVISION,
        "SHARDPOOL_DIRECTORY": str(directory),
        "SHARDPOOL_SEED": seed,
        "SHARDPOOL_DISCOVERY": "static" if peers else "none",
        "SHARDPOOL_PEERS": ",".join(peers),
        "SHARDPOOL_TRANSPORT": "stream",
        "SHARDPOOL_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
        **settings,
    }


def until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Look until the condition holds: a process can be seen only through its pages and files."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise BenchError(f"waited {seconds:.0f} s for {what}")
        time.sleep(LOOK_SECONDS)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as held:
        return [held.enter_context(_listener()).getsockname()[1] for _ in range(count)]


def remove(folder: Path) -> None:
    """Remove a tree in which model directories are read-only."""
    for path in [folder, *_directories(folder)]:
        path.chmod(path.stat().st_mode | stat.S_IRWXU)
    shutil.rmtree(folder)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _directories(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IRWXU)
            yield path
            yield from _directories(path)


@contextlib.contextmanager
def _listener() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener
