"""One NIXL agent, with the rules that NIXL and UCX do not enforce themselves.

NIXL's Python class pins the progress thread's delay to 0, which costs a whole core, so the wrapper is built on its bindings. Importing
them costs half a second (numpy included) and the first agent of a process as much again: nothing here is imported before a NIXL
transport was chosen. UCX reads its environment once, so `prepare_environment` comes before the import.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from shardpool.errors import ConfigurationError, PeerUnreachableError, TransportError
from shardpool.log import logger
from shardpool.transport import fabric

LOG = logger(__name__)

PACKAGES = ("nixl_cu12", "nixl_cu13")
OLDEST, TOO_NEW = (1, 5), (2, 0)
BACKEND = "UCX"
FEWEST_PORTS = 16
SOURCE_PROGRESS_MICROSECONDS = 100_000
LISTENER_POLL_MICROSECONDS = 100_000
_ADDRESS_LIMIT = 1 << 64

# Of a stopped or unreachable peer UCX says nothing by itself; with these the kernel notices in 10 s, a connection attempt ends in 7.
KEEPALIVE: Mapping[str, str] = {
    "UCX_KEEPALIVE_INTERVAL": "inf",
    "UCX_TCP_KEEPIDLE": "5s",
    "UCX_TCP_KEEPINTVL": "2s",
    "UCX_TCP_KEEPCNT": "3",
    "UCX_TCP_USER_TIMEOUT": "10s",
    "UCX_TCP_SYN_CNT": "2",
}
# Gave 0.8 to 1.0 of iperf3 between hosts.
SEGMENTS: Mapping[str, str] = {"UCX_TCP_TX_SEG_SIZE": "256k", "UCX_TCP_RX_SEG_SIZE": "512k"}


def environment_defaults(*, rdma: bool, efa: bool, interface: str) -> dict[str, str]:
    """What UCX's environment should say unless the user says otherwise.

    Args:
        rdma: whether RDMA devices are there; without them bytes go over TCP, whose device has to be named.
        efa: whether one of them is an EFA; otherwise UCX's EFA module is left out, since it can crash a process at exit.
        interface: the network interface for TCP, or empty.
    """
    values = {**KEEPALIVE, **SEGMENTS}
    if not efa:
        values["UCX_MODULES"] = "^efa"
    if not rdma:
        # Shared memory works between processes of one pod only, and UCX cannot always tell.
        values["UCX_TLS"] = "tcp,self"
        if interface:
            values["UCX_NET_DEVICES"] = interface
    return values


def prepare_environment(address: str = "", environment: MutableMapping[str, str] | None = None) -> None:
    """Set what is not set yet, for this process. Call it before NIXL is imported.

    Args:
        address: this pod's IPv4 address as told to peers; names the interface for TCP.
        environment: the process's own unless given.

    Raises:
        ConfigurationError: a UCX setting of the user is known not to work.
    """
    environment = os.environ if environment is None else environment
    check_port_range(environment.get("UCX_TCP_PORT_RANGE", ""))
    interface = fabric.interface_of(address) or fabric.default_interface()
    defaults = environment_defaults(rdma=bool(fabric.rdma_devices()), efa=fabric.has_efa(), interface=interface)
    for name, value in defaults.items():
        environment.setdefault(name, value)
    home = environment.get("HOME", "")
    if home and not os.access(home, os.R_OK | os.X_OK):
        environment["HOME"] = "/"  # an agent looks for ~/.nixl.cfg and fails where it may not look


def check_port_range(text: str) -> None:
    """Raise ConfigurationError for a UCX_TCP_PORT_RANGE of fewer than 16 ports (one alone is busy for a minute after a restart)."""
    match = re.fullmatch(r"(\d+)-(\d+)", text.strip())
    if match and int(match[1]) > 0 and int(match[2]) - int(match[1]) + 1 < FEWEST_PORTS:
        raise ConfigurationError(
            f"UCX_TCP_PORT_RANGE={text} has fewer than {FEWEST_PORTS} ports",
            hint=f"give at least {FEWEST_PORTS}, such as {match[1]}-{int(match[1]) + FEWEST_PORTS - 1}",
        )


@dataclass(frozen=True)
class Library:
    """NIXL as loaded: its bindings, what distribution they are of, and the exceptions that they raise (they have no common base)."""

    bindings: Any
    package: str
    version: str
    errors: tuple[type[Exception], ...]
    disconnected: tuple[type[Exception], ...]


_LOAD = threading.Lock()
_loaded: list[Library] = []


def load() -> Library:
    """Import NIXL once per process.

    Raises:
        TransportError: it is not installed, cannot be loaded, or is of a version that was not tried.
    """
    with _LOAD:
        if not _loaded:
            _loaded.append(_load())
        return _loaded[0]


def installed() -> tuple[str, str]:
    """Package and version of the NIXL that would be loaded, without loading it; empty when there is none."""
    for package in sorted(PACKAGES, key=lambda name: name not in sys.modules):  # one that is loaded already comes first
        try:
            return package, importlib.metadata.version(package.replace("_", "-"))
        except importlib.metadata.PackageNotFoundError:
            continue
    return "", ""


def _load() -> Library:
    package, version = installed()
    if not package:
        raise TransportError("NIXL is not installed", hint="pip install --no-deps nixl-cu12==1.5.1 numpy")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST <= numbers < TOO_NEW:
        raise TransportError(f"NIXL {version} ({package}) is not known to work", hint="install nixl-cu12 1.5")
    try:
        bindings: ModuleType = importlib.import_module(f"{package}._bindings")
    except Exception as error:  # whatever a broken wheel or a missing shared library raises
        raise TransportError(f"NIXL {version} ({package}) cannot be loaded: {error}") from error
    errors = {
        name: value
        for name, value in vars(bindings).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    disconnected = tuple(value for name, value in errors.items() if "RemoteDisconnect" in name)
    return Library(bindings, package, version, (*errors.values(), RuntimeError, ValueError), disconnected)


def probe(address: str = "") -> Library:
    """Load NIXL and make an agent with its UCX backend, which is the only proof that its plugins load.

    Raises:
        TransportError: with the reason.
    """
    prepare_environment(address)
    library = load()
    Agent(unique_name("probe")).close()
    return library


def unique_name(role: str) -> str:
    """An agent's name that no other agent of any process has: NIXL refuses a name that it has seen for good."""
    return f"shardpool-{role}-{uuid.uuid4().hex}"


