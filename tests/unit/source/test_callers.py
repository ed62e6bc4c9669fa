"""Where a caller may be dialled."""

from __future__ import annotations

import pytest

from shardpool.discovery.base import Endpoint
from shardpool.source.callers import caller_endpoint


@pytest.mark.parametrize(
    ("announced", "connection", "endpoint"),
    [
        ("10.0.0.7:6555", "ipv4:10.0.0.7:50123", Endpoint("10.0.0.7", 6555)),
        ("[fd00::7]:6555", "ipv6:[fd00::7]:50123", Endpoint("fd00::7", 6555)),
        ("[fd00::7]:6555", "ipv6:%5Bfd00::7%5D:50123", Endpoint("fd00::7", 6555)),
        ("10.0.0.7:6555", "ipv6:[::ffff:10.0.0.7]:50123", Endpoint("10.0.0.7", 6555)),
    ],
)
def test_a_caller_is_dialled_where_it_calls_from(announced: str, connection: str, endpoint: Endpoint) -> None:
    assert caller_endpoint(announced, connection) == endpoint


@pytest.mark.parametrize(
    ("announced", "connection"),
    [
        pytest.param("10.0.0.8:6555", "ipv4:10.0.0.7:50123", id="another address"),
        pytest.param("db.internal:5432", "ipv4:10.0.0.7:50123", id="a name"),
        pytest.param("10.0.0.7:0", "ipv4:10.0.0.7:50123", id="no port"),
        pytest.param("10.0.0.7:70000", "ipv4:10.0.0.7:50123", id="a port out of range"),
        pytest.param("", "ipv4:10.0.0.7:50123", id="nothing"),
        pytest.param("10.0.0.7:6555", "unix:/run/pool.sock", id="a socket of the machine"),
    ],
)
def test_what_a_caller_says_of_another_address_is_not_believed(announced: str, connection: str) -> None:
    assert caller_endpoint(announced, connection) is None
