"""The pool on kind, step by step: cold start, scale out, an engine, another revision, a killed source. A table after each step.

    make kind-demo

It says what the pods say of themselves (/metrics, /status) and, beside it, what the storage side has counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))  # the tests' own way to talk to a cluster

from harness.cluster import Cluster  # noqa: E402
from harness.release import Pod, Release  # noqa: E402
from harness.storage import Hub, Model  # noqa: E402
from harness.waiting import eventually  # noqa: E402

NAMESPACE = "shardpool-demo"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
SENTENCES = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
# What a source may send, so that there is time to see it: a copy of the model takes about four seconds.
LIMIT_MBPS = 200
MEGABYTE = 1e6


@dataclass
class Demo:
    """The release, the storage beside it, and the table that grows."""

    release: Release
    hub: Hub
    models: dict[str, Model]
    console: Console
    rows: list[tuple[str, ...]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    read: int = 0

    def show(self, step: str, pods: Iterable[Pod], model: Model) -> None:
        """Add a row for the pods that are new since the last one, and print the table."""
        new = [pod for pod in pods if pod.name not in self.seen]
        self.seen.update(pod.name for pod in new)
        read = sum(self.hub.bytes_read(edition) for edition in self.models)
        from_storage, self.read = read - self.read, read
        seconds = [pod.status()["seconds_to_ready"] for pod in new]
        equal = all(pod.digests(self.release.directory) == model.digests for pod in new)
        self.rows.append(
            (
                step,
                str(len(new)),
                f"{from_storage / MEGABYTE:.1f} MB",
                f"{sum(pod.bytes_by_origin()['peer'] for pod in new) / MEGABYTE:.1f} MB",
                f"{min(seconds):.1f} to {max(seconds):.1f}",
                "yes" if equal else "NO",
            )
        )
        table = Table("step", "new pods", "from storage", "from peers", "seconds to ready", "digests equal")
        for row in self.rows:
            table.add_row(*row)
        self.console.print(table)
        if not equal:
            raise SystemExit("the bytes of a pod are not the published ones")

    def say(self, text: str) -> None:
        """Announce a step."""
        self.console.print(f"\n[bold]{text}[/bold]")


def run(demo: Demo) -> None:
    """All the steps."""
    release, first, second = demo.release, demo.models["first"], demo.models["second"]

    demo.say(
        f"Three replicas of {first.id} ({first.size / MEGABYTE:.0f} MB) start together, and no pod has a byte of it."
    )
    release.install(first.values, {"replicas": 3, "runtime": {"egressLimitMbps": LIMIT_MBPS}})
    demo.show("cold start of 3", release.wait(3), first)

    demo.say("Two more.")
    release.install({"replicas": 5})
    demo.show("scale out to 5", release.wait(5), first)

    demo.say("The same pool under an engine that serves embeddings over HTTP from the local directory.")
    release.install({"replicas": 3, "engine": engine(demo.hub.image)})
    pods = eventually("three pods with an engine", lambda: with_engine(release, 3), seconds=300)
    demo.show("an engine on 3", pods, first)
    vectors = json.loads(pods[0].page("/embed", port=8000, method="POST", body={"texts": SENTENCES}))["embeddings"]
    for other in (1, 2):
        cosine = sum(a * b for a, b in zip(vectors[0], vectors[other], strict=True))
        demo.console.print(f"  {SENTENCES[0]!r} and {SENTENCES[other]!r}: {cosine:.3f}")

    demo.say(
        "Another revision: the first new pod reads storage, the others take it from that one, the old ones serve on."
    )
    release.install(second.values)
    pods = eventually("three pods of the new revision", lambda: of_revision(release, second, 3), seconds=300)
    demo.show("another revision", pods, second)

    demo.say("One more replica, and one of its sources is killed while it sends.")
    release.install({"replicas": 4})
    known = {pod.name for pod in pods}
    receiver = eventually("a replica that is half way", lambda: half_way(release, known), seconds=120)
    pods[0].delete(force=True)
    demo.console.print(f"  killed {pods[0].name} while {receiver.name} was reading")
    demo.show("a source killed", release.wait(4, seconds=300), second)


def engine(image: str) -> dict[str, object]:
    """Chart values of the embedding server."""
    repository, _, tag = image.rpartition(":")
    return {
        "kind": "custom",
        "image": {"repository": repository, "tag": tag},
        "extraArgs": ["$(SHARDPOOL_DIRECTORY)", "8000"],
        "gpuResourceName": "",
        "shmSize": "16Mi",
    }


def with_engine(release: Release, count: int) -> list[Pod] | None:
    """The release's pods if there are `count`, all ready and all with an engine."""
    pods = release.pods()
    names = [{container["name"] for container in pod.manifest["spec"]["containers"]} for pod in pods]
    return release.wait(count, seconds=300) if len(pods) == count and names == [{"engine"}] * count else None


def of_revision(release: Release, model: Model, count: int) -> list[Pod] | None:
    """The release's pods if there are `count`, all ready and all of the model's revision."""
    pods = release.pods()
    if len(pods) != count or any(pod.status()["revision"] != model.revision for pod in pods):
        return None
    return release.wait(count, seconds=300)


def half_way(release: Release, known: set[str]) -> Pod | None:
    """A pod that is not one of the known ones and holds a quarter of its shard, if there is one."""
    for pod in release.pods():
        if pod.name not in known:
            return (
                pod if pod.metric("shardpool_verified_bytes") >= pod.metric("shardpool_shard_bytes") / 4 > 0 else None
            )
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="kind", help="the kind program")
    parser.add_argument("--cluster", default="shardpool", help="name of the kind cluster")
    parser.add_argument("--image", required=True, help="shardpool's image, loaded into the cluster")
    parser.add_argument("--demo-image", required=True, help="the demo's image, loaded into the cluster")
    options = parser.parse_args()
    listed = json.loads((ROOT / "build" / "demo" / "models.json").read_text(encoding="utf-8"))
    models = {entry["edition"]: Model(**entry) for entry in listed if entry["id"] == MINILM}
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        # A file of its own: the user's current context stays what it is.
        command = [options.kind, "export", "kubeconfig", "--name", options.cluster, "--kubeconfig", str(kubeconfig)]
        subprocess.run(command, check=True, capture_output=True)
        cluster = Cluster(kubeconfig, options.cluster)
        cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s", seconds=130)
        cluster.kubectl("create", "namespace", NAMESPACE)
        hub = Hub(cluster, NAMESPACE, options.demo_image).start()
        console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
        run(Demo(Release(cluster, NAMESPACE, "minilm", options.image), hub, models, console))
        console.print(f"\nLook around: kubectl -n {NAMESPACE} get pods; make kind-down ends it.")


if __name__ == "__main__":
    main()
