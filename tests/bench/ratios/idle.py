"""What a source costs while nobody asks, what a receiver costs while it fills, and how long a pod takes to begin."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from statistics import median

from ratios.footprint import Resident, cpu_seconds, resident
from ratios.replicas import Bench, Replica, remove, size_of
from ratios.table import Row

SECTION = "Footprint"
START = "Start"
MIB = 1024 * 1024
SETTLE_SECONDS = 3.0
SAMPLE_SECONDS = 0.1


def measure(bench: Bench, size: int, seconds: float) -> Iterator[Row]:
    """Both processes of a pod are counted: the node's and the rank's."""
    model = bench.checkpoint(size)
    copy = size_of(model)
    source = bench.serve(seed=f"directory:{model}").wait()
    receiver = bench.serve(peers=[source.address])
    peak = _peak(receiver)
    receiver.stop()
    time.sleep(SETTLE_SECONDS)  # until the receiver's lease and connection are gone
    pids = source.pids()
    before, started = cpu_seconds(pids), time.monotonic()
    time.sleep(seconds)
    share = (cpu_seconds(pids) - before) / (time.monotonic() - started)
    held = resident(pids, source.directory)
    yield Row(SECTION, "idle source: processor", share * 100, "% of a core", 1.0, note=f"over {seconds:g} s, audit on")
    yield Row(SECTION, "idle source: resident beyond the shard", held.rest / MIB, "MiB", 64.0,
              note=f"shard of {copy / MIB:.0f} MiB, {held.shard / MIB:.0f} MiB of it mapped and resident")  # fmt: skip
    yield Row(SECTION, "receiver while filling: most beyond the shard", peak.rest / MIB, "MiB",
              note="the highest of samples")  # fmt: skip
    source.stop()
    remove(model.parent)


def measure_start(bench: Bench, rounds: int) -> Iterator[Row]:
    """From the start of `shardpool serve` to its first contact with a peer, and to the first byte of a piece."""
    model = bench.checkpoint(4 * MIB)
    source = bench.serve(seed=f"directory:{model}").wait()
    contacts, firsts, completes = [], [], []
    for _ in range(rounds):
        with _Relay(source.address) as relay:
            receiver = bench.serve(peers=[relay.address]).wait()
            contacts.append(relay.contact - receiver.started)
            firsts.append(relay.first_bytes - receiver.started)
            completes.append(float(receiver.status()["seconds_to_ready"]))
            receiver.stop()
    yield Row(START, "process start to first contact with a peer", median(contacts), "s", note=f"median of {rounds}")
    yield Row(
        START,
        "process start to first bytes of the model",
        median(firsts),
        "s",
        1.0,
        note="import, handshake and outline included",
    )
    yield Row(START, "ready with a model of 4 MiB", median(completes), "s")
    source.stop()
    remove(model.parent)


def _peak(receiver: Replica) -> Resident:
    highest = Resident(0, 0)
    while True:
        status = receiver.status()
        pids = [receiver.process.pid, *(int(rank["pid"]) for rank in status.get("ranks", ()))]
        now = resident(pids, receiver.directory)
        if now.rest > highest.rest:
            highest = now
        if status.get("ready"):
            return highest
        time.sleep(SAMPLE_SECONDS)


class _Relay:
    """Passes bytes between a receiver and a source, and notes when the first connection and the first `FIRST` bytes came.

    `FIRST` is more than handshake and outline of the small model are, and less than a piece.
    """

    FIRST = 128 * 1024

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.contact = self.first_bytes = float("inf")
        self._received = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> _Relay:
        self._run(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for held in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
            held.close()
        for thread in self._threads:
            thread.join(10)

    def _run(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.contact = min(self.contact, time.monotonic())
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                self._run(self._pass, near, far, False)
                self._run(self._pass, far, near, True)

    def _pass(self, one: socket.socket, other: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while content := one.recv(1 << 16):
                if counted and self.first_bytes == float("inf"):
                    self._received += len(content)
                    if self._received >= self.FIRST:
                        self.first_bytes = time.monotonic()
                other.sendall(content)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)
