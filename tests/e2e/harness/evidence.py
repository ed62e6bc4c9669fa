"""What a failed test leaves behind: events, the pods' descriptions, logs, status and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from harness.cluster import Cluster, NoAnswerError
from harness.release import Pod

MOST_LINES_SHOWN = 40


def collect(cluster: Cluster, namespace: str, folder: Path) -> str:
    """Write everything about a namespace to a folder; return the end of each log, for the test's report."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = []
    for name, content in _pieces(cluster, namespace):
        (folder / name).write_text(content, encoding="utf-8")
        if name.endswith(".log") or name in ("pods.txt", "events.txt"):
            lines = content.splitlines()[-MOST_LINES_SHOWN:]
            shown.append("\n".join([f"--- {name}", *lines]))
    return "\n".join([f"everything is in {folder}", *shown])


def _pieces(cluster: Cluster, namespace: str) -> Iterator[tuple[str, str]]:
    def kubectl(*arguments: str) -> str:
        return cluster.kubectl("-n", namespace, *arguments, check=False)

    yield "pods.txt", kubectl("get", "pods", "-o", "wide", "--show-labels")
    yield "events.txt", kubectl("get", "events", "--sort-by=.lastTimestamp")
    yield "objects.yaml", kubectl("get", "all,endpointslices,networkpolicies,configmaps", "-o", "yaml")
    for manifest in cluster.pods(namespace):
        pod = Pod(cluster, namespace, manifest, manifest["metadata"]["name"])
        yield f"{pod.name}.txt", kubectl("describe", "pod", pod.name)
        containers = manifest["spec"].get("initContainers", []) + manifest["spec"]["containers"]
        for container in (entry["name"] for entry in containers):
            yield f"{pod.name}.{container}.log", kubectl("logs", pod.name, "-c", container)
            if pod.restarts:
                yield f"{pod.name}.{container}.before.log", kubectl("logs", pod.name, "-c", container, "--previous")
        for page in ("status", "metrics"):
            yield f"{pod.name}.{page}", _or_reason(lambda pod=pod, page=page: pod.page(f"/{page}"))  # type: ignore[misc]


def _or_reason(read: Callable[[], str]) -> str:
    try:
        return read()
    except NoAnswerError as error:
        return f"no answer: {error}\n"
