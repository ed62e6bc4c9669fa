"""Hosts on a switch: one namespace each, every link shaped by htb on both ends.

Nothing is made in the machine's own namespace: the bridge lives in a namespace of its own, so that neither the machine's firewall nor its
addresses have a say, and removing the namespaces removes everything.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from netns.machine import BenchError, command

PREFIX = "spswarm"
NAMESPACES = Path("/run/netns")
MTU = 9000  # as in most data centres; 99.3 % of the shaped rate is payload
QUEUE_SECONDS = 0.02  # what a port's FIFO holds
LEAST_QUEUE_BYTES = 256 * 1024  # four of the largest packets that a kernel hands to a link
BURST_BYTES = 64 * 1024
SUBNET = "10.77.0"
# The one of these that the kernel permits in a namespace; the same for every contender.
CONGESTION_CONTROLS = ("cubic", "reno")
END_SECONDS = 5.0


@dataclass(frozen=True)
class Host:
    """A namespace with one interface, `eth0`; `port` is the other end of its cable, in the switch's namespace."""

    number: int
    namespace: str
    address: str
    port: str


class Network:
    """`count` hosts whose links carry `rate` megabits a second each way; each `lane` has a network of its own.

    Use as a context manager: leaving ends every process in the namespaces and removes them.
    """

    def __init__(self, count: int, rate: float, lane: int = 0) -> None:
        base = f"{PREFIX}-{os.getpid()}-{lane}x"
        self.rate = rate
        self.switch = f"{base}switch"
        self.hosts = [
            Host(number, f"{base}{number}", f"{SUBNET}.{number + 1}", f"port{number}") for number in range(count)
        ]
        self.congestion_control = ""
        self._hurt: set[Host] = set()
        self._anchor: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what runs in the namespaces and remove them. May be called again."""
        if self._anchor is not None:
            self._anchor.kill()
            self._anchor.wait()
            self._anchor = None
        _remove([host.namespace for host in self.hosts] + [self.switch])

    def _build(self) -> None:
        for namespace in [self.switch, *(host.namespace for host in self.hosts)]:
            command("ip", "netns", "add", namespace)
        _batch("ip", self.switch, ["link add bridge0 type bridge", f"link set bridge0 mtu {MTU} up"])
        for host in self.hosts:
            command("ip", "link", "add", "eth0", "mtu", str(MTU), "netns", host.namespace, "type", "veth",
                    "peer", "name", host.port, "mtu", str(MTU), "netns", self.switch)  # fmt: skip
            _batch(
                "ip",
                host.namespace,
                ["link set lo up", f"addr add {host.address}/24 dev eth0", "link set eth0 up"],
            )
            _batch("tc", host.namespace, _shaping("eth0", self.rate))
        _batch("ip", self.switch, [f"link set {host.port} master bridge0 up" for host in self.hosts])
        _batch("tc", self.switch, [line for host in self.hosts for line in _shaping(host.port, self.rate)])
        self.congestion_control = _choose_congestion_control(self.hosts)
        # Its /proc/PID/net/dev shows the ports' counters to this process.
        self._anchor = subprocess.Popen(
            ["ip", "netns", "exec", self.switch, "sleep", "infinity"],
            start_new_session=True,  # Ctrl-C in a terminal is for the bench alone
        )
        until = time.monotonic() + END_SECONDS
        while not self.counters():
            if time.monotonic() > until:
                raise BenchError("the counters of the switch's ports cannot be read")
            time.sleep(0.01)

    def counters(self) -> dict[int, tuple[int, int]]:
        """Bytes that each host has sent and received so far, by host number; frames with their headers."""
        assert self._anchor is not None
        with open(f"/proc/{self._anchor.pid}/net/dev", encoding="ascii") as devices:
            lines = [line.split() for line in devices if line.strip().startswith("port")]
        return {int(fields[0][4:-1]): (int(fields[1]), int(fields[9])) for fields in lines}

    def pids(self, *hosts: Host) -> list[int]:
        """Processes of some hosts; of all of them where none is named."""
        return processes(host.namespace for host in hosts or self.hosts)

    def end_processes(self) -> None:
        """Kill every process of the hosts, and wait until none is left."""
        end_processes([host.namespace for host in self.hosts])

    # Faults

    def kill(self, host: Host) -> None:
        """End a host's processes at once, as an out-of-memory kill does: its connections are reset."""
        self._signal(host, signal.SIGKILL)

    def freeze(self, host: Host) -> None:
        """Stop a host's processes; its kernel still acknowledges."""
        self._signal(host, signal.SIGSTOP)

    def black_hole(self, host: Host) -> None:
        """Take a host's cable out of the switch: nothing passes, nothing is refused."""
        self._hurt.add(host)
        command("ip", "-n", self.switch, "link", "set", host.port, "nomaster")

    def slow_down(self, host: Host, factor: float = 10.0) -> None:
        """Give a host's link a fraction of its rate, both ways."""
        self._hurt.add(host)
        for namespace, device in ((host.namespace, "eth0"), (self.switch, host.port)):
            _batch("tc", namespace, [_class("change", device, self.rate / factor)])

    def mend(self) -> None:
        """Take back every `black_hole` and `slow_down`."""
        for host in list(self._hurt):
            command("ip", "-n", self.switch, "link", "set", host.port, "master", "bridge0")
            self.slow_down(host, 1.0)
        self._hurt.clear()

    def _signal(self, host: Host, number: int) -> None:
        for pid in self.pids(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def remove_leftovers() -> list[str]:
    """Remove the namespaces of runs that are no more; returns their names. Those of a run that lives stay."""
    found = re.findall(rf"^({PREFIX}-\d+-\w+)", command("ip", "netns", "list"), re.MULTILINE)
    gone = [namespace for namespace in found if not _alive(int(namespace.split("-")[1]))]
    _remove(gone)
    return gone


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return b"netns" in line.read()
    except OSError:
        return False


def processes(namespaces: Iterable[str]) -> list[int]:
    """Processes in some namespaces, by one look at all processes: `ip netns pids` looks as long for each namespace. Those that have ended
    and are only waited for are in no namespace.
    """
    wanted = set()
    for name in namespaces:
        with contextlib.suppress(FileNotFoundError):
            wanted.add(_identity(NAMESPACES / name))
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _identity(process / "ns" / "net") in wanted:
                found.append(int(process.name))
    return found


def _identity(namespace: Path) -> tuple[int, int]:
    stat = namespace.stat()
    return stat.st_dev, stat.st_ino


def end_processes(namespaces: Sequence[str]) -> None:
    """Kill every process of some namespaces, and wait until none is left."""
    until = time.monotonic() + END_SECONDS
    while pids := processes(namespaces):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise BenchError(f"processes of the namespaces {', '.join(namespaces)} do not end: {pids}")
        time.sleep(0.02)


def _remove(namespaces: Sequence[str]) -> None:
    end_processes(namespaces)
    for name in namespaces:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False, start_new_session=True)


