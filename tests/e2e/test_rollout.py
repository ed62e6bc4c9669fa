"""Rollouts: another revision never mixes with the old one, another image never splits the pool, and a drain interrupts nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.release import Pod, Release
from harness.storage import ONE_COPY, Hub, Model
from harness.waiting import eventually

Releases = Callable[..., Release]
Models = dict[str, Model]
SLOW = {"runtime": {"egressLimitMbps": 16}}  # 24 MiB take 13 s from one source


def test_another_revision_is_seeded_once_and_never_mixed(release: Releases, hub: Hub, models: Models) -> None:
    old, new = models["first/e2e/whole"], models["second/e2e/whole"]
    pool = release(old.values, {"replicas": 3})
    before = pool.wait(3)
    read_before = hub.bytes_read("first")

    pool.install(new.values)

    # In between: new pods fill or serve the new revision beside old ones that go on serving theirs.
    mixed = eventually("pods of both revisions", lambda: both_revisions(pool, old, new), seconds=120)
    assert mixed[old.revision]
    after = wait_for_revision(pool, new, 3)
    assert not {pod.name for pod in before} & {pod.name for pod in after}
    for pod in after:
        assert pod.digests(pool.directory) == new.digests
        assert pod.metric("shardpool_peers_rejected_total", reason="identity") == 0
    assert new.size <= sum(pod.bytes_by_origin()["seed"] for pod in after) <= new.size * ONE_COPY
    assert hub.bytes_read("first") == read_before
    assert new.size <= hub.bytes_read("second") <= new.size * ONE_COPY


def both_revisions(pool: Release, old: Model, new: Model) -> Mapping[str, Sequence[str]] | None:
    """Pods that say they serve the old revision, while others say they are of the new one; None unless there are both."""
    found: dict[str, list[str]] = {old.revision: [], new.revision: []}
    for pod in pool.pods():
        status = pod.status()
        if status["ready"] or status["revision"] == new.revision:
            found[status["revision"]].append(pod.name)
    return found if all(found.values()) else None


def wait_for_revision(pool: Release, model: Model, count: int) -> list[Pod]:
    """Wait until `count` pods are ready, all of the model's revision."""
    identity = pool.cluster.get(
        f"/apis/apps/v1/namespaces/{pool.namespace}/deployments/{pool.fullname}",
    )["spec"]["template"]["metadata"]["labels"]["mx.identity"]
    pods = pool.wait(count, selector=f"mx.identity={identity}", seconds=180)
    eventually("no pod of another revision", lambda: len(pool.pods()) == count)
    assert {pod.status()["revision"] for pod in pods} == {model.revision}
    return pods


def test_another_image_with_the_same_weights_stays_in_the_pool(
    release: Releases, hub: Hub, models: Models, next_image: str
) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values, {"replicas": 2})
    pool.wait(2)
    hub.stop()

    pool.install({"runtime": {"image": {"tag": next_image.rpartition(":")[2]}}})

    pods = eventually("two pods of the new image", lambda: with_image(pool, next_image, 2), seconds=180)
    for pod in pods:
        assert pod.bytes_by_origin() == {"seed": 0, "peer": model.size, "resume": 0}
        assert pod.digests(pool.directory) == model.digests


def with_image(pool: Release, image: str, count: int) -> list[Pod] | None:
    """The release's pods if there are `count`, all ready and all of that image."""
    pods = pool.pods()
    images = {container["image"] for pod in pods for container in pod.manifest["spec"]["containers"]}
    if len(pods) != count or images != {image}:
        return None
    return pool.wait(count)


def test_a_source_that_is_told_to_end_finishes_what_it_sends(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values, SLOW, {"replicas": 2})
    sources = {pod.name for pod in pool.wait(2)}
    hub.stop()
    pool.install({"replicas": 3})
    reader = eventually("a third pod that reads", lambda: reading(pool, sources), seconds=60)
    leaving = next(pod for pod in pool.pods() if pod.name in sources)

    leaving.delete()

    assert exit_code(pool, leaving.name) == 0
    pods = {pod.name: pod for pod in pool.wait(3)}
    summary = pods[reader.name].status()["ranks"][0]["summary"]
    assert summary["bytes_from"] == {"seed": 0, "peer": model.size, "resume": 0}
    assert summary["refetched"] == 0
    assert pods[reader.name].digests(pool.directory) == model.digests


def reading(pool: Release, sources: set[str]) -> Pod | None:
    """The pod that is not one of the sources, once it holds a quarter and lacks as much."""
    for pod in pool.pods():
        if pod.name not in sources:
            held, whole = pod.metric("shardpool_verified_bytes"), pod.metric("shardpool_shard_bytes")
            return pod if whole / 4 <= held <= whole * 3 / 4 else None
    return None


def exit_code(pool: Release, name: str) -> int:
    """How the pod's container ended, as its last state says while the pod goes away."""
    codes: list[int] = []

    def ended(pods: Sequence[Mapping[str, Any]]) -> bool:
        for pod in pods:
            if pod["metadata"]["name"] == name:
                for status in pod["status"].get("containerStatuses", []):
                    if "terminated" in status["state"]:
                        codes.append(status["state"]["terminated"]["exitCode"])
        return bool(codes)

    pool.cluster.wait_for_pods(pool.namespace, pool.selector, ended, what=f"the end of {name}", seconds=60)
    return codes[0]
