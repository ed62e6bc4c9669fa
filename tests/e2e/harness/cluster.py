"""A Kubernetes cluster: one that pytest-kind makes, or one that is there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pykube
import requests
from pytest_kind import KindCluster

from harness.waiting import eventually

Manifest = Mapping[str, Any]
ROOT = Path(__file__).resolve().parents[3]
CONFIG = ROOT / "kind" / "cluster.yaml"
REQUEST_SECONDS = 30.0


class NoAnswerError(OSError):
    """The API server, or a pod behind it, gave no usable answer."""


class CommandError(OSError):
    """kubectl or helm failed."""


def program(name: str) -> Path:
    """Path of a program that the suite runs. FileNotFoundError that says what to install."""
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not on the PATH; docs/kind.md says what the end-to-end tests need")
    return Path(found)


def make_kind_cluster(name: str, kubeconfig: Path, node_image: str | None, images: Sequence[str]) -> KindCluster:
    """Create the kind cluster of kind/cluster.yaml through pytest-kind, load the images, wait for its nodes and its DNS."""
    back = Path.cwd()
    os.chdir(kubeconfig.parent)  # pytest-kind keeps its own files where it is called
    try:
        kind = KindCluster(
            name, kubeconfig=kubeconfig, image=node_image, kind_path=program("kind"), kubectl_path=program("kubectl")
        )
    finally:
        os.chdir(back)
    try:
        kind.create(CONFIG)
        # One command for all images: layers that they share travel once.
        subprocess.run([str(kind.kind_path), "load", "docker-image", *images, "--name", name], check=True)
        kind.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=120s")
        kind.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
    except BaseException:
        kind.delete()
        raise
    return kind


@dataclass
class Cluster:
    """Access to a cluster by its kubeconfig. `kind` is its name where nodes can be reached with docker, else empty."""

    kubeconfig: Path
    kind: str = ""

    def __post_init__(self) -> None:
        self._api = pykube.HTTPClient(pykube.KubeConfig.from_file(str(self.kubeconfig)))
        self._server = self._api.config.cluster["server"]

    # Commands

    def run(self, *command: str, stdin: str = "", seconds: float = 120.0, check: bool = True) -> str:
        """Run kubectl or helm on this cluster; returns its output. CommandError with both outputs when it fails."""
        done = subprocess.run(
            [str(program(command[0])), *command[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
        )
        if check and done.returncode != 0:
            raise CommandError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}{done.stdout}")
        return done.stdout if check else done.stdout + done.stderr

    def kubectl(self, *arguments: str, **options: Any) -> str:
        """Run kubectl."""
        return self.run("kubectl", *arguments, **options)

    def apply(self, namespace: str, *manifests: Manifest) -> None:
        """Apply manifests to a namespace; again if the API server gives up, as it does on a crowded machine."""
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        eventually("the manifests applied", lambda: self.kubectl("apply", "-n", namespace, "-f", "-", stdin=content))

    # The API itself: faster than a process for each question. pykube's session signs the calls.

    def request(self, method: str, path: str, *, seconds: float = REQUEST_SECONDS, **options: Any) -> requests.Response:
        """One call of the API server, as the kubeconfig's user. NoAnswerError unless it answers with success."""
        try:
            answer: requests.Response = self._api.session.request(
                method, self._server + path, timeout=seconds, **options
            )
        except requests.RequestException as error:
            raise NoAnswerError(f"{method} {path}: {error}") from error
        if not answer.ok:
            raise NoAnswerError(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
        return answer

    def get(self, path: str, **query: str) -> Any:
        """GET of an API path, decoded."""
        return self.request("GET", f"{path}?{urlencode(query)}" if query else path).json()

    def pods(self, namespace: str, selector: str = "") -> list[Manifest]:
        """The pods of a namespace that match a label selector, those that are going away included."""
        items: list[Manifest] = self.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)["items"]
        return items

    def wait_for_pods(
        self,
        namespace: str,
        selector: str,
        condition: Callable[[Sequence[Manifest]], bool],
        *,
        what: str,
        seconds: float = 120.0,
    ) -> list[Manifest]:
        """Follow the pods' events until the condition holds for all that match; return them. AssertionError after `seconds`."""
        deadline = time.monotonic() + seconds
        path = f"/api/v1/namespaces/{namespace}/pods"
        known: dict[str, Manifest] = {}
        problem = ""
        while time.monotonic() < deadline:
            try:
                for known in self._states(path, selector, deadline):
                    if condition(list(known.values())):
                        return list(known.values())
            except (NoAnswerError, requests.RequestException) as error:
                problem = f"; {error}"  # the API server is busy, or closed the watch: list again
        seen = (", ".join(map(_summary, known.values())) or "none") + problem
        raise AssertionError(f"not within {seconds:g} s: {what}; the pods ({selector}) are: {seen}")

    def _states(self, path: str, selector: str, deadline: float) -> Iterator[dict[str, Manifest]]:
        """The matching pods by name, now and after each of their events, until the deadline or until the server wants a new listing."""
        listing = self.get(path, labelSelector=selector)
        known: dict[str, Manifest] = {pod["metadata"]["name"]: pod for pod in listing["items"]}
        yield known
        left = max(1, int(deadline - time.monotonic()))
        version = listing["metadata"]["resourceVersion"]
        query = {"labelSelector": selector, "watch": "1", "resourceVersion": version, "timeoutSeconds": str(left)}
        with self.request("GET", f"{path}?{urlencode(query)}", seconds=left + 5, stream=True) as stream:
            for line in stream.iter_lines():
                event = json.loads(line)
                name = event["object"].get("metadata", {}).get("name", "")
                if event["type"] in ("ADDED", "MODIFIED"):
                    known[name] = event["object"]
                elif event["type"] == "DELETED":
                    known.pop(name, None)
                else:
                    return
                yield known


def is_ready(pod: Manifest) -> bool:
    """Whether the pod is ready and not going away."""
    conditions = {entry["type"]: entry["status"] for entry in pod.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def _summary(pod: Manifest) -> str:
    states = [
        f"{status['name']}={next(iter(status['state']))}"
        + "".join(f"({state.get('reason')})" for state in status["state"].values() if state.get("reason"))
        + ("" if status["ready"] else ", not ready")
        for status in pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
    ]
    return f"{pod['metadata']['name']} {pod['status'].get('phase')} [{'; '.join(states)}]"
