"""Where a pool's bytes come from: storage is read once, every other byte comes from peers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from harness.release import Pod, Release
from harness.storage import ONE_COPY, Hub, Model

Releases = Callable[..., Release]
Models = dict[str, Model]


def total(pods: Sequence[Pod]) -> Counter[str]:
    """Verified bytes of all pods by origin."""
    return sum((pod.bytes_by_origin() for pod in pods), Counter())


def test_replicas_added_to_a_warm_pool_read_nothing_from_storage(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values)
    [first] = pool.wait(1)
    assert first.bytes_by_origin() == {"seed": model.size, "peer": 0, "resume": 0}
    read_once = hub.bytes_read()
    assert model.size <= read_once <= model.size * ONE_COPY

    pool.install({"replicas": 4})
    pods = pool.wait(4)

    assert hub.bytes_read() == read_once
    assert total(pods) == {"seed": model.size, "peer": 3 * model.size}
    for pod in pods:
        assert pod.digests(pool.directory) == model.digests


def test_the_pool_grows_from_peers_alone_when_storage_is_gone(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values)
    pool.wait(1)
    hub.stop()

    pool.install({"replicas": 3})

    for pod in pool.wait(3):
        assert pod.digests(pool.directory) == model.digests


@pytest.mark.parametrize("replicas", [3, 4])
def test_a_cold_pool_reads_storage_once_in_total(release: Releases, hub: Hub, models: Models, replicas: int) -> None:
    # When a replica learns of another it has four reads under way: of this model's pieces that is one in a hundred.
    model = models["first/sentence-transformers/all-MiniLM-L6-v2"]

    pool = release(model.values, {"replicas": replicas})
    pods = pool.wait(replicas)

    said = total(pods)
    assert said["seed"] + said["peer"] == replicas * model.size
    assert model.size <= said["seed"] <= model.size * ONE_COPY
    assert said["seed"] <= hub.bytes_read() <= said["seed"] + model.size * (ONE_COPY - 1)
    for pod in pods:
        assert pod.digests(pool.directory) == model.digests


def test_status_and_metrics_say_what_happened(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values, {"replicas": 2})

    pods = pool.wait(2)

    for pod in pods:
        status = pod.status()
        assert status["ready"]
        assert status["committed"]
        assert status["model"] == model.id
        assert status["revision"] == model.revision
        assert status["pod"] == pod.name
        [rank] = status["ranks"]
        assert rank["stage"] == "serving"
        assert rank["summary"]["bytes_from"] == pod.bytes_by_origin()
        assert sum(pod.bytes_by_origin().values()) == model.size
        assert 0 < pod.metric("shardpool_pull_seconds") <= status["seconds_to_ready"]
        assert pod.metric("shardpool_ready") == 1
        assert pod.metric("shardpool_shard_bytes") == pod.metric("shardpool_verified_bytes") == model.size
        assert pod.metric("shardpool_info", model=model.id, revision=model.revision) == 1
        assert pod.metric("shardpool_transport_info", transport="stream") == 1
    # What some received from peers, others have sent; more than once where a piece was asked for twice.
    assert sum(pod.metric("shardpool_served_bytes_total") for pod in pods) >= total(pods)["peer"] > 0


def test_uninstall_leaves_nothing(release: Releases, hub: Hub, models: Models) -> None:
    pool = release(models["first/e2e/other"].values, {"networkPolicy": {"enabled": True}})
    pool.wait(1)

    pool.uninstall()

    pool.cluster.wait_for_pods(pool.namespace, pool.selector, lambda pods: not pods, what="no pod of the release")
    kinds = pool.cluster.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    kinds = [kind for kind in kinds if not kind.startswith("events") and not kind.endswith("metrics.k8s.io")]
    left = pool.cluster.kubectl(
        "get", ",".join(kinds), "-n", pool.namespace, "-l", f"app.kubernetes.io/instance={pool.name}", "-o", "name"
    )
    secrets = pool.cluster.kubectl("get", "secrets", "-n", pool.namespace, "-l", "owner=helm", "-o", "name")
    assert (left, secrets) == ("", "")
