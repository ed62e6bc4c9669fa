"""What docs/deployments shows is rendered and valid."""

from __future__ import annotations

import itertools
import pathlib
import re

import pytest
import yaml
from chartlib import CHART, ROOT, Values, manifests, merged, pod_templates, render, validate

FOLDER = ROOT / "docs" / "deployments"
FABRICS = sorted((FOLDER / "fabrics").glob("*.yaml"))
SIZES = sorted((FOLDER / "sizes").glob("*.yaml"))
WHOLE = [*sorted((FOLDER / "plain").glob("*.yaml")), *sorted((FOLDER / "argocd/models").glob("*.yaml")), *SIZES]
RESOURCES = [*sorted((FOLDER / "argocd").glob("*.yaml")), *sorted((FOLDER / "flux").glob("*.yaml"))]


def load(path: pathlib.Path) -> Values:
    return dict(yaml.safe_load(path.read_text()))


def assert_good(values: Values, release: str) -> None:
    text = render(values, release=release, namespace="models")
    validate(text)
    assert text == render(values, release=release, namespace="models", helm="helm3")
    pods = [template for _, template in pod_templates(manifests(text))]
    assert pods
    validate(
        yaml.safe_dump_all(
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": pod} for pod in pods
        )
    )


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_values_render(path: pathlib.Path) -> None:
    assert_good(load(path), path.stem if path.stem[0].isalpha() else f"m-{path.stem}")


@pytest.mark.parametrize(("size", "fabric"), list(itertools.product(SIZES, FABRICS)), ids=lambda path: path.stem)
def test_every_fabric_goes_with_every_size(size: pathlib.Path, fabric: pathlib.Path) -> None:
    assert_good(merged(load(size), load(fabric)), "model")


@pytest.mark.parametrize("path", RESOURCES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_resources_of_argo_cd_and_flux_are_valid(path: pathlib.Path) -> None:
    validate(path.read_text())


def test_values_inside_an_application_render() -> None:
    helm = load(FOLDER / "argocd/application.yaml")["spec"]["source"]["helm"]
    assert_good(helm["valuesObject"], helm["releaseName"])


def test_values_inside_a_helm_release_render() -> None:
    release = load(FOLDER / "flux/helmrelease.yaml")
    assert_good(release["spec"]["values"], release["metadata"]["name"])


def test_versions_are_the_charts() -> None:
    version = load(CHART / "Chart.yaml")["version"]
    assert load(FOLDER / "argocd/application.yaml")["spec"]["source"]["targetRevision"] == version
    sources = load(FOLDER / "argocd/applicationset.yaml")["spec"]["template"]["spec"]["sources"]
    assert [source["targetRevision"] for source in sources if "chart" in source] == [version]
    assert load(FOLDER / "flux/ocirepository.yaml")["spec"]["ref"]["semver"] == f"~{version}"
    for path in (FOLDER / "README.md", CHART / "README.md.in"):
        assert set(re.findall(r"--version (\S+)", path.read_text())) == {version}


def test_there_is_one_values_file_for_each_fabric() -> None:
    assert [path.stem for path in FABRICS] == ["efa", "gke", "infiniband", "none", "roce"]
    assert {load(path).get("fabric", {}).get("mode") for path in FABRICS} == {"none", "rdma", "efa"}


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (FOLDER / "README.md").read_text()):
        assert (FOLDER / target).exists(), target
