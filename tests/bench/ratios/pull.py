"""One verified pull, against a bare gRPC stream and against a web server with curl, and on a shaped link against iperf3."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from netns.machine import BenchError

from ratios.footprint import child_processes, children_cpu_seconds, cpu_seconds
from ratios.replicas import Bench, free_ports, remove, size_of, until
from ratios.table import Row, Skipped

SECTION = "One verified pull, loopback"
SHAPED = "One verified pull, link shaped to 1 Gbit/s"
SHAPED_MBPS = 1000.0
NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{ access_log off; sendfile on; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
uwsgi_temp_path {folder}; scgi_temp_path {folder};
server {{ listen 127.0.0.1:{port}; root {root}; }} }}
"""


def measure(bench: Bench, size: int, rounds: int) -> Iterator[Row | Skipped]:
    """Rounds alternate between the contenders, so that other load on the machine meets all of them; the first is not counted."""
    model = bench.checkpoint(size)
    copy = size_of(model)
    source = bench.serve(seed=f"directory:{model}").wait()
    whole = bench.new_folder("whole") / "model.bin"  # the same bytes as one file, for those who move files
    with whole.open("wb") as out:
        for path in sorted(path for path in model.rglob("*") if path.is_file()):
            with path.open("rb") as part:
                shutil.copyfileobj(part, out, 1 << 20)
    walls: list[float] = []

    def pull() -> float:
        done = bench.pull([source.address])
        walls.append(done["wall"])
        (rank,) = done["ranks"]
        if rank["bytes_from"].get("peer") != copy:
            raise BenchError(f"the pull took {rank['bytes_from']} of {copy} bytes")
        return float(rank["seconds"])

    web, curl, web_server = _web(bench, whole)
    bare, bare_server = _bare(bench, whole, copy)
    servers_of_others = [bare_server, *child_processes(web_server)]
    contenders: dict[str, Callable[[], float]] = {
        "bare": lambda: bare(False),
        "written": lambda: bare(True),
        "web": curl,
        "pull": pull,
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    worked: dict[str, list[float]] = {name: [] for name in contenders}
    servers = [*source.pids(), *servers_of_others]
    for number in range(rounds + 1):
        for name, run in contenders.items():
            before = cpu_seconds(servers) + children_cpu_seconds()
            took = run()
            if number:
                seconds[name].append(took)
                worked[name].append(cpu_seconds(servers) + children_cpu_seconds() - before)
    rates = {name: copy / median(values) / 1e9 for name, values in seconds.items()}

    def ratio(name: str, of: Mapping[str, Sequence[float]] = seconds) -> float:
        return median(other / own for own, other in zip(of["pull"], of[name], strict=True))

    yield Row(
        SECTION,
        "shardpool pull",
        rates["pull"],
        "GB/s",
        note=f"{copy / 1e9:.2f} GB, median of {rounds}, verified, in its directory",
    )
    yield Row(SECTION, "bare gRPC stream, bytes thrown away", rates["bare"], "GB/s")
    yield Row(SECTION, "bare gRPC stream, written to a file", rates["written"], "GB/s")
    yield Row(SECTION, web, rates["web"], "GB/s", note="not verified")
    yield Row(SECTION, "pull / bare stream", ratio("bare"), "", 0.8, least=True)
    yield Row(SECTION, "pull / bare stream written to a file", ratio("written"), "")
    yield Row(SECTION, f"pull / {web}", ratio("web"), "")
    for name, what in (("pull", "shardpool pull"), ("written", "bare gRPC stream, written to a file"), ("web", web)):
        value = median(worked[name]) / copy * 1e9
        yield Row(SECTION, f"processor time: {what}", value, "s/GB", note="both ends, start of the receiver included")
    yield Row(
        SECTION, "whole command", median(walls[1:]), "s", note="from the shell, start and exit of Python included"
    )
    source.stop()
    remove(model.parent)


def measure_shaped(bench: Bench, size: int, rounds: int) -> Iterator[Row | Skipped]:
    """Two namespaces, htb on both ends of both links."""
    missing = [tool for tool in ("ip", "tc", "iperf3") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        yield Skipped(SHAPED, "needs root" if not missing else f"not found: {', '.join(missing)} (iproute2, iperf3)")
        return
    from netns import control
    from netns.machine import only_run
    from netns.network import Network

    model = bench.checkpoint(size)
    copy = size_of(model)
    with only_run(), Network(2, SHAPED_MBPS) as network:
        one, other = network.hosts
        inside = [["ip", "netns", "exec", host.namespace] for host in (one, other)]
        source = bench.serve(seed=f"directory:{model}", host=one.address, prefix=inside[0]).wait_for_directory()
        reached, pulled = [], []
        for _ in range(rounds):
            reached.append(control.measure(network)[0] * 1e6 / 8)
            if source.process.poll() is not None:  # the control ends whatever runs in the namespaces
                source = bench.serve(seed=f"directory:{model}", host=one.address, prefix=inside[0]).wait_for_directory()
            (rank,) = bench.pull([source.address], prefix=inside[1])["ranks"]
            pulled.append(copy / rank["seconds"])
        rate, line = median(pulled), median(reached)
        yield Row(
            SHAPED,
            "iperf3",
            line / 1e6,
            "MB/s",
            note="invalid run: below 95 % of the shaped rate" if line < 0.95 * SHAPED_MBPS * 1e6 / 8 else "",
        )
        yield Row(
            SHAPED, "shardpool pull", rate / 1e6, "MB/s", note=f"{copy / 1e9:.2f} GB, median of {rounds}, verified"
        )
        ratios = [own / control for own, control in zip(pulled, reached, strict=True)]
        yield Row(SHAPED, "pull / iperf3", median(ratios), "", 0.95, least=True)
    remove(model.parent)


def _bare(bench: Bench, whole: Path, size: int) -> tuple[Callable[[bool], float], int]:
    module = [sys.executable, "-m", "ratios.bare_stream"]
    server = bench.spawn([*module, "serve", str(whole)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port = server.stdout.readline().strip()

    def take(written: bool) -> float:
        folder = bench.new_folder("bare")
        file = [str(folder / "copy")] if written else []
        done = subprocess.run([*module, "take", port, str(size), *file], check=True, capture_output=True, text=True)
        remove(folder)
        return float(done.stdout)

    return take, server.pid


def _web(bench: Bench, whole: Path) -> tuple[str, Callable[[], float], int]:
    """nginx where there is one, else Python's own web server; taken by curl into a file."""
    if shutil.which("curl") is None:
        raise BenchError("curl is not found; on Debian: apt-get install curl nginx-light")
    folder = bench.new_folder("web")
    (port,) = free_ports(1)
    nginx = shutil.which("nginx")
    if nginx:
        name = "nginx + curl"
        (folder / "conf").write_text(NGINX.format(folder=folder, root=whole.parent, port=port))
        command = [nginx, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "conf")]
    else:
        name = "python -m http.server + curl"
        command = [
            sys.executable,
            "-m",
            "http.server",
            str(port),
            "--bind",
            "127.0.0.1",
            "--directory",
            str(whole.parent),
        ]
    server = bench.spawn(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    curl = ["curl", "--noproxy", "*", "--silent", "--fail"]
    url = f"http://127.0.0.1:{port}/{whole.name}"
    until(lambda: subprocess.run([*curl, "--head", "-o", "/dev/null", url], check=False).returncode == 0, name, 20)

    def take() -> float:
        target = bench.new_folder("curl")
        started = time.monotonic()
        subprocess.run([*curl, "-o", str(target / "copy"), url], check=True)
        seconds = time.monotonic() - started
        remove(target)
        return seconds

    return name, take, server.pid
