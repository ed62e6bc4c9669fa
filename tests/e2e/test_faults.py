"""What a pool does when something breaks. docs/what-happens-when.md links here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from harness.cluster import Manifest
from harness.release import Pod, Release, Values
from harness.storage import Hub, Model
from harness.waiting import eventually

Releases = Callable[..., Release]
Models = dict[str, Model]
SLOW = {"runtime": {"egressLimitMbps": 16}}  # 24 MiB take 13 s from one source


def environment(**entries: object) -> Values:
    """Chart values that set environment entries of shardpool."""
    entries = {"SHARDPOOL_STALL_SECONDS": 30, **entries}
    return {"runtime": {"extraEnv": [{"name": name, "value": str(value)} for name, value in entries.items()]}}


def half_way(pool: Release, known: set[str]) -> Pod:
    """Wait for a pod that is not one of the known ones and of whose ranks each holds between a fifth and four fifths of its shard."""

    def find() -> Pod | None:
        for pod in pool.pods():
            if pod.name not in known:
                ranks = [entry for entry in pod.status()["ranks"] if entry.get("shard_bytes")]
                parts = [entry["verified_bytes"] / entry["shard_bytes"] for entry in ranks]
                return pod if parts and all(0.2 <= part <= 0.8 for part in parts) else None
        return None

    return eventually("a pod that is half way", find, seconds=90)


def rewrite(pod: Pod, path: str, offset: int) -> None:
    """Flip a byte of a file of the committed directory, in place, as a faulty disk or memory would."""
    script = (
        "import os, sys; path, offset = sys.argv[1], int(sys.argv[2]); os.chmod(path, 0o600)\n"
        "file = open(path, 'r+b'); file.seek(offset); byte = file.read(1)[0]\n"
        "file.seek(offset); file.write(bytes([byte ^ 1])); file.close(); os.chmod(path, 0o400)"
    )
    pod.execute("python3", "-c", script, path, str(offset))


def weights(model: Model) -> str:
    """Path of the model's first file of weights."""
    return min(path for path in model.files if path.endswith(".safetensors"))


def test_a_killed_source_is_replaced_by_another(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values, SLOW, {"replicas": 2})
    sources = pool.wait(2)
    hub.stop()
    pool.install({"replicas": 3})
    receiver = half_way(pool, {pod.name for pod in sources})

    sources[0].delete(force=True)

    pods = {pod.name: pod for pod in pool.wait(3)}
    assert pods[receiver.name].restarts == 0
    assert pods[receiver.name].bytes_by_origin() == {"seed": 0, "peer": model.size, "resume": 0}
    for pod in pods.values():
        assert pod.digests(pool.directory) == model.digests


def test_the_last_source_killed_costs_storage_the_missing_pieces_only(
    release: Releases, hub: Hub, models: Models
) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values, SLOW)
    [source] = pool.wait(1)
    read_before = hub.bytes_read()
    pool.install({"replicas": 2})
    receiver = half_way(pool, {source.name})
    held = receiver.metric("shardpool_verified_bytes")

    source.delete(force=True)

    pods = {pod.name: pod for pod in pool.wait(2)}
    origins = pods[receiver.name].bytes_by_origin()
    assert origins["peer"] >= held
    assert origins["seed"] > 0
    assert sum(origins.values()) == model.size
    assert 0 < hub.bytes_read() - read_before <= (model.size - held) * 1.1
    for pod in pods.values():
        assert pod.digests(pool.directory) == model.digests


def test_a_frozen_source_is_given_up(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values, SLOW, environment(SHARDPOOL_STALL_SECONDS=4), {"replicas": 2})
    sources = pool.wait(2)
    hub.stop()
    pool.install({"replicas": 3})
    receiver = half_way(pool, {pod.name for pod in sources})

    sources[0].signal("SIGSTOP", rank=0)

    eventually("the receiver's directory", lambda: receiver.status()["committed"], seconds=90)
    assert receiver.bytes_by_origin() == {"seed": 0, "peer": model.size, "resume": 0}
    assert receiver.digests(pool.directory) == model.digests
    [rank] = receiver.status()["ranks"]
    assert f"{sources[0].ip}:6555" in rank["summary"]["rejected"]


def test_a_flipped_byte_of_a_source_is_found_and_not_taken(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values, environment(SHARDPOOL_AUDIT_INTERVAL_SECONDS=0))
    [source] = pool.wait(1)
    rewrite(source, f"{pool.directory}/{weights(model)}", 1_000_000)

    pool.install({"replicas": 2})

    [receiver] = [pod for pod in pool.wait(2) if pod.name != source.name]
    assert receiver.digests(pool.directory) == model.digests
    origins = receiver.bytes_by_origin()
    assert origins["peer"] + origins["seed"] == model.size
    assert origins["seed"] > 0
    assert receiver.metric("shardpool_pieces_refetched_total") >= 1


