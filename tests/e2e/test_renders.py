"""Every committed render of the chart is one that a real API server takes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import yaml
from harness.cluster import ROOT, Cluster

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

    said = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "-f", "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted}), seconds=300,
    )  # fmt: skip

    assert said.count("serverside-applied (server dry run)") == len(wanted)
