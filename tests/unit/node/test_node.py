"""A pod from start to end, as its processes: load, commit, serve, fault, drain."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pods import REVISION, Pod, free_ports

from shardpool.demo import same_tree

MakePod = Callable[..., Pod]
SLOW = 40  # megabits a second: 16 MB take more than three seconds


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _verified(status: dict[str, Any]) -> int:
    return sum(int(rank.get("verified_bytes", 0)) for rank in status["ranks"])


@pytest.fixture
def pair(pod: MakePod, checkpoint: Path, tmp_path: Path) -> tuple[Pod, Pod]:
    """A source that reads the seed, and a receiver that has only peers; not started."""
    port = free_ports(1)
    peers = "127.0.0.2:{port},127.0.0.3:{port}"
    shared = {"worker_grpc_port": port, "peers": peers}
    source = pod(tmp_path / "source", host="127.0.0.2", seed=f"directory:{checkpoint}", **shared)
    receiver = pod(tmp_path / "receiver", host="127.0.0.3", seed="none", **shared)
    return source, receiver


def test_a_pod_fills_its_directory_from_the_seed_and_drains_on_sigterm(
    pod: MakePod, checkpoint: Path, tmp_path: Path
) -> None:
    one = pod(tmp_path / "model", seed=f"directory:{checkpoint}", worker_grpc_port=free_ports(1)).start()
    one.wait_ready()
    assert same_tree(checkpoint, tmp_path / "model")
    assert one.get("/readyz") == (200, "ready\n")
    assert one.get("/livez") == (200, "alive\n")
    assert one.stop() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_stop_signal_is_heard_while_the_main_thread_sleeps_on(
    pod: MakePod, checkpoint: Path, tmp_path: Path, number: int, code: int
) -> None:
    """Any thread may take a signal of the process; the main thread, where Python handlers run, is not woken by it then."""
    one = pod(tmp_path / "model", seed=f"directory:{checkpoint}", worker_grpc_port=free_ports(1)).start().wait_ready()
    one.send_to_another_thread(number)
    assert one.wait() == code


def test_a_second_pod_takes_every_byte_from_the_first(pair: tuple[Pod, Pod], checkpoint: Path) -> None:
    source, receiver = pair
    source.start().wait_ready()
    receiver.start().wait_ready()
    size = _size(checkpoint)
    assert receiver.bytes_by_origin() == {"peer": size, "seed": 0, "resume": 0}
    assert same_tree(checkpoint, receiver.directory)
    assert sum(source.metric("shardpool_served_bytes_total").values()) >= size
    assert receiver.metric("shardpool_bytes_total") == {
        'origin="peer",rank="0"': size,
        'origin="seed",rank="0"': 0,
        'origin="resume",rank="0"': 0,
    }


def test_nothing_is_visible_and_nothing_ready_before_the_last_piece(pair: tuple[Pod, Pod], checkpoint: Path) -> None:
    source, receiver = pair
    source.settings["egress-limit-mbps"] = SLOW
    source.start().wait_ready()
    receiver.start()
    receiver.wait_until(lambda status: 0 < _verified(status) < _size(checkpoint))
    code, reason = receiver.get("/readyz")
    assert (code, reason) == (503, "rank 0 is filling\n")
    assert not receiver.directory.exists()


def test_a_killed_pod_starts_again_with_what_it_had(pair: tuple[Pod, Pod], checkpoint: Path) -> None:
    source, receiver = pair
    source.settings["egress-limit-mbps"] = SLOW
    source.start().wait_ready()
    receiver.start()
    had = receiver.wait_until(lambda status: _verified(status) > (8 << 20) and _verified(status))
    receiver.kill()
    assert not receiver.directory.exists()
    receiver.start().wait_ready()
    origins = receiver.bytes_by_origin()
    assert origins["resume"] >= had - (1 << 20)  # the journal is written in batches
    assert origins["peer"] + origins["resume"] == _size(checkpoint)
    assert same_tree(checkpoint, receiver.directory)


def test_a_committed_pod_serves_again_after_a_restart_with_nobody_there(
    pod: MakePod, checkpoint: Path, tmp_path: Path
) -> None:
    settings = {"worker_grpc_port": free_ports(1), "peers": "127.0.0.1:{port}"}
    pod(tmp_path / "model", seed=f"directory:{checkpoint}", **settings).start().wait_ready().kill()
    again = pod(tmp_path / "model", seed="none", **settings).start().wait_ready()
    assert again.bytes_by_origin() == {"peer": 0, "seed": 0, "resume": _size(checkpoint)}


def test_two_ranks_fill_one_directory(pod: MakePod, checkpoint: Path, tmp_path: Path) -> None:
    port = free_ports(2)
    shared = {"worker_grpc_port": port, "layout": "striped", "world": 2, "peers": "127.0.0.2:{port},127.0.0.3:{port}"}
    source = pod(tmp_path / "source", host="127.0.0.2", seed=f"directory:{checkpoint}", **shared).start().wait_ready()
    receiver = pod(tmp_path / "receiver", host="127.0.0.3", seed="none", **shared).start().wait_ready()
    assert same_tree(checkpoint, source.directory)
    assert same_tree(checkpoint, receiver.directory)
    shares = [rank["shard_bytes"] for rank in receiver.status()["ranks"]]
    assert sum(shares) == _size(checkpoint)
    assert min(shares) > 0.4 * sum(shares)
    assert set(receiver.metric("shardpool_ready")) == {'rank="0"', 'rank="1"'}


def test_a_rank_that_dies_takes_readiness_with_it_and_comes_back(
    pod: MakePod, checkpoint: Path, tmp_path: Path
) -> None:
    shared = {"worker_grpc_port": free_ports(2), "layout": "striped", "world": 2}
    one = pod(tmp_path / "model", seed=f"directory:{checkpoint}", **shared).start().wait_ready()
    before = len(one.lines)
    os.kill(one.rank_pids()[1], signal.SIGKILL)
    one.wait_for(r"rank 1 ended \(SIGKILL\); starting it again", since=before)
    one.wait_for("ready: ", since=before)
    assert one.get("/readyz")[0] == 200
    assert one.metric("shardpool_rank_restarts_total") == {'rank="0"': 0, 'rank="1"': 1}


def test_a_rank_that_dies_ends_the_pod_where_policy_says_so(pod: MakePod, checkpoint: Path, tmp_path: Path) -> None:
    one = pod(tmp_path / "model", seed=f"directory:{checkpoint}", worker_grpc_port=free_ports(1), rank_failure="end")
    one.start().wait_ready()
    os.kill(one.rank_pids()[0], signal.SIGKILL)
    assert one.wait() == 8
    assert "the process of rank 0 ended (SIGKILL)" in one.log


def test_bytes_that_change_under_a_serving_pod_are_found_and_fetched_again(
    pair: tuple[Pod, Pod], checkpoint: Path
) -> None:
    source, receiver = pair
    receiver.settings["audit-interval-seconds"] = 0.02
    source.start().wait_ready()
    receiver.start().wait_ready()
    victim = next(receiver.directory.glob("*.safetensors"))
    victim.chmod(0o644)
    with victim.open("r+b") as file:
        file.seek(victim.stat().st_size - 1)
        last = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([last[0] ^ 1]))
    assert receiver.wait() == 4
    receiver.settings["audit-interval-seconds"] = 0
    receiver.start().wait_ready()
    origins = receiver.bytes_by_origin()
    assert 0 < origins["peer"] <= 2 << 20
    assert same_tree(checkpoint, receiver.directory)


def test_a_file_that_is_not_what_its_publisher_states_is_never_shown(
    pod: MakePod, checkpoint: Path, tmp_path: Path
) -> None:
    """A hub cache names a file by its SHA-256; here one holds other bytes."""
    cache = tmp_path / "hub" / "models--acme--tiny"
    snapshot = cache / "snapshots" / REVISION
    (cache / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for path in (path for path in checkpoint.rglob("*") if path.is_file()):
        content = path.read_bytes()
        name = hashlib.sha256(content).hexdigest()
        if path == checkpoint / "config.json":
            name = hashlib.sha256(b"something else").hexdigest()
        (cache / "blobs" / name).write_bytes(content)
        link = snapshot / path.relative_to(checkpoint)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(cache / "blobs" / name)
    pull = pod(tmp_path / "model", "pull", seed=f"directory:{tmp_path / 'hub'}").start()
    assert pull.wait() == 4
    assert "config.json" in pull.log
    assert "SHA-256" in pull.log
    assert not (tmp_path / "model").exists()


def test_no_source_ends_with_one_line_that_names_every_peer(pod: MakePod, tmp_path: Path) -> None:
    port = free_ports(2)
    peers = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    pull = pod(tmp_path / "model", "pull", seed="none", peers=peers, wait_for_peers_seconds=0.5).start()
    assert pull.wait() == 3
    line = pull.wait_for("^shardpool: no source is left")
    assert all(peer in line for peer in peers.split(","))
    assert not (tmp_path / "model").exists()


def test_with_nobody_to_wait_for_a_seed_that_cannot_be_read_ends_the_load(pod: MakePod, tmp_path: Path) -> None:
    pull = pod(
        tmp_path / "model", "pull", seed=f"directory:{tmp_path / 'nowhere'}", wait_for_peers_seconds=3600
    ).start()
    assert pull.wait() == 3
    assert str(tmp_path / "nowhere") in pull.wait_for("^shardpool: ")


def test_the_deadline_bounds_a_load(pair: tuple[Pod, Pod]) -> None:
    source, receiver = pair
    source.settings["egress-limit-mbps"] = 8
    receiver.settings["deadline-seconds"] = 2
    source.start().wait_ready()
    assert receiver.start().wait() == 5
    assert not receiver.directory.exists()


def test_a_peer_of_another_revision_is_refused_field_by_field(pair: tuple[Pod, Pod]) -> None:
    source, receiver = pair
    receiver.settings |= {"revision": REVISION[::-1], "wait-for-peers-seconds": 0.5}
    source.start().wait_ready()
    assert receiver.start().wait() == 7
    line = receiver.wait_for("^shardpool: ")
    assert "revision" in line
    assert REVISION in line
    assert REVISION[::-1] in line


def test_a_directory_of_another_revision_is_refused_and_left_alone(
    pod: MakePod, checkpoint: Path, tmp_path: Path
) -> None:
    assert pod(tmp_path / "model", "pull", seed=f"directory:{checkpoint}").start().wait() == 0
    other = pod(tmp_path / "model", "pull", seed=f"directory:{checkpoint}", revision=REVISION[::-1]).start()
    assert other.wait() == 6
    assert "holds another model" in other.log
    assert same_tree(checkpoint, tmp_path / "model")


def test_a_second_pod_in_one_directory_is_refused_by_name(pod: MakePod, checkpoint: Path, tmp_path: Path) -> None:
    first = pod(tmp_path / "model", seed=f"directory:{checkpoint}", worker_grpc_port=free_ports(1)).start().wait_ready()
    second = pod(tmp_path / "model", "pull", seed=f"directory:{checkpoint}").start()
    assert second.wait() == 6
    assert re.search(r"process \d+|pid \d+", second.log)
    assert first.get("/readyz")[0] == 200


@pytest.mark.parametrize("which", ["http-port", "worker-grpc-port"])
def test_a_port_that_is_taken_is_refused_by_name(pod: MakePod, checkpoint: Path, tmp_path: Path, which: str) -> None:
    first = pod(tmp_path / "one", seed=f"directory:{checkpoint}", worker_grpc_port=free_ports(1)).start().wait_ready()
    second = pod(tmp_path / "two", seed=f"directory:{checkpoint}", worker_grpc_port=free_ports(1))
    second.settings[which] = first.settings[which]
    assert second.start().wait() == 2
    assert f"{first.settings[which]}" in second.wait_for("^shardpool: ")


def test_pull_prints_what_it_did_as_json_and_does_nothing_twice(pod: MakePod, checkpoint: Path, tmp_path: Path) -> None:
    first = pod(tmp_path / "model", "pull", seed=f"directory:{checkpoint}").start("--json")
    assert first.wait() == 0
    result = json.loads(first.output())
    assert result["directory"] == str(tmp_path / "model")
    assert result["ranks"][0]["bytes_from"]["seed"] == _size(checkpoint)
    again = pod(tmp_path / "model", "pull", seed="none").start("--json")
    assert again.wait() == 0
    assert json.loads(again.output())["ranks"][0]["bytes_from"]["resume"] == _size(checkpoint)


def test_an_interrupted_pull_ends_by_convention_and_shows_nothing(
    pair: tuple[Pod, Pod], pod: MakePod, tmp_path: Path
) -> None:
    source, _ = pair
    source.settings["egress-limit-mbps"] = 8
    source.start().wait_ready()
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        pull = pod(
            tmp_path / "pulled",
            "pull",
            seed="none",
            peers=source.settings["peers"],
            worker_grpc_port=source.settings["worker-grpc-port"],
        )
        pull.start().wait_for("transport stream")
        pull.send(number)
        assert pull.wait() == code
        assert "Traceback" not in pull.log
        assert not pull.directory.exists()


def test_sigterm_says_not_ready_first_and_lets_leased_reads_finish(pair: tuple[Pod, Pod], checkpoint: Path) -> None:
    source, receiver = pair
    source.settings |= {"egress-limit-mbps": SLOW, "drain-seconds": 30}
    source.start().wait_ready()
    receiver.start()
    receiver.wait_until(lambda status: _verified(status) > 0)
    source.send(signal.SIGTERM)
    source.wait_for("draining")
    code, reason = source.get("/readyz")
    assert (code, reason) in {(503, "draining\n"), (0, "")}
    assert source.wait() == 0
    receiver.close()


def test_bad_settings_are_one_line_and_exit_code_2(pod: MakePod, tmp_path: Path) -> None:
    bad = pod(tmp_path / "model", "pull", seed="ftp://somewhere", world="x").start()
    assert bad.wait() == 2
    assert "--world='x'" in bad.log
    assert "Traceback" not in bad.log
    seedless = pod(tmp_path / "model", "pull", seed="ftp://somewhere").start()
    assert seedless.wait() == 2
    assert "ftp://somewhere" in seedless.log


@pytest.mark.parametrize("layout", ["whole", "striped"])
def test_a_volume_that_is_too_small_is_named_and_left_as_it_was(checkpoint: Path, tmp_path: Path, layout: str) -> None:
    """In a mount namespace of its own, where a volume of 4 MB can be mounted without root."""
    pull = f"{sys.executable} -m shardpool pull --model acme/tiny --revision {REVISION} --seed directory:{checkpoint} --layout {layout}"
    script = f"mount -t tmpfs -o size=4m tmpfs {tmp_path} && {pull} --directory {tmp_path}/model; echo exit $?; ls -A {tmp_path}"
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
    done = subprocess.run([*namespace, "sh", "-c", script], capture_output=True, text=True, timeout=120, check=True)
    line = next(line for line in done.stderr.splitlines() if line.startswith("shardpool: "))
    assert str(tmp_path) in line
    assert re.search(r"\d+ bytes", line)
    assert done.stdout == "exit 6\n"