def _batch(tool: str, namespace: str, lines: Iterable[str]) -> None:
    command(tool, "-n", namespace, "-batch", "-", text="\n".join(lines) + "\n")


def queue_bytes(rate: float) -> int:
    """What a port of `rate` megabits a second queues before it drops."""
    return max(LEAST_QUEUE_BYTES, int(rate * 1e6 / 8 * QUEUE_SECONDS))


def _shaping(device: str, rate: float) -> Iterator[str]:
    yield f"qdisc add dev {device} root handle 1: htb default 1"
    yield _class("add", device, rate)
    yield f"qdisc add dev {device} parent 1:1 bfifo limit {queue_bytes(rate)}"


def _class(verb: str, device: str, rate: float) -> str:
    speed = f"{rate * 1e3:.0f}kbit"
    return (
        f"class {verb} dev {device} parent 1: classid 1:1 htb rate {speed} ceil {speed} "
        f"burst {BURST_BYTES} cburst {BURST_BYTES} quantum {MTU * 2}"
    )


def _choose_congestion_control(hosts: list[Host]) -> str:
    for name in CONGESTION_CONTROLS:
        try:
            for host in hosts:
                command(
                    "ip", "netns", "exec", host.namespace, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={name}"
                )
        except BenchError:
            continue
        return name
    raise BenchError(f"the kernel permits none of {', '.join(CONGESTION_CONTROLS)} in a namespace")
