"""A preflight names what is not as planned: DNS, identity, rank, readiness, limits."""

from __future__ import annotations

import dataclasses
import json
import resource
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shardpool.cli.doctor import doctor
from shardpool.discovery.dns import Resolver
from shardpool.errors import ConfigurationError
from shardpool.probe import host
from shardpool.probe.doctor import Doctor
from shardpool.probe.plan import Plan, PlannedRank, read_plan
from shardpool.probe.report import FAIL, OK, WARN, Check, Report
from shardpool.settings import Settings
from shardpool.topology import build_plan


@pytest.fixture
def names(tmp_path: Path) -> Callable[..., Resolver]:
    """A resolver that knows only what a test says."""

    def known(**hosts: str) -> Resolver:
        file = tmp_path / "hosts"
        lines = [
            f"{address} {name.replace('_', '-')}" for name, addresses in hosts.items() for address in addresses.split()
        ]
        file.write_text("\n".join(lines) + "\n")
        configuration = tmp_path / "resolv.conf"
        configuration.write_text("nameserver 127.0.0.1\n")
        return Resolver(configuration, file, port=9)

    return known


def _plan(identity: Any, port: int, weights: str = "pool") -> Plan:
    ranks = tuple(PlannedRank(rank, "pool", port + rank, "pool-peers", port + rank) for rank in range(2))
    return Plan("pool", "default", "striped", 2, weights, identity, ranks)


def _run(plan: Plan, resolver: Resolver) -> dict[str, Check]:
    report = Doctor(Settings(connect_seconds=10.0), plan, resolver=resolver).run()
    return {check.name: check for check in report.checks}


def test_a_release_as_planned_passes(
    worker: Callable[..., Any], free_ports: Callable[[int], int], names: Callable[..., Resolver], identity: Any
) -> None:
    port = free_ports(2)
    for address in ("127.0.0.2", "127.0.0.3"):
        for rank in range(2):
            worker(address, port + rank, rank).publish()
    checks = _run(_plan(identity, port), names(pool="127.0.0.2", pool_peers="127.0.0.2 127.0.0.3"))
    assert {name: check.verdict for name, check in checks.items() if name.startswith("rank")} == {
        f"rank {rank} {what}": OK for rank in range(2) for what in ("service", "peers", "handshake", "pods")
    }
    assert (checks["transport in use"].verdict, checks["transport in use"].seen) == (OK, "stream")


def test_a_service_that_leads_to_another_model_is_named_with_the_fields(
    worker: Callable[..., Any], free_ports: Callable[[int], int], names: Callable[..., Resolver], identity: Any
) -> None:
    port = free_ports(2)
    other = dataclasses.replace(identity, model_name="other/Model", revision="b" * 40)
    for rank in range(2):
        worker("127.0.0.2", port + rank, rank).publish()
        worker("127.0.0.3", port + rank, rank, identity=other).publish()
    checks = _run(_plan(identity, port), names(pool="127.0.0.2", pool_peers="127.0.0.2 127.0.0.3"))
    wrong = checks["rank 0 pods"]
    assert wrong.verdict == FAIL
    assert "127.0.0.3" in wrong.seen
    assert "other/model" in wrong.seen
    assert "revision" in wrong.seen
    assert "selector of pool" in wrong.hint
    assert checks["rank 0 handshake"].verdict == OK


def test_a_service_that_leads_to_another_rank_is_named(
    worker: Callable[..., Any], free_ports: Callable[[int], int], names: Callable[..., Resolver], identity: Any
) -> None:
    port = free_ports(2)
    for rank in range(2):
        worker("127.0.0.2", port + rank, 1 - rank).publish()
    checks = _run(_plan(identity, port), names(pool="127.0.0.2", pool_peers="127.0.0.2"))
    assert checks["rank 0 handshake"].verdict == FAIL
    assert "planned 0 of 2, it is 1 of 2" in checks["rank 0 handshake"].seen
    assert "another rank" in checks["rank 0 handshake"].hint


def test_a_pod_that_fills_is_a_warning_beside_one_that_is_ready_and_a_failure_alone(
    worker: Callable[..., Any], free_ports: Callable[[int], int], names: Callable[..., Resolver], identity: Any
) -> None:
    port = free_ports(2)
    for rank in range(2):
        worker("127.0.0.2", port + rank, rank).publish()
        worker("127.0.0.3", port + rank, rank)
    both = "127.0.0.2 127.0.0.3"
    assert _run(_plan(identity, port), names(pool=both, pool_peers=both))["rank 1 pods"].verdict == WARN
    alone = _run(_plan(identity, port), names(pool="127.0.0.3", pool_peers="127.0.0.3"))
    assert alone["rank 1 handshake"].verdict == FAIL
    assert "filling, not ready" in alone["rank 1 handshake"].seen


def test_a_name_without_an_address_fails(
    free_ports: Callable[[int], int], names: Callable[..., Resolver], identity: Any
) -> None:
    checks = _run(_plan(identity, free_ports(2)), names())
    assert checks["rank 0 service"].verdict == FAIL
    assert "Service" in checks["rank 0 service"].hint


