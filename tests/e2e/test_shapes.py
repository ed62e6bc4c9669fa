"""Every shape with real Services: ranks find their own rank's peers, and each upgrade rolls without storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from harness.release import Pod, Release
from harness.storage import Hub, Model
from harness.waiting import eventually

Releases = Callable[..., Release]
Models = dict[str, Model]


def wait_for_generation(pool: Release, count: int, generation: str) -> list[Pod]:
    """Wait until `count` pods are ready and all of them carry the annotation of that upgrade."""
    found = pool.cluster.wait_for_pods(
        pool.namespace,
        pool.selector,
        lambda pods: (
            len(pods) == count
            and all(pod["metadata"].get("annotations", {}).get("generation") == generation for pod in pods)
        ),
        what=f"{count} pods of generation {generation}",
        seconds=180,
    )
    assert len(found) == count
    return pool.wait(count)


@pytest.mark.parametrize("world", [2, 4])
def test_every_rank_of_a_pod_fills_its_stripe_from_its_own_peers(
    release: Releases, hub: Hub, models: Models, world: int
) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values, {"topology": {"shape": "perPod", "world": world}})
    [first] = pool.wait(1)
    assert first.bytes_by_origin()["seed"] == model.size
    hub.stop()

    pool.install({"replicas": 2})
    pods = pool.wait(2)

    [second] = [pod for pod in pods if pod.name != first.name]
    assert second.bytes_by_origin() == {"seed": 0, "peer": model.size, "resume": 0}
    for rank in range(world):
        assert second.metric("shardpool_bytes_total", rank=str(rank), origin="peer") > model.size / world / 2
    for pod in pods:
        assert pod.digests(pool.directory) == model.digests


# model, topology, pods of a replica
SHAPES = {
    "perPod": ("first/e2e/whole", {"shape": "perPod", "world": 2}, 1),
    "perRank": ("first/e2e/two-ranks", {"shape": "perRank", "world": 2}, 2),
    "multiNode": ("first/e2e/four-ranks", {"shape": "multiNode", "world": 4, "gpusPerPod": 2, "layout": "sharded"}, 2),
}
# Each replica of a multiNode release is a StatefulSet, and those roll all at once: the way to keep one serving is to replace them one by one.
BY_HAND = {"rollout": {"strategy": "OnDelete"}}


@pytest.mark.parametrize("shape", SHAPES)
def test_two_replicas_of_each_shape_share_one_copy_and_upgrade_without_storage(
    release: Releases, hub: Hub, models: Models, shape: str
) -> None:
    name, topology, pods_of_a_replica = SHAPES[shape]
    model = models[name]
    by_hand = BY_HAND if shape == "multiNode" else {}
    pool = release(model.values, by_hand, {"replicas": 2, "topology": topology, "podAnnotations": {"generation": "1"}})
    count = 2 * pods_of_a_replica

    check_shards(pool, pool.wait(count), model)
    hub.stop()
    pool.install({"podAnnotations": {"generation": "2"}})
    for replica in (0, 1) if by_hand else ():
        pool.cluster.kubectl("delete", "pods", "-n", pool.namespace, "-l", f"{pool.selector},mx.replica={replica}")
        pool.wait(count)

    pods = wait_for_generation(pool, count, "2")
    check_shards(pool, pods, model)
    assert sum(pod.bytes_by_origin()["seed"] for pod in pods) == 0


def check_shards(pool: Release, pods: list[Pod], model: Model) -> None:
    """Every pod holds the published bytes of its shards, and together each replica holds every file."""
    held: Counter[str] = Counter()
    for pod in pods:
        found = pod.digests(pool.directory)
        assert found.items() <= model.digests.items()
        assert sum(pod.bytes_by_origin().values()) == pod.metric("shardpool_shard_bytes")
        held.update(path for path in found if path.endswith(".safetensors"))
    weights = [path for path in model.digests if path.endswith(".safetensors")]
    assert held == dict.fromkeys(weights, 2)


def test_multi_node_replicas_hold_whole_directories_where_the_engine_reads_one(
    release: Releases, hub: Hub, models: Models
) -> None:
    model = models["first/e2e/whole"]
    topology: Mapping[str, Any] = {"shape": "multiNode", "world": 4, "gpusPerPod": 2}

    pool = release(model.values, {"replicas": 1, "topology": topology})

    for pod in pool.wait(2):
        assert pod.digests(pool.directory) == model.digests


def test_the_rank_services_list_each_rank_where_the_plan_says(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/four-ranks"]
    topology = {"shape": "multiNode", "world": 4, "gpusPerPod": 2, "layout": "sharded"}
    pool = release(model.values, {"topology": topology})
    pods = pool.wait(2)

    for rank in range(4):
        [slice_] = eventually(f"an EndpointSlice of rank {rank}", partial(slices, pool, rank))
        addresses = [address for endpoint in slice_["endpoints"] for address in endpoint["addresses"]]
        ranks = {pod.ip: {entry["rank"]: entry["port"] for entry in pod.status()["ranks"]} for pod in pods}
        assert [ranks[address][rank] for address in addresses] == [port["port"] for port in slice_["ports"]]


def slices(pool: Release, rank: int) -> list[Mapping[str, Any]]:
    """The EndpointSlices of a rank's Service."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{pool.namespace}/endpointslices"
    label = f"kubernetes.io/service-name={pool.fullname}-rank-{rank}"
    items: list[Mapping[str, Any]] = pool.cluster.get(path, labelSelector=label)["items"]
    return items
