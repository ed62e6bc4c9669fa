"""Ranks, ports, Service addresses, plans."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from shardpool.cli.plan import plan
from shardpool.errors import ConfigurationError
from shardpool.identity import SourceIdentity
from shardpool.topology import Topology, build_plan, coordinates_of, format_pattern, rank_at, service_address


def test_a_process_binds_base_plus_local_rank() -> None:
    topology = Topology(world=8, local_ranks=4, base_port=6555)
    assert [topology.port_of(rank) for rank in range(8)] == [6555, 6556, 6557, 6558] * 2
    assert [topology.pod_of(rank) for rank in range(8)] == [0] * 4 + [1] * 4
    assert topology.local_ranks_of(4) == range(4, 8)


@pytest.mark.parametrize("numbers", [(4, 5, 6555), (4, 3, 6555), (1, 0, 6555), (4, 4, 65533), (4, 4, 0)])
def test_a_topology_that_cannot_be_is_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigurationError):
        Topology(*numbers)


def test_a_rank_outside_of_the_world_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="rank 8"):
        Topology(8, 4, 6555).port_of(8)


@given(expert=st.integers(0, 1000), tensor=st.integers(0, 63), size=st.integers(1, 64))
def test_a_rank_is_expert_times_tensor_size_plus_tensor(expert: int, tensor: int, size: int) -> None:
    tensor %= size
    rank = rank_at(expert, tensor, size)
    assert rank == expert * size + tensor
    assert coordinates_of(rank, size) == (expert, tensor)


@pytest.mark.parametrize(
    ("pattern", "rank", "address"),
    [
        ("mx-sources", 0, "mx-sources:6555"),
        ("mx-sources", 3, "mx-sources:6558"),
        ("x-rank-{rank}", 3, "x-rank-3:6558"),
        ("x-rank-{rank}:6555", 3, "x-rank-3:6555"),
        ("x-{rank:02d}.ns.svc:7000", 3, "x-03.ns.svc:7000"),
        ("10.0.0.1", 1, "10.0.0.1:6556"),
        ("fd00::1", 1, "[fd00::1]:6556"),
        ("[fd00::1]", 1, "[fd00::1]:6556"),
        ("[fd00::1]:7000", 1, "[fd00::1]:7000"),
        ("::1", 0, "[::1]:6555"),
    ],
)
def test_a_receiver_dials_by_global_rank(pattern: str, rank: int, address: str) -> None:
    assert str(service_address(pattern, rank, 6555)) == address


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        ":6555",
        "x-{pod}",
        "x-{}",
        "x-{rank.real}",
        "x-{rank!r}",
        "x-{rank",
        "x}",
        "a b",
        "host:0",
        "host:70000",
        "[fd00::1",
    ],
)
def test_a_pattern_that_names_no_address_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError):
        service_address(pattern, 0, 6555)


def test_a_port_past_the_last_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="port 65536"):
        service_address("x", 1, 65535)


def test_doubled_braces_stand_for_themselves() -> None:
    assert format_pattern("{{x}}-{rank}", 2) == "{x}-2"


def _rows(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(row["rank"], row["service"], row["port"], row["targetPort"], row["podIndex"]) for row in found["ranks"]]


def test_per_pod_has_one_service_with_a_port_a_rank() -> None:
    found = build_plan(release="m", shape="perPod", layout="striped", world=2, local_ranks=2)
    assert _rows(found) == [(0, "m", 6555, 6555, 0), (1, "m", 6556, 6556, 0)]
    assert {row["peersService"] for row in found["ranks"]} == {"m-peers"}


def test_per_rank_has_a_service_a_rank() -> None:
    found = build_plan(release="m", shape="perRank", layout="sharded", world=2, local_ranks=1)
    assert _rows(found) == [(0, "m-rank-0", 6555, 6555, 0), (1, "m-rank-1", 6555, 6555, 0)]
    assert found["ranks"][1]["peersService"] == "m-rank-1-peers"


def test_multi_node_counts_ports_within_a_pod() -> None:
    found = build_plan(release="m", shape="multiNode", layout="sharded", world=4, local_ranks=2)
    assert _rows(found) == [
        (0, "m-rank-0", 6555, 6555, 0),
        (1, "m-rank-1", 6556, 6556, 0),
        (2, "m-rank-2", 6555, 6555, 1),
        (3, "m-rank-3", 6556, 6556, 1),
    ]


def test_a_pool_of_whole_directories_has_one_service_whatever_the_shape() -> None:
    found = build_plan(release="m", shape="multiNode", layout="striped", world=2, local_ranks=2)
    assert {row["service"] for row in found["ranks"]} == {"m"}


def test_a_plan_carries_the_identity_as_the_message_names_it() -> None:
    identity = SourceIdentity(model_name="a/b", tensor_parallel_size=1)
    found = build_plan(release="m", shape="perPod", world=1, local_ranks=1, identity=identity)
    assert SourceIdentity.from_json(found["identity"]) == identity
    assert "identity" not in build_plan(release="m", shape="perPod", world=1, local_ranks=1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"shape": "perNode"}, "shape"),
        ({"layout": "halved"}, "layout"),
        ({"release": "Not-A-Label"}, "DNS label"),
        ({"release": "a" * 53}, "52"),
        ({"namespace": "-"}, "namespace"),
        ({"layout": "whole", "world": 2, "local_ranks": 2}, "layout whole"),
        ({"layout": "striped", "world": 4, "local_ranks": 2}, "every pod has every rank"),
        ({"layout": "striped", "world": 101, "local_ranks": 101}, "100 ports"),
        ({"shape": "perRank", "layout": "sharded", "world": 4, "local_ranks": 2}, "perRank"),
        ({"shape": "multiNode", "layout": "sharded", "world": 5, "local_ranks": 2}, "divide"),
        ({"http_port": 6555}, "HTTP port"),
        ({"engine": "tgi"}, "engine"),
        ({"weights": "disk"}, "weights"),
    ],
)
def test_what_no_release_could_be_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        build_plan(**{"release": "m", "shape": "perPod", "world": 1, "local_ranks": 1, **wrong})


def test_the_command_prints_the_plan_as_json() -> None:
    arguments = ["--release", "qwen", "--tensor-parallel", "2", "--model", "a/b", "--revision", "a" * 40, "--json"]
    found = json.loads(CliRunner().invoke(plan, arguments).stdout)
    assert (found["version"], found["release"], found["layout"], found["world"], found["localRanks"]) == (
        1,
        "qwen",
        "striped",
        2,
        2,
    )
    assert found["identity"]["extra_parameters"] == {"shardpool_layout": "striped"}
    assert len(found["ranks"]) == 2


def test_the_command_shows_expert_coordinates() -> None:
    sizes = ["--tensor-parallel", "2", "--data-parallel", "2", "--expert-parallel", "--local-ranks", "2"]
    arguments = ["--shape", "multiNode", "--layout", "sharded", *sizes]
    lines = CliRunner().invoke(plan, arguments).stdout.splitlines()
    row = next(line.split() for line in lines if "model-rank-3" in line)
    assert row == ["3", "1", "1", "model-rank-3", "6556", "6556", "1"]


def test_the_command_refuses_two_sizes_of_the_world() -> None:
    result = CliRunner().invoke(plan, ["--world", "8", "--tensor-parallel", "4"])
    assert isinstance(result.exception, ConfigurationError)


def test_the_command_takes_the_pools_world_apart_from_one_rank() -> None:
    found = json.loads(CliRunner().invoke(plan, ["--shape", "perRank", "--world", "3", "--json"]).stdout)
    assert (found["layout"], found["localRanks"], len(found["ranks"])) == ("sharded", 1, 3)
