"""How many fault schedules run, and which."""

from __future__ import annotations

import os

import pytest

DEFAULT = 240


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedules", type=int, default=None, help=f"number of random fault schedules (default {DEFAULT})"
    )
    parser.addoption("--schedule", type=int, default=None, help="run one fault schedule, by its number")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "schedule_number" in metafunc.fixturenames:
        one = metafunc.config.getoption("--schedule", None)
        count = metafunc.config.getoption("--schedules", None) or int(
            os.environ.get("SHARDPOOL_SIM_SCHEDULES", DEFAULT)
        )
        metafunc.parametrize("schedule_number", [one] if one is not None else range(count))
