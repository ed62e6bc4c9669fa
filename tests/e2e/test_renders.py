"""Every committed render of the chart is one that a real API server takes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import yaml
from harness.cluster import ROOT, Cluster, NoAnswerError
from harness.waiting import eventually

BATCH = 50
GOLDEN = ROOT / "charts" / "shardpool" / "tests" / "golden" / "renders"


def manifests() -> Iterator[dict[str, Any]]:
    """Each distinct manifest of the golden renders."""
    seen = set()
    for file in sorted(GOLDEN.glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            text = json.dumps(manifest, sort_keys=True)
            if manifest and text not in seen:
                seen.add(text)
                yield manifest


def served(cluster: Cluster) -> set[tuple[str, str]]:
    """apiVersion and kind of everything that the cluster serves."""
    lines = cluster.kubectl("api-resources", "--no-headers").splitlines()
    return {(words[-3], words[-1]) for words in map(str.split, lines)}


def test_the_api_server_takes_every_golden_render(cluster: Cluster, namespace: str) -> None:
    if "CRD_MANIFESTS" in os.environ:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", os.environ["CRD_MANIFESTS"], seconds=180)
    known = served(cluster)
    wanted = [entry for entry in manifests() if (entry["apiVersion"], entry["kind"]) in known]
    for manifest in wanted:
        manifest["metadata"]["namespace"] = namespace
    assert {"Deployment", "StatefulSet", "Service", "NetworkPolicy", "Job"} <= {entry["kind"] for entry in wanted}

    taken = 0
    for start in range(0, len(wanted), BATCH):
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted[start : start + BATCH]})
        # Again when the API server gives up: it does so on a crowded machine, and a dry run changes nothing.
        said = eventually("a batch answered", partial(dry_run, cluster, content))
        taken += said.count("serverside-applied (server dry run)")
    assert taken == len(wanted)


def dry_run(cluster: Cluster, content: str) -> str:
    """Apply manifests without effect. AssertionError with the API server's words when it refuses one."""
    said = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "-f", "-", stdin=content, seconds=300, check=False
    )
    if "Error from server (Timeout)" in said:
        raise NoAnswerError(said)
    refusals = [line for line in said.splitlines() if "server dry run" not in line and "Warning" not in line]
    assert not refusals, "\n".join(refusals)
    return said