def test_another_service_on_the_port_is_no_source(
    names: Callable[..., Resolver], free_ports: Callable[[int], int], identity: Any
) -> None:
    port = free_ports(2)
    with socket.create_server(("127.0.0.2", port)) as listener:

        def greet() -> None:
            for _ in range(8):
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                connection.close()

        threading.Thread(target=greet, daemon=True).start()
        checks = _run(_plan(identity, port), names(pool="127.0.0.2", pool_peers="127.0.0.2"))
    assert checks["rank 0 handshake"].verdict == FAIL


def test_engines_are_judged_by_what_they_published(
    worker: Callable[..., Any], free_ports: Callable[[int], int], names: Callable[..., Resolver], identity: Any
) -> None:
    port = free_ports(2)
    first, second = (worker("127.0.0.2", port + rank, rank) for rank in range(2))
    first.publish()
    second.publish(rank=0)
    plan = _plan(None, port, weights="modelexpress")
    checks = _run(plan, names(pool="127.0.0.2", pool_peers="127.0.0.2"))
    assert checks["rank 0 handshake"].verdict == OK
    assert first.source_id in checks["rank 0 handshake"].seen
    assert checks["rank 1 handshake"].verdict == FAIL
    assert "planned 1, it is 0" in checks["rank 1 handshake"].seen


def test_a_plan_of_our_own_is_read(tmp_path: Path, identity: Any) -> None:
    file = tmp_path / "plan.json"
    made = build_plan(release="m", shape="perPod", world=2, local_ranks=2, layout="striped", identity=identity)
    file.write_text(json.dumps(made))
    plan = read_plan(str(file))
    assert plan.identity == identity
    assert [rank.rank for rank in plan.ranks] == [0, 1]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 2}', '{"version": 1, "ranks": 3}', '{"version": 1, "ranks": [{"rank": 0}]}'],
)
def test_a_plan_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"plan\.json"):
        read_plan(str(file))


def test_the_command_prints_json_and_exits_by_the_verdict(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    made = build_plan(release="no-such-release", shape="perPod", world=1, local_ranks=1)
    file.write_text(json.dumps(made))
    done = CliRunner().invoke(doctor, ["--plan", str(file), "--json"], standalone_mode=False)
    assert done.exception is None
    assert done.return_value == 1
    said = json.loads(done.stdout)
    assert said["ok"] is False
    assert {"name", "verdict", "seen", "hint"} == set(said["checks"][0])


def test_a_table_has_a_line_a_check_and_a_sum() -> None:
    report = Report((Check("a", OK, "fine"), Check("bb", WARN, "so so", "do this"), Check("c", FAIL, "broken")))
    assert not report.ok
    assert report.as_text(80).splitlines() == [
        "ok    a   fine",
        "warn  bb  so so; do this",
        "fail  c   broken",
        "1 ok, 1 warnings, 1 failures",
    ]


def test_limits_that_are_too_low_are_named_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_MEMLOCK: (8 << 20, 8 << 20), resource.RLIMIT_NOFILE: (64, 64)}
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits[what])
    monkeypatch.setattr(host.fabric, "rdma_devices", lambda: ("mlx5_0",))
    monkeypatch.setattr(host.os, "statvfs", lambda path: type("S", (), {"f_blocks": 64 << 8, "f_frsize": 4096}))
    checks = {check.name: check for check in host.check_host(Settings(transport="auto"), "modelexpress")}
    assert (checks["memlock limit"].verdict, "8192 KiB" in checks["memlock limit"].seen) == (FAIL, True)
    assert (checks["open files limit"].verdict, "1024" in checks["open files limit"].hint) == (FAIL, True)
    assert (checks["/dev/shm"].verdict, "64 MiB" in checks["/dev/shm"].seen) == (WARN, True)


def test_pods_that_offer_nixl_where_there_is_no_rdma_are_warned_of(
    worker: Callable[..., Any],
    free_ports: Callable[[int], int],
    names: Callable[..., Resolver],
    identity: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_ports(2)
    for rank in range(2):
        pod = worker("127.0.0.2", port + rank, rank)
        pod.state.set_transports(("nixl", "stream"))
        pod.publish()
    resolver = names(pool="127.0.0.2", pool_peers="127.0.0.2")
    monkeypatch.setattr("shardpool.probe.doctor.listed_rdma_devices", lambda: ())
    assert _run(_plan(identity, port), resolver)["transport in use"].verdict == WARN
    monkeypatch.setattr("shardpool.probe.doctor.listed_rdma_devices", lambda: ("mlx5_0",))
    assert _run(_plan(identity, port), resolver)["transport in use"].verdict == OK


def test_nixl_over_tcp_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.fabric, "rdma_devices", lambda: ())
    monkeypatch.setattr(host.fabric, "listed_rdma_devices", lambda: ())
    checks = {check.name: check for check in host.check_host(Settings(transport="stream"), "pool")}
    assert checks["rdma devices"].verdict == OK
    assert host._rdma((), "nixl").verdict == WARN
    assert "read and write the process" in host._rdma((), "nixl").seen
