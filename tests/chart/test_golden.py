"""What the chart renders is what was read and committed, and it is the same with both Helms, every time."""

from __future__ import annotations

import pytest
import yaml
from chartlib import RenderError, Scenario, manifests, pod_templates, refused_scenarios, render, scenarios, validate
from golden import difference, strays

EVERY = scenarios()
every_scenario = pytest.mark.parametrize("scenario", EVERY, ids=[scenario.name for scenario in EVERY])


@every_scenario
def test_a_render_is_the_golden_one(scenario: Scenario) -> None:
    assert difference(scenario) == "", "read the difference; `make chart-golden` if it is meant"


@every_scenario
def test_helm_3_renders_the_same(scenario: Scenario) -> None:
    assert render(scenario.values, helm="helm3") == scenario.golden.read_text()


@pytest.mark.parametrize("scenario", refused_scenarios(), ids=lambda scenario: scenario.name)
def test_a_combination_without_a_source_is_refused(scenario: Scenario) -> None:
    with pytest.raises(RenderError, match=r"1 mistake in the values of release demo\n\n1\. seed\.type (s3|none): "):
        render(scenario.values)


def test_no_golden_render_is_left_over() -> None:
    assert strays() == []


def test_every_object_is_valid() -> None:
    validate("\n---\n".join(scenario.golden.read_text() for scenario in EVERY))


def test_the_pods_of_leader_worker_sets_are_valid() -> None:
    """Their schema leaves pods open, so that each is checked as a PodTemplate of its own."""
    templates = [
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "checked"}, "template": template}
        for scenario in EVERY
        for place, template in pod_templates(manifests(scenario.golden.read_text()))
        if place.startswith("LeaderWorkerSet")
    ]
    assert templates
    validate(yaml.safe_dump_all(templates))


@every_scenario
def test_no_name_stands_twice_where_server_side_apply_wants_it_once(scenario: Scenario) -> None:
    objects = manifests(scenario.golden.read_text())
    for item in objects:
        if item["kind"] == "Service":
            ports = item["spec"].get("ports", [])
            assert_once(f"{item['metadata']['name']}: port name", [port["name"] for port in ports])
            assert_once(f"{item['metadata']['name']}: port", [port["port"] for port in ports])
    for place, template in pod_templates(objects):
        containers = template["spec"].get("initContainers", []) + template["spec"]["containers"]
        assert_once(f"{place}: container", [container["name"] for container in containers])
        assert_once(f"{place}: volume", [volume["name"] for volume in template["spec"].get("volumes", [])])
        ports = [port for container in containers for port in container.get("ports", [])]
        assert_once(f"{place}: port name", [port["name"] for port in ports])
        assert_once(f"{place}: container port", [port["containerPort"] for port in ports])
        for container in containers:
            assert_once(f"{place}: environment", [entry["name"] for entry in container.get("env", [])])
            assert_once(f"{place}: mount", [mount["mountPath"] for mount in container.get("volumeMounts", [])])


@every_scenario
def test_every_mount_has_its_volume_and_every_volume_a_mount(scenario: Scenario) -> None:
    for place, template in pod_templates(manifests(scenario.golden.read_text())):
        containers = template["spec"].get("initContainers", []) + template["spec"]["containers"]
        mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in template["spec"].get("volumes", [])}, place


@every_scenario
def test_variables_are_defined_before_they_are_used(scenario: Scenario) -> None:
    """Kubernetes expands $(NAME) only from entries above; the operator defines those that start with LWS_."""
    for place, template in pod_templates(manifests(scenario.golden.read_text())):
        for container in template["spec"].get("initContainers", []) + template["spec"]["containers"]:
            known: set[str] = set()
            for entry in container.get("env", []):
                assert references(entry.get("value", "")) <= known, f"{place}: {entry['name']}"
                known.add(entry["name"])
            for text in container.get("command", []) + container.get("args", []):
                assert references(text) <= known, f"{place}: {text}"


def references(text: str) -> set[str]:
    """Names in `$(NAME)` of `text`, without the operator's."""
    return {part.split(")")[0] for part in text.split("$(")[1:] if not part.startswith("LWS_")}


def assert_once(what: str, names: list[object]) -> None:
    assert len(names) == len(set(names)), f"{what} stands twice in {names}"


def test_the_same_values_render_the_same_bytes() -> None:
    scenario = next(scenario for scenario in EVERY if scenario.name == "everything")
    assert render(scenario.values) == render(scenario.values)
