"""Addresses as people write them."""

from __future__ import annotations

import pytest

from shardpool.discovery.k8s_service import service_target
from shardpool.discovery.pattern import fill, split
from shardpool.discovery.resolving import Target
from shardpool.discovery.static import StaticDiscovery
from shardpool.errors import ConfigurationError


@pytest.mark.parametrize(
    ("pattern", "rank", "expected"),
    [
        ("mx-sources", 0, ("mx-sources", 6555)),
        ("mx-sources", 3, ("mx-sources", 6558)),
        ("mx-rank-{rank}", 3, ("mx-rank-3", 6558)),
        ("mx-rank-{rank}:6555", 3, ("mx-rank-3", 6555)),
        ("mx-{rank:03d}.ns.svc.cluster.local.:7000", 7, ("mx-007.ns.svc.cluster.local.", 7000)),
        ("10.0.0.1", 1, ("10.0.0.1", 6556)),
        ("10.0.0.{rank}:9", 1, ("10.0.0.1", 9)),
        ("fd00::1", 1, ("fd00::1", 6556)),
        ("fd00::{rank}", 5, ("fd00::5", 6560)),
        ("[fd00::1]", 1, ("fd00::1", 6556)),
        ("[fd00::1]:7000", 1, ("fd00::1", 7000)),
        ("::1", 0, ("::1", 6555)),
    ],
)
def test_service_pattern_leads_to_host_and_port(pattern: str, rank: int, expected: tuple[str, int]) -> None:
    assert service_target(pattern, rank, 6555) == Target(*expected, service=True)


@pytest.mark.parametrize(
    "pattern", ["mx-{role}", "mx-{}", "mx-{0}", "mx-{rank.real}", "mx-{rank", "mx-rank}", "mx-{rank:q}", "mx-{rank!z}"]
)
def test_unknown_placeholder_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        service_target(pattern, 0, 6555)
    assert "MX_K8S_SERVICE_PATTERN" in str(refusal.value)
    assert "it may hold {rank}" in str(refusal.value)


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":6555",
        "host:",
        "host:0",
        "host:65536",
        "host:http",
        "host:1:2",
        "[fd00::1",
        "[host]:1",
        "[::1]x",
        "[::1]:",
        "a b",
        "http://host",
        "host/path",
        "-host",
        "host..x",
        "x" * 64,
        "ho\nst",
        "host:٣",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="SHARDPOOL_PEERS"):
        split(address, "SHARDPOOL_PEERS")


def test_port_of_a_high_rank_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="passes 65535"):
        service_target("mx", 60000, 6555)


def test_static_entries_take_rank_and_port() -> None:
    peers = StaticDiscovery("127.0.0.1:{port}, 127.0.0.2 ,127.0.0.3:70{rank}0,[::1]:{port},", 2, 6557)
    assert [endpoint.target for endpoint in peers.list().endpoints] == [
        "127.0.0.1:6557",
        "127.0.0.2:6557",
        "127.0.0.3:7020",
        "[::1]:6557",
    ]


@pytest.mark.parametrize("peers", ["", " , ", "host:{prot}", "host:99999"])
def test_static_list_without_use_is_refused(peers: str) -> None:
    with pytest.raises(ConfigurationError, match="SHARDPOOL_PEERS"):
        StaticDiscovery(peers, 0, 6555)


def test_text_without_placeholders_stays_as_it_is() -> None:
    assert fill("plain-name", "X", rank=3) == "plain-name"
