"""What the chart's scripts and tests share: the programs, the renders, the scenarios."""

from __future__ import annotations

import functools
import itertools
import os
import pathlib
import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "shardpool"
GOLDEN = CHART / "tests" / "golden"
SCHEMAS = pathlib.Path(__file__).with_name("schemas")
KUBERNETES = "1.34.0"
CATALOGUE = "https://raw.githubusercontent.com/datreeio/CRDs-catalog/main/{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json"
RELEASE, NAMESPACE = "demo", "ml"

Values = dict[str, Any]
Manifest = dict[str, Any]


class ToolError(Exception):
    """A program that the chart's tests need is not there and cannot be built; the text says what to install."""


class RenderError(Exception):
    """Helm refused the values; the text is its message."""


class InvalidError(Exception):
    """kubeconform refused an object, or found no schema to judge it by; the text says which."""


@dataclass(frozen=True)
class Scenario:
    """One golden render: a name and the values of the release."""

    name: str
    values: Values

    @property
    def golden(self) -> pathlib.Path:
        return GOLDEN / "renders" / f"{self.name}.yaml"


@functools.cache
def tool(name: str) -> str:
    """Path of `helm`, `helm3`, `helm-unittest` or `kubeconform`; raises ToolError."""
    answer = subprocess.run(
        ["sh", str(ROOT / "charts/tools/tool"), name], stdout=subprocess.PIPE, text=True, check=False
    )
    if answer.returncode != 0:
        raise ToolError(f"no {name}: see the message of charts/tools/tool above")
    return answer.stdout.strip()


def render(
    values: Values,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    helm: str = "helm",
    more: tuple[str, ...] = (),
) -> str:
    """`helm template` of the chart; blank lines at the end of a document, where Helm 3 and 4 differ, are left out."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file, sort_keys=False)
        file.flush()
        command = [tool(helm), "template", release, str(CHART), "--namespace", namespace, "--values", file.name]
        answer = subprocess.run(
            [*command, "--kube-version", KUBERNETES, *more], capture_output=True, text=True, check=False
        )
    if answer.returncode != 0:
        raise RenderError(answer.stderr)
    return re.sub(r"\n\s*\n(?=---|\Z)", "\n", answer.stdout)


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where libyaml is there


@functools.cache
def manifests(text: str) -> list[Manifest]:
    """The objects of a render, in its order; not to be changed."""
    return [document for document in yaml.load_all(text, Loader=_Loader) if document]


def validate(text: str) -> None:
    """`kubeconform -strict` of manifests; raises InvalidError.

    Schemas come from KUBECONFORM_SCHEMAS where it is set, else from kubeconform's own location and the public catalogue of
    CRDs; those of `charts/tools/schemas` come first.
    """
    given = os.environ.get("KUBECONFORM_SCHEMAS")
    places = [
        f"{SCHEMAS}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
        *([given] if given else ["default", CATALOGUE]),
    ]
    command = [tool("kubeconform"), "-strict", "-kubernetes-version", KUBERNETES]
    for place in places:
        command += ["-schema-location", place]
    answer = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        return
    said = (answer.stdout + answer.stderr).strip()
    if not given and re.search("failed downloading|could not find schema|no such host|connection refused", said):
        said += (
            "\nNo schemas: neither kubeconform's location nor the catalogue of CRDs was reached. "
            "Set KUBECONFORM_SCHEMAS to a copy, such as '/path/{{.ResourceKind}}{{.KindSuffix}}.json'."
        )
    raise InvalidError(said)


def pod_templates(objects: list[Manifest]) -> list[tuple[str, Manifest]]:
    """Every pod template in `objects`, with the name of its place."""
    found = []
    for item in objects:
        spec = item.get("spec", {})
        name = f"{item['kind']} {item['metadata']['name']}"
        if item["kind"] == "LeaderWorkerSet":
            for role in ("leaderTemplate", "workerTemplate"):
                found.append((f"{name} {role}", spec["leaderWorkerTemplate"][role]))
        elif item["kind"] in ("Deployment", "StatefulSet", "Job"):
            found.append((name, spec["template"]))
    return found


def merged(*parts: Values) -> Values:
    """Maps laid over each other, as Helm does with values."""
    out: Values = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, dict) and isinstance(out.get(key), dict)
            out[key] = merged(out[key], value) if both else value
    return out


@functools.cache
def _matrix() -> dict[str, Any]:
    return dict(yaml.safe_load((GOLDEN / "matrix.yaml").read_text()))


def _refused(engine: str, seed: str) -> bool:
    return any(re.fullmatch(pair["engine"], engine) and seed == pair["seed"] for pair in _matrix()["refused"])


def _product() -> list[tuple[Scenario, bool]]:
    matrix = _matrix()
    out = []
    for shape, engine, seed in itertools.product(matrix["shapes"], matrix["engines"], matrix["seeds"]):
        parts = (matrix["base"], matrix["shapes"][shape], matrix["engines"][engine], matrix["seeds"][seed])
        out.append((Scenario(f"{shape}.{engine}.{seed}", merged(*parts)), _refused(engine, seed)))
    return out


def scenarios() -> list[Scenario]:
    """Every shape x engine x seed that is allowed, and each file of `golden/extra`."""
    extra = [Scenario(path.stem, yaml.safe_load(path.read_text())) for path in sorted(GOLDEN.glob("extra/*.yaml"))]
    return [scenario for scenario, refused in _product() if not refused] + extra


def refused_scenarios() -> list[Scenario]:
    """Every shape x engine x seed that has nothing to load from and must be refused."""
    return [scenario for scenario, refused in _product() if refused]
