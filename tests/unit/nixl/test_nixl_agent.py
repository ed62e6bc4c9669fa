"""What has to be true of the environment and the library before an agent is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardpool.errors import ConfigurationError
from shardpool.settings import Settings
from shardpool.transport import fabric, nixl_agent
from shardpool.transport.choice import choose_transport
from shardpool.transport.nixl_agent import environment_defaults, prepare_environment


def test_without_rdma_the_interface_is_pinned_and_only_tcp_is_used() -> None:
    values = environment_defaults(rdma=False, efa=False, interface="eth0")
    assert (values["UCX_TLS"], values["UCX_NET_DEVICES"], values["UCX_MODULES"]) == ("tcp,self", "eth0", "^efa")
    assert values["UCX_TCP_USER_TIMEOUT"] == "10s"


def test_with_rdma_ucx_chooses_and_efa_is_left_in_where_it_is() -> None:
    values = environment_defaults(rdma=True, efa=True, interface="eth0")
    assert not {"UCX_TLS", "UCX_NET_DEVICES", "UCX_MODULES"} & values.keys()


def test_what_the_user_set_stays() -> None:
    environment = {"UCX_TLS": "rc", "UCX_MODULES": "ib", "HOME": "/"}
    prepare_environment("127.0.0.1", environment)
    assert (environment["UCX_TLS"], environment["UCX_MODULES"]) == ("rc", "ib")
    assert environment["UCX_NET_DEVICES"] == "lo"


def test_a_home_that_may_not_be_read_is_not_looked_into(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path / "none")}
    prepare_environment("", environment)
    assert environment["HOME"] == "/"


@pytest.mark.parametrize("ports", ["5000-5000", "5000-5014"])
def test_too_few_ports_are_refused_with_a_range_that_will_do(ports: str) -> None:
    with pytest.raises(ConfigurationError, match="5000-5015"):
        prepare_environment("", {"UCX_TCP_PORT_RANGE": ports})


@pytest.mark.parametrize("ports", ["5000-5015", "0", ""])
def test_enough_ports_are_taken(ports: str) -> None:
    environment = {"UCX_TCP_PORT_RANGE": ports, "HOME": "/"}
    prepare_environment("", environment)
    assert environment["UCX_TCP_PORT_RANGE"] == ports


def _device(system: Path, name: str, node: str | None) -> None:
    (system / f"sys/class/infiniband/{name}/device/infiniband_verbs/uverbs0").mkdir(parents=True)
    if node:
        (system / "dev/infiniband").mkdir(parents=True, exist_ok=True)
        (system / "dev/infiniband" / node).touch()


def test_an_rdma_device_counts_when_its_node_is_in_this_container(tmp_path: Path) -> None:
    _device(tmp_path, "mlx5_0", None)
    assert (fabric.rdma_devices(tmp_path), fabric.listed_rdma_devices(tmp_path)) == ((), ("mlx5_0",))
    _device(tmp_path, "mlx5_1", "uverbs0")
    assert fabric.rdma_devices(tmp_path) == ("mlx5_0", "mlx5_1")


def test_efa_is_known_by_its_driver(tmp_path: Path) -> None:
    _device(tmp_path, "rdmap0", "uverbs0")
    assert not fabric.has_efa(tmp_path)
    (tmp_path / "drivers/efa").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/rdmap0/device/driver").symlink_to(tmp_path / "drivers/efa")
    assert fabric.has_efa(tmp_path)


def test_the_interface_of_an_address() -> None:
    assert fabric.interface_of("127.0.0.1") == "lo"
    assert fabric.interface_of("203.0.113.9") == ""
    assert fabric.interface_of("fe80::1") == ""


def test_the_interface_of_the_default_route(tmp_path: Path) -> None:
    routes = tmp_path / "route"
    routes.write_text(
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "net1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
        "eth7\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\n"
    )
    assert fabric.default_interface(routes) == "eth7"
    assert fabric.default_interface(tmp_path / "none") == ""


def test_stream_is_chosen_when_asked_for() -> None:
    assert choose_transport(Settings(transport="stream")) == ("stream", "asked for")


def test_auto_without_rdma_is_stream_and_does_not_load_nixl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "rdma_devices", lambda: ())
    monkeypatch.setattr(fabric, "listed_rdma_devices", lambda: ())
    monkeypatch.setattr(nixl_agent, "load", lambda: pytest.fail("NIXL was loaded"))
    assert choose_transport(Settings(transport="auto")) == ("stream", "no RDMA device")


def test_auto_names_devices_that_the_container_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "rdma_devices", lambda: ())
    monkeypatch.setattr(fabric, "listed_rdma_devices", lambda: ("mlx5_0",))
    name, reason = choose_transport(Settings(transport="auto"))
    assert (name, "mlx5_0" in reason) == ("stream", True)


CHOOSE = """
from shardpool.log import set_up_logging
from shardpool.settings import Settings
from shardpool.transport.choice import choose_transport
set_up_logging()
print(*choose_transport(Settings(transport="nixl", worker_host="127.0.0.1")), sep="|")
"""


def _choose(prelude: str = "", **environment: str) -> tuple[str, str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", prelude + CHOOSE],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
        check=True,
    )
    name, reason = done.stdout.strip().split("|")
    return name, reason, [line for line in done.stderr.splitlines() if " WARNING " in line]


def test_nixl_that_loads_is_used_when_asked_for() -> None:
    name, reason, warnings = _choose()
    assert name == "nixl"
    assert reason.startswith("NIXL 1.5")
    assert len(warnings) == 1
    assert "without RDMA" in warnings[0]


def test_missing_nixl_falls_back_with_one_warning() -> None:
    name, reason, warnings = _choose("import shardpool.transport.nixl_agent as a\na.PACKAGES = ('no_such_nixl',)\n")
    assert (name, "not installed" in reason) == ("stream", True)
    assert len(warnings) == 1


def test_nixl_whose_plugins_do_not_load_falls_back_with_one_warning(tmp_path: Path) -> None:
    name, reason, warnings = _choose(NIXL_PLUGIN_DIR=str(tmp_path), UCX_TLS="no_such_transport", UCX_LOG_LEVEL="fatal")
    assert (name, "UCX plugin cannot be made" in reason) == ("stream", True)
    assert len(warnings) == 1


@pytest.mark.parametrize("version", ["1.4.9", "2.0.0"])
def test_a_version_that_was_not_tried_is_refused(version: str) -> None:
    prelude = (
        "import importlib.metadata as m\n"
        "real = m.version\n"
        f"m.version = lambda name: {version!r} if name.startswith('nixl') else real(name)\n"
    )
    name, reason, _ = _choose(prelude)
    assert (name, version in reason) == ("stream", True)


def test_nothing_of_nixl_is_imported_before_it_is_chosen() -> None:
    code = (
        "import sys, shardpool.transport.nixl, shardpool.transport.nixl_source, shardpool.transport.choice\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('numpy', 'nixl_cu12', 'grpc')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
