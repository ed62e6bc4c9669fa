"""What an operator relies on: the preflight, the network policy, the transports."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from harness.cluster import Cluster
from harness.release import Release
from harness.storage import Hub, Model
from harness.waiting import eventually

Releases = Callable[..., Release]
Models = dict[str, Model]

KNOCK = """
import socket, sys
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        print(target, "open")
    except OSError:
        print(target, "closed")
"""


def test_helm_test_passes_on_a_good_release(release: Releases, hub: Hub, models: Models) -> None:
    pool = release(models["first/e2e/other"].values, {"topology": {"shape": "perPod", "world": 2}})
    pool.wait(1)

    said = pool.cluster.run("helm", "test", pool.name, "-n", pool.namespace, "--timeout", "120s", seconds=150)

    assert "Succeeded" in said


def test_helm_test_names_the_fault_of_a_bad_release(release: Releases, hub: Hub, models: Models) -> None:
    pool = release(models["first/e2e/other"].values)
    release(models["first/e2e/whole"].values, name="stranger").wait(1)
    pool.wait(1)
    for suffix in ("", "-peers"):
        pool.cluster.kubectl(
            "patch", "service", pool.fullname + suffix, "-n", pool.namespace,
            "-p", json.dumps({"spec": {"selector": {"app.kubernetes.io/instance": "stranger", "mx.identity": None}}}),
        )  # fmt: skip

    said = pool.cluster.run(
        "helm", "test", pool.name, "-n", pool.namespace, "--timeout", "60s", "--logs", seconds=150, check=False
    )
    log = said + pool.cluster.kubectl(
        "logs", "-n", pool.namespace, "-l", "app.kubernetes.io/name=shardpool-preflight", "--tail=-1", check=False
    )

    assert "e2e/whole" in log  # whose pods are behind the Service
    assert "e2e/other" in log  # whose should be
    assert "Succeeded" not in said


def test_the_network_policy_lets_peers_in_and_strangers_out(
    release: Releases, hub: Hub, models: Models, test_image: str
) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values, {"networkPolicy": {"enabled": True}})
    [first] = pool.wait(1)
    hub.stop()
    cluster, namespace = pool.cluster, pool.namespace
    cluster.apply(
        namespace,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "stranger"},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "python",
                        "image": test_image,
                        "command": ["python3", "-c", "import signal; signal.pause()"],
                    }
                ],
            },
        },
    )
    cluster.kubectl("wait", "pod/stranger", "-n", namespace, "--for=condition=Ready", "--timeout=60s")

    pool.install({"replicas": 2})
    pods = pool.wait(2)

    assert sum(pod.digests(pool.directory) == model.digests for pod in pods) == 2
    targets = [f"{pod.ip}:6555" for pod in pods]
    knocked = eventually(
        "every rank's port closed to the stranger",
        lambda: all_closed(cluster, namespace, "stranger", targets),
        seconds=30,
    )
    assert len(knocked) == 2
    from_a_peer = first.execute("python3", "-c", KNOCK, *targets).splitlines()
    assert from_a_peer == [f"{target} open" for target in targets]


def all_closed(cluster: Cluster, namespace: str, pod: str, targets: list[str]) -> list[str] | None:
    """The targets, if a connection from the pod to each fails."""
    said = cluster.kubectl("exec", "-n", namespace, pod, "--", "python3", "-c", KNOCK, *targets).splitlines()
    return targets if said == [f"{target} closed" for target in targets] else None


def test_nixl_moves_the_bytes_where_it_is_asked_for(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/whole"]
    # Without RDMA, for a fenced test network only: UCX over TCP, pinned to the pod's own device.
    nixl = {"runtime": {"transport": "nixl"}, "fabric": {"ucx": {"UCX_NET_DEVICES": "eth0", "UCX_TLS": "tcp,self"}}}
    pool = release(model.values, nixl)
    [first] = pool.wait(1)
    hub.stop()

    pool.install({"replicas": 2})

    [second] = [pod for pod in pool.wait(2) if pod.name != first.name]
    assert second.digests(pool.directory) == model.digests
    assert second.metric("shardpool_transport_info", transport="nixl") == 1
    assert second.status()["ranks"][0]["summary"]["transport"] == "nixl"
    assert second.bytes_by_origin() == {"seed": 0, "peer": model.size, "resume": 0}


@pytest.mark.parametrize("limit", [16, 64])
def test_the_egress_limit_holds(release: Releases, hub: Hub, models: Models, limit: int) -> None:
    model = models["first/e2e/other"]
    pool = release(model.values, {"runtime": {"egressLimitMbps": limit}})
    pool.wait(1)
    hub.stop()

    pool.install({"replicas": 2})

    loads = [pod.status()["ranks"][0]["summary"] for pod in pool.wait(2)]
    [load] = [load for load in loads if load["bytes_from"]["peer"]]
    assert load["bytes_from"]["peer"] * 8 / load["seconds"] <= limit * 1e6 * 1.2
