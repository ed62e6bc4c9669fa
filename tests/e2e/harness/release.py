"""A release of the chart, and its pods as the tests ask them."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from harness.cluster import ROOT, Cluster, Manifest, is_ready

CHART = ROOT / "charts" / "shardpool"
HTTP_PORT = 9465
Values = Mapping[str, Any]

# What every release of the suite is installed with: small requests, quick probes, short ends. A test's own values are merged over it.
COMMON: Values = {
    "store": {"sizeLimit": "512Mi"},
    "runtime": {
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        # A crowded machine may stop a healthy source for seconds: that is no stall to a test, unless it says so.
        "extraEnv": [{"name": "SHARDPOOL_STALL_SECONDS", "value": "30"}],
    },
    "probes": {
        "startup": {"budgetSeconds": 120, "periodSeconds": 1},
        "readiness": {"periodSeconds": 1, "timeoutSeconds": 5},
        "liveness": {"periodSeconds": 5, "timeoutSeconds": 10},
    },
    "drain": {"preStopSeconds": 1, "shutdownSeconds": 10},
}

HASH_TREE = """
import hashlib, json, os, sys
top, found = sys.argv[1], {}
for folder, _, names in os.walk(top):
    for name in names:
        path = os.path.join(folder, name)
        found[os.path.relpath(path, top)] = hashlib.sha256(open(path, "rb").read()).hexdigest()
print(json.dumps(found))
"""


def merged(*layers: Values) -> dict[str, Any]:
    """Values, the later over the earlier, as Helm merges them."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = result.get(key)
            if isinstance(old, Mapping) and isinstance(value, Mapping):
                result[key] = merged(old, value)
            else:
                result[key] = copy.deepcopy(value)
    return result


@dataclass(frozen=True)
class Pod:
    """A pod of a release. Questions go through the API server, which reaches pods on every cluster."""

    cluster: Cluster
    namespace: str
    manifest: Manifest = field(repr=False, hash=False, compare=False)
    name: str

    @property
    def ip(self) -> str:
        return str(self.manifest["status"].get("podIP", ""))

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self.manifest["metadata"]["labels"])

    @property
    def node(self) -> str:
        return str(self.manifest["spec"].get("nodeName", ""))

    @property
    def restarts(self) -> int:
        status = self.manifest["status"]
        statuses = status.get("containerStatuses", []) + status.get("initContainerStatuses", [])
        return sum(entry["restartCount"] for entry in statuses)

    def page(self, path: str, *, port: int = HTTP_PORT, method: str = "GET", body: Any = None) -> str:
        """Text of an HTTP page of the pod. NoAnswerError unless it answers with success."""
        url = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}:{port}/proxy{path}"
        return self.cluster.request(method, url, **({} if body is None else {"json": body})).text

    def status(self) -> Mapping[str, Any]:
        """The page /status."""
        content: Mapping[str, Any] = json.loads(self.page("/status"))
        return content

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's samples that carry the labels; 0 where there is none."""
        families = text_string_to_metric_families(self.page("/metrics"))
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def bytes_by_origin(self) -> Counter[str]:
        """Verified bytes of all ranks of the pod by where they came from: peer, seed, resume."""
        found: Counter[str] = Counter()
        for family in text_string_to_metric_families(self.page("/metrics")):
            for sample in family.samples:
                if sample.name == "shardpool_bytes_total":
                    found[sample.labels["origin"]] += int(sample.value)
        return found

    def signal(self, name: str, rank: int) -> None:
        """Send a signal (`SIGKILL`, `SIGSTOP`, ...) to the process of a rank."""
        [pid] = [entry["pid"] for entry in self.status()["ranks"] if entry["rank"] == rank]
        self.execute("python3", "-c", f"import os, signal; os.kill({pid}, signal.{name})")

    def execute(self, *command: str, container: str = "shardpool", **options: Any) -> str:
        """Run a command in a container of the pod; returns its output."""
        return self.cluster.kubectl("exec", "-n", self.namespace, self.name, "-c", container, "--", *command, **options)

    def digests(self, directory: str) -> Mapping[str, str]:
        """SHA-256 of every file below a directory of the pod, by relative path."""
        content: Mapping[str, str] = json.loads(self.execute("python3", "-c", HASH_TREE, directory))
        return content

    def delete(self, *, force: bool = False) -> None:
        """Delete the pod, and return at once. `force`: killed without a warning, as when a node is lost."""
        options = ("--grace-period=0", "--force") if force else ()
        self.cluster.kubectl("delete", "pod", "-n", self.namespace, self.name, "--wait=false", *options)


@dataclass
class Release:
    """One release of the chart in a namespace."""

    cluster: Cluster
    namespace: str
    name: str
    image: str
    values: dict[str, Any] = field(default_factory=dict)

    def install(self, *layers: Values) -> Release:
        """Install or upgrade with COMMON, the values of earlier calls, and these; returns at once."""
        repository, _, tag = self.image.rpartition(":")
        image = {"runtime": {"image": {"repository": repository, "tag": tag}}}
        self.values = merged(COMMON, image, self.values, *layers)
        self.cluster.run(
            "helm", "upgrade", "--install", self.name, str(CHART), "-n", self.namespace, "-f", "-",
            stdin=json.dumps(self.values),
        )  # fmt: skip
        return self

    def uninstall(self) -> None:
        """Uninstall the release; its pods end after it."""
        self.cluster.run("helm", "uninstall", self.name, "-n", self.namespace)

    @property
    def fullname(self) -> str:
        """The name that the chart gives the release's objects."""
        return self.name if "shardpool" in self.name else f"{self.name}-shardpool"

    @property
    def directory(self) -> str:
        """Path of the model directory in every pod."""
        return f"/models/{self.values['model']['id']}"

    @property
    def selector(self) -> str:
        """Label selector of the release's serving pods."""
        return f"app.kubernetes.io/instance={self.name},mx.identity"

    def pods(self, selector: str = "") -> list[Pod]:
        """The release's pods that are not going away, by name."""
        found = self.cluster.pods(self.namespace, ",".join(filter(None, (self.selector, selector))))
        return [self._pod(item) for item in _living(found)]

    def wait(self, count: int, *, selector: str = "", seconds: float = 120.0) -> list[Pod]:
        """Wait until exactly `count` pods are there, none going away, all ready; return them by name."""
        found = self.cluster.wait_for_pods(
            self.namespace,
            ",".join(filter(None, (self.selector, selector))),
            lambda pods: len(pods) == count and all(map(is_ready, pods)),
            what=f"{count} ready pods of {self.name}",
            seconds=seconds,
        )
        return [self._pod(item) for item in _living(found)]

    def _pod(self, manifest: Manifest) -> Pod:
        return Pod(self.cluster, self.namespace, manifest, manifest["metadata"]["name"])


def _living(pods: Sequence[Manifest]) -> list[Manifest]:
    return sorted(
        (pod for pod in pods if "deletionTimestamp" not in pod["metadata"]),
        key=lambda pod: str(pod["metadata"]["name"]),
    )
