"""The heap during and after a transfer."""

from __future__ import annotations

import ctypes

import pytest

from shardpool import heap


def test_glibc_is_told_and_takes_it() -> None:
    assert heap.keep()
    assert heap.release()


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not heap.keep()
    assert not heap.release()
