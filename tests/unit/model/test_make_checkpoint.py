"""The maker of checkpoints that tests, benchmarks and the demo stand on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from make_checkpoint import main, make_checkpoint, parse_size
from model_parts import catalogs_of, contents_of

TOOL = Path(__file__).parents[2] / "tools" / "make_checkpoint.py"


def test_the_same_arguments_make_the_same_bytes(tmp_path: Path) -> None:
    first, second, third = (
        contents_of(
            make_checkpoint(
                tmp_path / str(number), size=300_000, files=2, tensors=9, dtypes=("F8_E4M3", "F4"), seed=seed
            )
        )
        for number, seed in enumerate((7, 7, 8))
    )
    assert first == second != third


def test_the_size_is_nearly_what_was_asked_for(tmp_path: Path) -> None:
    root = make_checkpoint(tmp_path / "m", size=5_000_000, tensors=100, small_files=False)
    assert (root / "model.safetensors").stat().st_size == pytest.approx(5_000_000, rel=0.02)


def test_the_command_makes_per_rank_files(tmp_path: Path) -> None:
    arguments = [
        str(tmp_path / "m"),
        "--size",
        "256KiB",
        "--ranks",
        "2",
        "--files",
        "2",
        "--tensors",
        "8",
        "--dtype",
        "BF16,I8",
    ]
    subprocess.run([sys.executable, str(TOOL), *arguments], check=True, capture_output=True, timeout=60)
    assert [len(catalog.tensors) for catalog in catalogs_of(tmp_path / "m", "sharded", 2)] == [4, 4]


@pytest.mark.parametrize(
    ("text", "size"), [("1GiB", 2**30), ("90MB", 90 * 10**6), ("4096", 4096), ("1.5k", 1500), ("2 TiB", 2**41)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("wrong", [["--size", "big"], ["--dtype", "F31"], ["--files", "0"]])
def test_wrong_arguments_are_refused(tmp_path: Path, wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "m"), *wrong])
    assert not (tmp_path / "m").exists()
