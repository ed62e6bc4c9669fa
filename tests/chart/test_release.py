"""A release as Helm stores it, beside another one, and after the one before."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
from typing import Any

import pytest
import yaml
from chartlib import CHART, GOLDEN, KUBERNETES, Manifest, Values, manifests, merged, pod_templates, render, tool

MATRIX = yaml.safe_load((GOLDEN / "matrix.yaml").read_text())
OTHER_REVISION = {"model": {"revision": "bb46c15ee4bb56c5b63245ef50fd7637234d6f75"}}
SHAPES = list(MATRIX["shapes"])


def values(shape: str, *more: Values) -> Values:
    return merged(MATRIX["base"], MATRIX["shapes"][shape], MATRIX["seeds"]["hf"], *more)


def by_name(objects: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


@pytest.mark.parametrize("engine", ["none", "vllm-pool", "vllm-modelexpress"])
@pytest.mark.parametrize("shape", ["perRank", "multiNode"])
def test_a_release_of_64_ranks_is_stored_in_less_than_200_kib(shape: str, engine: str, tmp_path: Any) -> None:
    """Helm keeps base64(gzip(JSON of release and chart)) in a Secret, whose limit is 1 MiB."""
    topology = {"world": 64, "gpusPerPod": 8 if shape == "multiNode" else 0, "layout": "sharded"}
    if engine == "vllm-modelexpress":
        topology["layout"] = "auto"
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values(shape, MATRIX["engines"][engine], {"topology": topology})))
    command = [
        tool("helm"),
        "install",
        "demo",
        str(CHART),
        "--values",
        str(file),
        "--dry-run=client",
        "--output",
        "json",
    ]
    release = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert release["manifest"].count('mx.rank: "') or shape == "multiNode"
    assert release["chart"]["templates"], "the chart is part of what is stored"
    stored = base64.b64encode(gzip.compress(json.dumps(release, separators=(",", ":")).encode(), 9))
    assert len(stored) < 200 * 1024, f"{len(stored) / 1024:.0f} KiB"


def test_tests_and_golden_renders_are_not_packaged(tmp_path: Any) -> None:
    subprocess.run(
        [tool("helm"), "package", str(CHART), "--destination", str(tmp_path)], capture_output=True, check=True
    )
    package = next(tmp_path.glob("shardpool-*.tgz"))
    names = subprocess.run(["tar", "-tzf", str(package)], capture_output=True, text=True, check=True).stdout.split()
    assert "shardpool/templates/tests/preflight.yaml" in names
    assert not [name for name in names if name.startswith("shardpool/tests/") or name.endswith(".in")]


@pytest.mark.parametrize(
    ("one", "two"),
    [("a", "b"), ("qwen", "qwen-peers"), ("qwen", "qwen-rank-0"), ("qwen", "qwen-canary"), ("a" * 53, "a" * 52)],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_two_releases_in_one_namespace_share_no_name(shape: str, one: str, two: str) -> None:
    everything = {
        "canary": {"enabled": True, **OTHER_REVISION},
        "networkPolicy": {"enabled": True},
        **MATRIX["engines"]["vllm-pool"],
    }
    first, second = (by_name(manifests(render(values(shape, everything), release=name))) for name in (one, two))
    assert not first.keys() & second.keys()


@pytest.mark.parametrize("shape", SHAPES)
def test_two_releases_of_one_model_select_only_their_own_pods(shape: str) -> None:
    first, second = (
        manifests(render(values(shape, MATRIX["engines"]["vllm-pool"]), release=name)) for name in ("a", "b")
    )
    foreign = [template["metadata"]["labels"] for _, template in pod_templates(second)]
    for item in first:
        selector = selector_of(item)
        if selector:
            assert not [labels for labels in foreign if selector.items() <= labels.items()], item["metadata"]["name"]


def selector_of(item: Manifest) -> dict[str, str]:
    spec = item.get("spec", {})
    selector = spec.get("selector") or spec.get("podSelector") or {}
    labels: dict[str, str] = selector.get("matchLabels", selector if item["kind"] == "Service" else {})
    return labels


IMMUTABLE = {
    "Deployment": ("selector",),
    "StatefulSet": ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"),
    "LeaderWorkerSet": (),
    "Service": ("clusterIP",),
}
UPGRADES: dict[str, Values] = {
    "revision": OTHER_REVISION,
    "images": {"runtime": {"image": {"tag": "9.9.9"}}, "engine": {"image": {"tag": "9.9.9"}}},
    "labels": {"commonLabels": {"a": "b"}, "podLabels": {"c": "d"}, "podAnnotations": {"e": "f"}},
    "layout": {"topology": {"layout": "whole"}},
    "store": {"store": {"medium": "Memory", "path": "/data"}},
    "policies": {
        "networkPolicy": {"enabled": True},
        "service": {"identityInSelector": False},
        "rollout": {"strategy": "OnDelete"},
    },
    "ports": {"ports": {"workerGrpcBase": 7000, "metrics": 7999}},
    "name override": {"nameOverride": "shardpool"},
}


@pytest.mark.parametrize("change", UPGRADES)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_upgrade_changes_nothing_that_the_api_server_keeps_for_ever(shape: str, change: str) -> None:
    before, after = (by_name(manifests(render(values(shape, more)))) for more in ({}, UPGRADES[change]))
    workloads = [key for key in before if key[0] in ("Deployment", "StatefulSet", "LeaderWorkerSet")]
    assert workloads
    for key in before.keys() & after.keys():
        for field in IMMUTABLE.get(key[0], ()):
            assert before[key]["spec"].get(field) == after[key]["spec"].get(field), f"{key} {field}"
    assert [key for key in workloads if key not in after] == [], "the upgrade would delete a workload"


@pytest.mark.parametrize("shape", SHAPES)
def test_another_revision_moves_the_rank_services_to_the_new_pods(shape: str) -> None:
    before, after = (by_name(manifests(render(values(shape, more)))) for more in ({}, OTHER_REVISION))
    old_pods = [template["metadata"]["labels"] for _, template in pod_templates(list(before.values()))]
    new_pods = [template["metadata"]["labels"] for _, template in pod_templates(list(after.values()))]
    moved = [
        item for (kind, name), item in after.items() if kind == "Service" and "mx.identity" in item["spec"]["selector"]
    ]
    assert moved
    for service in moved:
        selector = {k: v for k, v in service["spec"]["selector"].items() if "index" not in k}
        assert [labels for labels in new_pods if selector.items() <= labels.items()]
        assert not [labels for labels in old_pods if selector.items() <= labels.items()]


def test_a_canary_that_is_promoted_becomes_a_peer_of_the_stable_pods() -> None:
    promoted = {**OTHER_REVISION, "canary": {"enabled": True, **OTHER_REVISION}}
    objects = by_name(manifests(render(values("perPod", promoted))))
    stable, canary = (
        objects["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        for name in ("demo-shardpool", "demo-shardpool-canary")
    )
    selector = objects["Service", "demo-shardpool-peers"]["spec"]["selector"]
    assert selector.items() <= stable.items()
    assert selector.items() <= canary.items()


def test_the_chart_refuses_older_clusters() -> None:
    command = [
        tool("helm"),
        "template",
        "demo",
        str(CHART),
        "--values",
        str(GOLDEN / "extra/short.yaml"),
        "--kube-version",
    ]
    assert subprocess.run([*command, KUBERNETES], capture_output=True, check=False).returncode == 0
    refused = subprocess.run([*command, "1.33.0"], capture_output=True, text=True, check=False)
    assert "requires kubeVersion: >=1.34.0-0" in refused.stderr
