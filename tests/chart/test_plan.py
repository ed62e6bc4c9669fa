"""The plan is the table by which doctor judges: it must be what the Services and pods are."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import yaml
from chartlib import GOLDEN, Manifest, Scenario, manifests, pod_templates, render, scenarios

EVERY = scenarios()
every_scenario = pytest.mark.parametrize("scenario", EVERY, ids=[scenario.name for scenario in EVERY])


def plans(objects: list[Manifest]) -> list[dict[str, Any]]:
    return [
        json.loads(item["data"]["plan.json"])
        for item in objects
        if item["kind"] == "ConfigMap" and "plan.json" in item.get("data", {})
    ]


@every_scenario
def test_every_rank_of_the_plan_is_behind_its_services(scenario: Scenario) -> None:
    objects = manifests(scenario.golden.read_text())
    services = {item["metadata"]["name"]: item["spec"] for item in objects if item["kind"] == "Service"}
    for plan in plans(objects):
        assert [entry["rank"] for entry in plan["ranks"]] == list(range(plan["world"]))
        for entry in plan["ranks"]:
            for name in (entry["service"], entry["peersService"]):
                ports = [port for port in services[name]["ports"] if port["name"] == f"rank-{entry['rank']}"]
                assert [(port["port"], port["targetPort"]) for port in ports] == [(entry["port"], entry["targetPort"])]
            assert services[entry["peersService"]]["clusterIP"] == "None"
            assert services[entry["peersService"]]["publishNotReadyAddresses"] is True


@every_scenario
def test_behind_every_rank_is_a_pod_that_listens_there(scenario: Scenario) -> None:
    objects = manifests(scenario.golden.read_text())
    services = {item["metadata"]["name"]: item["spec"] for item in objects if item["kind"] == "Service"}
    pods = [template for _, template in pod_templates(objects)]
    for plan in plans(objects):
        for entry in plan["ranks"]:
            selector = {k: v for k, v in services[entry["service"]]["selector"].items() if "index" not in k}
            behind = [pod for pod in pods if selector.items() <= pod["metadata"]["labels"].items()]
            assert behind
            for pod in behind:
                containers = pod["spec"].get("initContainers", []) + pod["spec"]["containers"]
                listening = [port["containerPort"] for container in containers for port in container.get("ports", [])]
                assert entry["targetPort"] in listening


@every_scenario
def test_expert_and_other_coordinates_name_the_rank(scenario: Scenario) -> None:
    for plan in plans(manifests(scenario.golden.read_text())):
        engine = plan["engine"]
        for rank in engine.get("ranks", []):
            outer = rank.get("ep", rank.get("dp", 0) * engine["pipelineParallel"] + rank.get("pp", 0))
            assert rank["rank"] == outer * engine["tensorParallel"] + rank["tp"]


def test_the_identity_hash_is_of_the_documented_facts() -> None:
    """A change of this hash replaces every pod of every release: it must never change by accident."""
    values = yaml.safe_load((GOLDEN / "extra/short.yaml").read_text())
    facts = {
        "addresses": "perPod",
        "dtype": "",
        "layout": "striped",
        "localRanks": 4,
        "model": values["model"]["id"],
        "quantization": "",
        "revision": values["model"]["revision"],
        "world": 4,
    }
    expected = hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]
    [(_, pod), _] = pod_templates(manifests(render(values)))
    assert pod["metadata"]["labels"]["mx.identity"] == expected


def test_the_plan_of_a_pool_has_the_identity_of_the_contract() -> None:
    [plan] = plans(manifests((GOLDEN / "renders/short.yaml").read_text()))
    assert plan["identity"] == {
        "mx_version": "shardpool/1",
        "mx_source_type": 0,
        "model_name": "Qwen/Qwen2.5-7B-Instruct",
        "backend_framework": 0,
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 1,
        "expert_parallel_size": 0,
        "dtype": "",
        "quantization": "",
        "revision": "a09a35458c702b33eeacc393d103063234e8bc28",
        "extra_parameters": {"shardpool_layout": "striped"},
    }