def test_a_replica_finds_its_own_damage_and_heals(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/other"]
    pool = release(model.values, environment(SHARDPOOL_AUDIT_INTERVAL_SECONDS=0.05))
    [pod] = pool.wait(1)

    rewrite(pod, f"{pool.directory}/{weights(model)}", 1_000_000)

    eventually(
        "the published bytes again",
        lambda: pod.status()["ready"] and pod.digests(pool.directory) == model.digests,
        seconds=90,
    )
    assert pod.bytes_by_origin()["resume"] > model.size / 2


WATCHED_KILL = """
import os, signal, sys, time, urllib.error, urllib.request
os.kill(int(sys.argv[1]), signal.SIGKILL)
until = time.monotonic() + 20
while time.monotonic() < until:
    try:
        urllib.request.urlopen("http://127.0.0.1:9465/readyz", timeout=5)
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
        break
"""


def test_a_pod_is_not_ready_while_one_of_its_ranks_is_dead(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/whole"]
    pool = release(model.values, {"topology": {"shape": "perPod", "world": 2}})
    [pod] = pool.wait(1)
    pid = next(entry["pid"] for entry in pod.status()["ranks"] if entry["rank"] == 1)

    seen = pod.execute("python3", "-c", WATCHED_KILL, str(pid))

    assert seen.startswith("503 rank 0 is serving; rank 1 is")
    eventually("the rank back", lambda: pod.status()["ready"], seconds=60)
    assert pod.metric("shardpool_rank_restarts_total", rank="1") == 1
    assert pod.metric("shardpool_rank_restarts_total", rank="0") == 0
    assert pod.digests(pool.directory) == model.digests


def test_a_rank_that_dies_while_filling_keeps_what_it_had_verified(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/whole"]
    slow = {"runtime": {"egressLimitMbps": 8}}  # of each rank
    pool = release(model.values, slow, {"topology": {"shape": "perPod", "world": 2}})
    [source] = pool.wait(1)
    hub.stop()
    pool.install({"replicas": 2})
    receiver = half_way(pool, {source.name})

    receiver.signal("SIGKILL", rank=1)

    assert not receiver.status()["committed"]
    assert receiver.execute("python3", "-c", f"import os; print(os.path.exists({pool.directory!r}))").strip() == "False"
    pods = {pod.name: pod for pod in pool.wait(2)}
    assert pods[receiver.name].digests(pool.directory) == model.digests
    assert pods[receiver.name].metric("shardpool_bytes_total", rank="1", origin="resume") > 0
    assert pods[receiver.name].metric("shardpool_bytes_total", rank="0", origin="resume") == 0


def test_pods_of_another_model_behind_the_service_are_refused(release: Releases, hub: Hub, models: Models) -> None:
    model, other = models["first/e2e/whole"], models["first/e2e/other"]
    release(other.values, name="other").wait(1)
    pool = release(model.values)
    [first] = pool.wait(1)
    select(pool, f"{pool.fullname}-peers", {"app.kubernetes.io/instance": "other", "mx.identity": None})

    pool.cluster.kubectl("scale", "-n", pool.namespace, f"deployment/{pool.fullname}", "--replicas=2")

    [pod] = [pod for pod in pool.wait(2) if pod.name != first.name]
    assert pod.bytes_by_origin() == {"seed": model.size, "peer": 0, "resume": 0}
    assert pod.digests(pool.directory) == model.digests
    [reason] = pod.status()["ranks"][0]["summary"]["rejected"].values()
    assert model.id in reason
    assert other.id in reason
    assert pod.metric("shardpool_peers_rejected_total", reason="identity") >= 1


def test_pods_of_another_rank_behind_the_service_are_refused(release: Releases, hub: Hub, models: Models) -> None:
    model = models["first/e2e/two-ranks"]
    pool = release(model.values, {"topology": {"shape": "perRank", "world": 2}})
    pool.wait(2)
    select(pool, f"{pool.fullname}-rank-1-peers", {"mx.rank": "0"})
    [rank_one] = pool.pods("mx.rank=1")

    rank_one.delete()

    pods = pool.wait(2, selector="")
    [again] = [pod for pod in pods if pod.labels["mx.rank"] == "1"]
    assert again.name == rank_one.name
    assert again.bytes_by_origin()["peer"] == 0
    assert again.metric("shardpool_peers_rejected_total", reason="rank") >= 1
    assert again.digests(pool.directory).items() <= model.digests.items()


def select(pool: Release, service: str, labels: dict[str, str | None]) -> None:
    """Change a Service's selector behind the chart's back."""
    pool.cluster.kubectl(
        "patch", "service", service, "-n", pool.namespace, "-p", json.dumps({"spec": {"selector": labels}})
    )


def test_a_pool_without_any_source_says_so_and_ends(release: Releases, namespace: str, models: Models) -> None:
    values = {"model": models["first/e2e/whole"].values["model"], "seed": {"type": "none", "waitForPeersSeconds": 3}}
    pool = release(values, {"discovery": {"peers": ["nobody.invalid:6555"]}})

    pods = pool.cluster.wait_for_pods(
        namespace, pool.selector, lambda pods: exit_codes(pods) == {3}, what="a pod that ended with 3", seconds=90
    )

    name = pods[0]["metadata"]["name"]
    # The container may have been started again since.
    logs = [pool.cluster.kubectl("logs", "-n", namespace, name, *which, check=False) for which in ((), ("--previous",))]
    assert any("no source" in log for log in logs)


def exit_codes(pods: Sequence[Manifest]) -> set[int]:
    """Exit codes with which the pods' containers have ended so far."""
    statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
    states = [state for status in statuses for state in (status["state"], status["lastState"])]
    return {state["terminated"]["exitCode"] for state in states if "terminated" in state}
