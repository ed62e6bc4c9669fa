"""Seeds that are volumes. Every other test has the hub as its seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.cluster import Cluster
from harness.release import Release
from harness.storage import MODELS, Model

Releases = Callable[..., Release]
Models = dict[str, Model]
NAME = "e2e/other"


@pytest.fixture
def folder(cluster: Cluster, namespace: str, test_image: str) -> Iterator[tuple[str, str]]:
    """A node and a folder on it that holds the model; removed after the test."""
    node = cluster.get("/api/v1/nodes")["items"][-1]["metadata"]["labels"]["kubernetes.io/hostname"]
    path = f"/var/tmp/{namespace}"
    on_node(cluster, namespace, test_image, node, path, f"cp -rL {MODELS}/first/{NAME} /host/model")
    yield node, f"{path}/model"
    on_node(cluster, namespace, test_image, node, path, "rm -r /host/model")


def on_node(cluster: Cluster, namespace: str, image: str, node: str, path: str, command: str) -> None:
    """Run a copy or removal on a folder of a node, mounted at /host. The image has no shell."""
    words = command.split()
    script = {
        "cp": "import shutil, sys; shutil.copytree(sys.argv[2], sys.argv[3])",
        "rm": "import shutil, sys; shutil.rmtree(sys.argv[2])",
    }[words[0]]
    name = f"on-node-{words[0]}"
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {"kubernetes.io/hostname": node},
                    "securityContext": {"runAsUser": 0},
                    "containers": [
                        {
                            "name": "python",
                            "image": image,
                            "command": ["python3", "-c", script, *words[1:]],
                            "volumeMounts": [{"name": "host", "mountPath": "/host"}],
                        }
                    ],
                    "volumes": [{"name": "host", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}],
                }
            },
        },
    }
    cluster.apply(namespace, job)
    cluster.kubectl("wait", f"job/{name}", "-n", namespace, "--for=condition=Complete", "--timeout=90s")


def claim(cluster: Cluster, namespace: str, node: str, path: str) -> str:
    """A read-only claim on a volume that is the folder; its name. The volume goes with the claim's namespace by the test's end."""
    size = {"storage": "1Gi"}
    cluster.apply(
        namespace,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": namespace},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "claimRef": {"namespace": namespace, "name": "models"},
                "hostPath": {"path": path},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models"},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": namespace,
                "resources": {"requests": size},
            },
        },
    )
    return "models"


@pytest.fixture
def volume(cluster: Cluster, namespace: str, folder: tuple[str, str]) -> Iterator[str]:
    """Name of a claim on the folder."""
    yield claim(cluster, namespace, *folder)
    cluster.kubectl("delete", "persistentvolume", namespace, "--wait=false")


def check(pool: Release, model: Model) -> None:
    """Two replicas hold the model and have shared the reading. (How closely is test_pool's matter: this model has few pieces.)"""
    pods = pool.wait(2)
    assert model.size <= sum(pod.bytes_by_origin()["seed"] for pod in pods) <= model.size * 1.5
    for pod in pods:
        assert pod.digests(pool.directory) == model.digests


def test_a_folder_of_the_node_is_a_seed(release: Releases, models: Models, folder: tuple[str, str]) -> None:
    model, (node, path) = models[f"first/{NAME}"], folder
    seed = {"type": "hostPath", "waitForPeersSeconds": 5, "hostPath": {"path": path}}

    pool = release(
        {"model": model.values["model"], "seed": seed, "replicas": 2},
        {"nodeSelector": {"kubernetes.io/hostname": node}},
    )

    check(pool, model)


def test_a_claim_is_a_seed(release: Releases, models: Models, folder: tuple[str, str], volume: str) -> None:
    model, (node, _) = models[f"first/{NAME}"], folder
    seed = {"type": "pvc", "waitForPeersSeconds": 5, "pvc": {"existingClaim": volume}}

    pool = release(
        {"model": model.values["model"], "seed": seed, "replicas": 2},
        {"nodeSelector": {"kubernetes.io/hostname": node}},
    )

    check(pool, model)