@dataclass(frozen=True, slots=True)
class Run:
    """`length` bytes at `remote` in the source's process (on `device`) belong at `local` in this one."""

    local: int
    remote: int
    length: int
    device: int = 0


@dataclass(slots=True)
class _Held:
    """What an agent has to give back before it goes."""

    registrations: list[Any] = field(default_factory=list)
    reads: set[int] = field(default_factory=set)
    remotes: set[str] = field(default_factory=set)


class Agent:
    """A NIXL agent with the UCX backend. One thread at a time may use it, apart from `close`.

    Args:
        name: see `unique_name`.
        progress: run NIXL's progress thread, event driven with a delay of 100 ms. A source needs it: over TCP nothing is served
            without. A receiver must not have it: it halves the rate of whoever polls.
        listen_port: open NIXL's own (IPv4, unauthenticated) metadata listener there; None leaves it closed.

    Raises:
        TransportError: NIXL or its UCX plugin cannot be used here.
    """

    def __init__(self, name: str, *, progress: bool = False, listen_port: int | None = None) -> None:
        self.name = name
        self._library = load()
        bindings = self._library.bindings
        options = bindings.nixlAgentConfig()
        options.useProgThread = progress
        options.pthrDelay = SOURCE_PROGRESS_MICROSECONDS
        options.useListenThread = listen_port is not None
        if listen_port is not None:
            options.listenPort = listen_port
        options.lthrDelay = LISTENER_POLL_MICROSECONDS
        options.syncMode = bindings.NIXL_THREAD_SYNC_STRICT  # the default crashes with threads
        self._held = _Held()
        self._agent: Any = None
        try:
            self._agent = bindings.nixlAgent(name, options)
            self._backend = self._agent.createBackend(BACKEND, {})
        except self._library.errors as error:
            self._agent = None
            raise TransportError(
                f"NIXL agent with the {BACKEND} plugin cannot be made: {_text(error)}",
                hint="the log lines of NIXL before this one say more",
            ) from error

    # Memory

    def register(self, regions: Sequence[tuple[int, int]]) -> Any:
        """Make runs of this process's memory, `(address, bytes)`, usable by NIXL. Returns what `deregister` takes."""
        bindings = self._library.bindings
        descriptors = bindings.nixlRegDList(
            bindings.DRAM_SEG, [(address, length, 0, "") for address, length in regions]
        )
        self._try("memory cannot be registered", self._agent.registerMem, descriptors, [self._backend])
        self._held.registrations.append(descriptors)
        return descriptors

    def deregister(self, registration: Any) -> None:
        """Take memory back. No transfer may use it any more."""
        self._held.registrations = [held for held in self._held.registrations if held is not registration]
        self._try("memory cannot be deregistered", self._agent.deregisterMem, registration, [self._backend])

    def metadata(self) -> bytes:
        """What a receiver needs to read from here: 244 bytes and 42 or more a region."""
        return bytes(self._try("metadata cannot be told", self._agent.getLocalMD))

    # Peers

    def add_remote(self, metadata: bytes) -> str:
        """Learn of a source from its metadata, and connect. Returns its agent's name.

        Blocks for seconds where its host is unreachable. The bytes must come over a checked channel: garbage can crash the process.
        """
        name = self._try("source cannot be added", self._agent.loadRemoteMD, metadata)
        remote = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        self._held.remotes.add(remote)
        return remote

    def fetch_remote(
        self, name: str, host: str, port: int, deadline: float, stop: threading.Event | None = None
    ) -> None:
        """Learn of a source through NIXL's own listener at an IPv4 address.

        Raises:
            PeerUnreachableError: nothing came by `deadline` (monotonic); NIXL itself reports no error.
        """
        stop = stop or threading.Event()
        bindings = self._library.bindings
        self._try("metadata cannot be asked for", self._agent.fetchRemoteMD, name, host, port, "")
        self._held.remotes.add(name)
        nothing = bindings.nixlXferDList(bindings.DRAM_SEG)
        while True:
            try:
                if self._agent.checkRemoteMD(name, nothing) == bindings.NIXL_SUCCESS:
                    return
            except self._library.errors:
                pass  # not there yet is told as an error
            if stop.is_set() or time.monotonic() >= deadline:
                raise PeerUnreachableError(
                    f"NIXL agent {name} did not answer at {host}:{port}", hint="is NIXL's listener open there?"
                )
            stop.wait(0.01)

    # Reads

    def memory_of(self, remote: str, run: Run) -> str:
        """The kind of memory in which a source registered a run: `DRAM` (host) or `VRAM` (device).

        Raises:
            TransportError: it did not register the run.
        """
        bindings = self._library.bindings
        for memory, kind in _kinds(bindings).items():
            wanted = bindings.nixlXferDList(kind, [(run.remote, run.length, run.device)])
            try:
                if self._agent.checkRemoteMD(remote, wanted) == bindings.NIXL_SUCCESS:
                    return memory
            except self._library.errors:
                continue  # "not of this kind" is told as an error
        raise TransportError(f"the source did not register {run.length} bytes at {run.remote:#x}")

    def read(self, remote: str, runs: Sequence[Run], memory: str = "DRAM") -> int:
        """Start reading runs from a source, out of one kind of memory there. Returns a handle for `finished` and `release`."""
        bindings = self._library.bindings
        ours = bindings.nixlXferDList(bindings.DRAM_SEG, [(run.local, run.length, 0) for run in runs])
        theirs = bindings.nixlXferDList(
            _kinds(bindings)[memory], [(run.remote, run.length, run.device) for run in runs]
        )
        handle = int(
            self._try(
                "read cannot be prepared",
                self._agent.createXferReq,
                bindings.NIXL_READ,
                ours,
                theirs,
                remote,
                "",
                [self._backend],
            )
        )
        self._held.reads.add(handle)
        status = self._try("read cannot be started", self._agent.postXferReq, handle, "")
        if status not in (bindings.NIXL_SUCCESS, bindings.NIXL_IN_PROG):
            raise TransportError(f"read cannot be started: {status}")
        return handle

    def finished(self, handle: int) -> bool:
        """Make progress, and say whether a read is complete. Raises TransportError when it failed."""
        bindings = self._library.bindings
        status = self._try("read failed", self._agent.getXferStatus, handle)
        if status == bindings.NIXL_SUCCESS:
            return True
        if status == bindings.NIXL_IN_PROG:
            return False
        raise TransportError(f"read failed: {status}")

    def release(self, handle: int) -> None:
        """Free a finished read. Of a running one the bytes go on landing: only `close` stops them."""
        self._held.reads.discard(handle)
        self._try("read cannot be released", self._agent.releaseXferReq, handle)

    def close(self) -> None:
        """Free everything in the order that UCX needs. After it returns nothing writes into memory that was registered here.

        May be repeated.
        """
        agent, self._agent = self._agent, None
        if agent is None:
            return
        for handle in self._held.reads:
            self._quietly(agent.releaseXferReq, handle)
        for remote in self._held.remotes:
            self._quietly(agent.invalidateRemoteMD, remote)
        for registration in reversed(self._held.registrations):
            self._quietly(agent.deregisterMem, registration, [self._backend])
        self._held = _Held()
        del agent  # the last reference: the worker and its connections end here

    def _try(self, what: str, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._library.disconnected as error:
            raise PeerUnreachableError(f"{what}: the source's process ended or closed the connection") from error
        except self._library.errors as error:
            raise TransportError(f"{what}: {_text(error)}") from error

    def _quietly(self, call: Any, *arguments: Any) -> None:
        try:
            call(*arguments)
        except self._library.errors as error:
            LOG.debug("NIXL teardown: %s", _text(error))


def _kinds(bindings: Any) -> dict[str, Any]:
    return {"DRAM": bindings.DRAM_SEG, "VRAM": bindings.VRAM_SEG}


def _text(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()


def fits_memory(address: int, length: int) -> bool:
    """Whether a run of memory fits 64-bit addresses."""
    return address > 0 and length >= 0 and address + length <= _ADDRESS_LIMIT
