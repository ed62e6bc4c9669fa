"""Is the network what it is said to be? Independent iperf3 pairs, all at once and both ways, must reach the shaped rate."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence

from netns.machine import BenchError
from netns.network import Host, Network

REACH = 0.95
SECONDS = 5
OMITTED_SECONDS = 1  # in which TCP finds its rate and the queues fill
PORT = 5201


def measure(network: Network) -> list[float]:
    """Received megabits a second of every pair and direction: host 0 to 1 and back, 2 to 3 and back, and so on."""
    pairs = [pair for k in range(0, len(network.hosts) - 1, 2) for pair in _both_ways(network.hosts[k : k + 2])]
    try:
        for sender, receiver in pairs:
            _spawn(receiver, "-s", "-1", "-p", _port(sender), "-B", receiver.address)
        time.sleep(0.5)  # iperf3 does not say when it listens
        clients = [
            _spawn(
                sender,
                "-c",
                receiver.address,
                "-p",
                _port(sender),
                "-t",
                str(SECONDS),
                "-O",
                str(OMITTED_SECONDS),
                "--json",
            )
            for sender, receiver in pairs
        ]
        return [_rate(client) for client in clients]
    finally:
        network.end_processes()


def valid(rates: Sequence[float], rate: float) -> bool:
    """Whether every pair reached its share of the shaped rate."""
    return min(rates) >= REACH * rate


def _both_ways(pair: Sequence[Host]) -> list[tuple[Host, Host]]:
    one, other = pair
    return [(one, other), (other, one)]


def _port(sender: Host) -> str:
    return str(PORT + sender.number)


def _spawn(host: Host, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["ip", "netns", "exec", host.namespace, "iperf3", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _rate(client: subprocess.Popen[str]) -> float:
    output, _ = client.communicate(timeout=SECONDS + 30)
    try:
        return float(json.loads(output)["end"]["sum_received"]["bits_per_second"]) / 1e6
    except (ValueError, KeyError) as error:
        raise BenchError(f"iperf3 did not measure: {output[-500:]}") from error
