"""The storage side: a model hub in the test's own namespace that counts what is read from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.cluster import Cluster, is_ready
from harness.release import Pod, Values

MODELS = "/models"  # in the suite's image: one folder of models for each port below
PORTS = {"first": 8080, "second": 8081}  # two revisions of the same models
SELECTOR = "app=hub"
ONE_COPY = 1.05  # headers are read twice, and a piece may be read by two that do not know of each other yet


@dataclass(frozen=True)
class Model:
    """A model of the suite's image: id, revision, and the SHA-256 and size of its files."""

    id: str
    revision: str
    files: Mapping[str, Mapping[str, Any]]
    edition: str

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(entry["size"] for entry in self.files.values())

    @property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 of each file."""
        return {path: entry["sha256"] for path, entry in self.files.items()}

    @property
    def values(self) -> Values:
        """Chart values that name this model and its hub."""
        return {
            "model": {"id": self.id, "revision": self.revision},
            "seed": {"type": "hf", "waitForPeersSeconds": 5, "hf": {"endpoint": f"http://hub:{PORTS[self.edition]}"}},
        }


@dataclass(frozen=True)
class Hub:
    """A hub deployed to a namespace."""

    cluster: Cluster
    namespace: str
    image: str

    def start(self) -> Hub:
        """Deploy it and wait until it answers."""
        servers = [
            {
                "name": edition,
                "image": self.image,
                "imagePullPolicy": "IfNotPresent",
                "command": [
                    "python3",
                    "/demo/hub_server.py",
                    f"{MODELS}/{edition}",
                    "--host",
                    "::",
                    "--port",
                    str(port),
                ],
                "ports": [{"containerPort": port}],
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": port}, "periodSeconds": 1},
            }
            for edition, port in PORTS.items()
        ]
        labels = {"app": "hub"}
        self.cluster.apply(
            self.namespace,
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "hub"},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": servers, "terminationGracePeriodSeconds": 1},
                    },
                },
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "hub"},
                "spec": {
                    "selector": labels,
                    "ports": [{"name": edition, "port": port} for edition, port in PORTS.items()],
                },
            },
        )
        self._wait(1)
        return self

    def stop(self) -> None:
        """Take the storage away."""
        self.cluster.kubectl("scale", "-n", self.namespace, "deployment/hub", "--replicas=0")
        self._wait(0)

    def bytes_read(self, edition: str = "first") -> int:
        """Bytes of files that it has sent."""
        return int(self._stats(edition)["bytes"])

    def faults(self, *faults: Mapping[str, Any], edition: str = "first") -> None:
        """Make its answers faulty, as hub_server.py says."""
        self._pod().page("/faults", port=PORTS[edition], method="PUT", body=list(faults))

    def _stats(self, edition: str) -> Mapping[str, Any]:
        content: Mapping[str, Any] = json.loads(self._pod().page("/stats", port=PORTS[edition]))
        return content

    def _pod(self) -> Pod:
        [manifest] = filter(is_ready, self.cluster.pods(self.namespace, SELECTOR))
        return Pod(self.cluster, self.namespace, manifest, manifest["metadata"]["name"])

    def _wait(self, count: int) -> None:
        self.cluster.wait_for_pods(
            self.namespace,
            SELECTOR,
            lambda pods: len(pods) == count and all(map(is_ready, pods)),
            what=f"{count} ready hubs",
        )
