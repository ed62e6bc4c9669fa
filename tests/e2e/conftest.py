"""The cluster of a run, and a namespace, a storage and releases for each test.

    make e2e                                 a kind cluster of its own, made and deleted
    make e2e E2E_ARGS=--existing-cluster     the cluster of KUBECONFIG (or of pytest-kind's --kubeconfig)

With xdist the controlling process makes the cluster before its workers start, and deletes it when they have ended.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from harness import evidence
from harness.cluster import ROOT, Cluster, make_kind_cluster, program
from harness.release import Release
from harness.storage import Hub, Model
from pytest_kind import KindCluster

KUBECONFIG = "SHARDPOOL_E2E_KUBECONFIG"  # from the controlling process to its workers
KIND_NAME = "SHARDPOOL_E2E_KIND"
FAILURES = ROOT / "build" / "e2e-failures"
made = pytest.StashKey[KindCluster]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shardpool")
    group.addoption("--existing-cluster", action="store_true", help="Use the cluster of the kubeconfig, make none.")
    group.addoption("--image", default="ghcr.io/shardpool/shardpool:0.1.0", help="shardpool's image.")
    group.addoption("--next-image", default="ghcr.io/shardpool/shardpool:0.1.0-next", help="Another build of it.")
    group.addoption("--demo-image", default="shardpool-demo:0.1.0", help="The demo's engine.")
    group.addoption("--test-image", default="shardpool-e2e:0.1.0", help="Storage, mock engine, bad peers.")


def images(config: pytest.Config) -> list[str]:
    return [config.getoption(name) for name in ("image", "next_image", "demo_image", "test_image")]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    if config.getoption("existing_cluster"):
        os.environ[KUBECONFIG] = config.getoption("kubeconfig") or os.environ["KUBECONFIG"]
        os.environ[KIND_NAME] = _kind_name(os.environ[KUBECONFIG])
        return
    name = config.getoption("cluster_name")
    kubeconfig = Path(tempfile.mkdtemp(prefix="shardpool-e2e-")) / "kubeconfig"
    node_image = config.getoption("kind_image") or os.environ.get("KIND_NODE_IMAGE")
    os.environ[KUBECONFIG], os.environ[KIND_NAME] = str(kubeconfig), name
    config.stash[made] = make_kind_cluster(name, kubeconfig, node_image, images(config))


def pytest_sessionfinish(session: pytest.Session) -> None:
    kind = session.config.stash.get(made, None)
    if kind is not None and not session.config.getoption("keep_cluster"):
        kind.delete()


def _kind_name(kubeconfig: str) -> str:
    """Name of the kind cluster that a kubeconfig's context is, or nothing."""
    context = subprocess.run(
        [str(program("kubectl")), "config", "current-context", "--kubeconfig", kubeconfig],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    return context.removeprefix("kind-") if context.startswith("kind-") else ""


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return Cluster(Path(os.environ[KUBECONFIG]), os.environ[KIND_NAME])


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, deleted after it."""
    name = f"e2e-{_words(request.node.name)[:40].strip('-')}-{secrets.token_hex(3)}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def _words(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower().removeprefix("test_")).strip("-")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On failure, collect what the test's namespace holds while it is there."""
    report = yield
    used = getattr(item, "funcargs", {})
    if report.failed and "namespace" in used:
        text = evidence.collect(used["cluster"], used["namespace"], FAILURES / _words(item.name))
        report.sections.append(("evidence", text))
    return report


@pytest.fixture(scope="session")
def test_image(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("test_image"))


@pytest.fixture(scope="session")
def next_image(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("next_image"))


@pytest.fixture(scope="session")
def demo_image(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("demo_image"))


@pytest.fixture
def hub(cluster: Cluster, namespace: str, test_image: str) -> Hub:
    """A running storage."""
    return Hub(cluster, namespace, test_image).start()


@pytest.fixture
def release(cluster: Cluster, namespace: str, request: pytest.FixtureRequest) -> Callable[..., Release]:
    """Makes releases: `release(values, ..., name="pool")`. They go with the namespace."""

    def install(*layers: dict[str, object], name: str = "pool") -> Release:
        return Release(cluster, namespace, name, request.config.getoption("image")).install(*layers)

    return install


@pytest.fixture(scope="session")
def models() -> dict[str, Model]:
    """The models of the suite's image by `edition/id`, as the image's build listed them."""
    listed = [
        entry
        for image in ("demo", "e2e")
        for entry in json.loads((ROOT / "build" / image / "models.json").read_text(encoding="utf-8"))
    ]
    return {f"{entry['edition']}/{entry['id']}": Model(**entry) for entry in listed}
