"""JSON schemas for kubeconform of the kinds that neither Kubernetes nor most schema catalogues bring along.

`python charts/tools/schemas.py` takes the CustomResourceDefinitions out of Go modules at pinned versions and writes
`charts/tools/schemas/`. Descriptions go; objects with listed properties take no others. Two cuts keep the files small:
the pods of a LeaderWorkerSet (the tests check them as PodTemplates) and generators within generators of an ApplicationSet.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import tempfile
from typing import Any

import yaml

OUT = pathlib.Path(__file__).with_name("schemas")
SOURCES = {
    "sigs.k8s.io/lws@v0.7.0": "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    "github.com/fluxcd/helm-controller@v1.4.0": "config/crd/bases/helm.toolkit.fluxcd.io_helmreleases.yaml",
    "github.com/fluxcd/source-controller@v1.7.0": "config/crd/bases/source.toolkit.fluxcd.io_ocirepositories.yaml",
    "github.com/argoproj/argo-cd/v3@v3.2.0": "manifests/crds/application-crd.yaml manifests/crds/applicationset-crd.yaml",
}
ANY: dict[str, Any] = {"type": "object", "additionalProperties": True}
CUTS = {"leaderTemplate": ANY, "workerTemplate": ANY, "matrix": ANY, "merge": ANY}


def strict(schema: Any) -> Any:
    """`schema` without descriptions and defaults, closed to unknown properties."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            out[key] = {name: CUTS.get(name) or strict(item) for name, item in value.items()}
        elif key not in ("description", "default"):
            out[key] = strict(value)
    if "properties" in out and not out.get("x-kubernetes-preserve-unknown-fields"):
        out.setdefault("additionalProperties", False)
    return out


def module_folder(module: str) -> pathlib.Path:
    """Where Go keeps the files of `module` (path@version), fetched if need be."""
    answer = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=True,
    )
    return pathlib.Path(json.loads(answer.stdout)["Dir"])


def main() -> None:
    OUT.mkdir(exist_ok=True)
    for module, paths in SOURCES.items():
        folder = module_folder(module)
        for path in paths.split():
            definition = yaml.safe_load((folder / path).read_text())["spec"]
            version = next(v for v in definition["versions"] if v["storage"])
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            kind, group = definition["names"]["kind"].lower(), definition["group"].split(".")[0]
            name = f"{kind}-{group}-{version['name']}.json"
            (OUT / name).write_text(json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
