"""The house: a module imports only from floors below its own, as docs/architecture.md says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardpool

PACKAGE = Path(shardpool.__file__).parent
# Module prefixes by floor, the ground first. The longest prefix that fits decides.
FLOORS = (
    ("errors", "settings", "retry", "log", "heap"),
    ("identity", "topology"),
    ("model",),
    ("swarm.state", "discovery.base", "seed.base", "transport.base"),
    ("swarm.replica_state", "swarm.observer"),
    ("wire",),
    ("discovery", "seed", "swarm"),
    ("source", "transport"),
    ("http", "metrics", "control", "egress_file", "audit", "stop_signals"),
    ("interop", "interop_buffers"),
    ("replica",),
    ("rank_process",),
    ("node",),
    ("probe", "demo"),
    ("cli",),
    ("__main__",),
)


def _floor(module: str) -> int:
    fitting = [
        (len(prefix), floor)
        for floor, names in enumerate(FLOORS)
        for prefix in names
        if f"{module}.".startswith(f"{prefix}.")
    ]
    assert fitting, f"{module} has no floor in this test: say where it belongs"
    return max(fitting)[1]


def _modules() -> list[str]:
    paths = [path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py")]
    names = {".".join(part for part in path.parts if part != "__init__") for path in paths}
    return sorted(names - {""})


def _imports(module: str) -> Iterator[str]:
    path = PACKAGE / Path(*module.split("."))
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.removeprefix("shardpool.") for name in names if name.startswith("shardpool."))


@pytest.mark.parametrize("module", _modules())
def test_a_module_imports_nothing_from_above(module: str) -> None:
    above = sorted(
        {
            name
            for name in _imports(module)
            if name[0].islower() and name != "__version__" and _floor(name) > _floor(module)
        }
    )
    assert not above, f"{module} (floor {_floor(module)}) imports {above}"


@pytest.mark.parametrize(
    "module", [name for name in _modules() if name.split(".")[0] in {"model", "swarm", "discovery", "seed"}]
)
def test_what_decides_knows_nothing_of_channels(module: str) -> None:
    path = PACKAGE / Path(*module.split("."))
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    imported = {node.names[0].name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import)}
    assert not any(name.split(".")[0] in {"grpc", "kubernetes"} for name in imported)
