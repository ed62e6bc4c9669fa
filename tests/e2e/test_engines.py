"""Engines beside a pool: one that reads the local directory, and ones that load with ModelExpress."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from harness.cluster import Manifest, is_ready
from harness.release import Pod, Release
from harness.storage import ONE_COPY, Hub, Model
from harness.waiting import eventually

Releases = Callable[..., Release]
Models = dict[str, Model]
MINILM = "first/sentence-transformers/all-MiniLM-L6-v2"
SENTENCES = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
# As the model's authors publish them for these sentences (sentence-transformers' quickstart).
SIMILARITIES = {(0, 1): 0.6660, (0, 2): 0.1046, (1, 2): 0.1411}


def image(reference: str) -> dict[str, str]:
    """Chart values of an image."""
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}


def test_an_engine_serves_from_the_local_directory(
    release: Releases, hub: Hub, models: Models, demo_image: str
) -> None:
    engine = {
        "kind": "custom",
        "image": image(demo_image),
        "extraArgs": ["$(SHARDPOOL_DIRECTORY)", "8000"],
        "gpuResourceName": "",
        "shmSize": "16Mi",
    }
    model = models[MINILM]

    pool = release(model.values, {"engine": engine, "replicas": 2})
    pods = pool.wait(2)

    assert sum(pod.bytes_by_origin()["seed"] for pod in pods) <= model.size * ONE_COPY
    for pod in pods:
        answer = json.loads(pod.page("/embed", port=8000, method="POST", body={"texts": SENTENCES}))
        vectors = answer["embeddings"]
        for (left, right), published in SIMILARITIES.items():
            cosine = sum(a * b for a, b in zip(vectors[left], vectors[right], strict=True))
            assert abs(cosine - published) < 5e-4


def mock(test_image: str, ranks: int) -> dict[str, Any]:
    """Chart values of an engine with ModelExpress's worker servers that publishes when it is told to."""
    return {
        "kind": "custom",
        "weights": "modelexpress",
        "image": image(test_image),
        "command": ["python3", "/e2e/mock_engine.py"],
        "extraArgs": ["--ranks", str(ranks), "--port", "8000"],
        "extraEnv": [{"name": "PYTHONPATH", "value": "/e2e/modelexpress"}],
        "gpuResourceName": "",
        "shmSize": "16Mi",
    }


def tell(pod: Pod, request: str) -> None:
    """Tell a mock engine something, as soon as it listens."""

    def told() -> bool:
        pod.page(request, port=8000, method="POST")
        return True

    eventually(f"{pod.name} told {request}", told, seconds=60)


def running(pods: Sequence[Manifest]) -> list[Manifest]:
    """The pods whose engine has started."""
    return [
        pod
        for pod in pods
        for status in pod["status"].get("containerStatuses", [])
        if status["name"] == "engine" and "running" in status["state"]
    ]


def test_the_gate_opens_only_when_every_rank_has_published(
    release: Releases, namespace: str, models: Models, test_image: str
) -> None:
    model = models["first/e2e/other"]
    pool = release(
        {"model": model.values["model"], "seed": {"type": "none", "waitForPeersSeconds": 2}},
        {"engine": mock(test_image, ranks=2), "topology": {"shape": "perPod", "world": 2, "tensorParallel": 2}},
        {"discovery": {"peers": ["nobody.invalid:6555"]}},
    )
    pool.cluster.wait_for_pods(
        namespace, pool.selector, lambda pods: bool(running(pods)), what="the engine", seconds=90
    )
    [pod] = pool.pods()
    eventually("the gate's pages", lambda: "rank" in gate(pod), seconds=30)

    tell(pod, "/publish?rank=1")

    eventually("rank 1 seen as published", lambda: published(pod) == {0: 0.0, 1: 1.0}, seconds=30)
    assert not is_ready(pool.pods()[0].manifest)

    tell(pod, "/publish?rank=0")

    [ready] = pool.wait(1, seconds=60)
    assert published(ready) == {0: 1.0, 1: 1.0}

    tell(pod, "/health?ok=0")

    pool.cluster.wait_for_pods(
        namespace, pool.selector, lambda pods: not any(map(is_ready, pods)), what="a gate that closes again", seconds=60
    )


def gate(pod: Pod) -> str:
    """The gate's metrics page."""
    return pod.page("/metrics")


def published(pod: Pod) -> dict[int, float]:
    """What the gate has seen of each of two ranks."""
    return {rank: pod.metric("shardpool_gate_rank_published", rank=str(rank)) for rank in (0, 1)}


def test_one_pod_of_a_cold_pool_goes_first_and_the_others_wait_for_it(
    release: Releases, namespace: str, models: Models, test_image: str
) -> None:
    model = models["first/e2e/other"]
    pool = release(
        {"model": model.values["model"], "seed": {"type": "hf", "waitForPeersSeconds": 100}},
        {"engine": mock(test_image, ranks=1), "topology": {"shape": "perPod", "world": 1}, "replicas": 3},
    )
    first = pool.cluster.wait_for_pods(
        namespace, pool.selector, lambda pods: len(pods) == 3 and bool(running(pods)), what="a first engine", seconds=90
    )
    [chosen] = [pod for pod in pool.pods() if pod.name == running(first)[0]["metadata"]["name"]]
    eventually("the gate's pages", lambda: "rank" in gate(chosen), seconds=30)
    assert [pod["metadata"]["name"] for pod in running(pool.cluster.pods(namespace, pool.selector))] == [chosen.name]

    tell(chosen, "/publish?rank=0")

    pool.cluster.wait_for_pods(
        namespace, pool.selector, lambda pods: len(running(pods)) == 3, what="the other engines", seconds=90
    )
    for pod in pool.pods():
        tell(pod, "/publish?rank=0")
    pool.wait(3)
