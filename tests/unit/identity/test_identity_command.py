"""`shardpool identity`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardpool.cli.identity import identity
from shardpool.errors import ConfigurationError

VECTORS = Path(__file__).parents[2] / "contract" / "source_id_vectors.json"


def test_json_from_a_file(tmp_path: Path) -> None:
    for number, vector in enumerate(json.loads(VECTORS.read_text(encoding="utf-8"))):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(vector["identity"]))
        result = CliRunner().invoke(identity, ["--from", str(path), "--json"])
        answer = json.loads(result.stdout)
        assert answer["mx_source_id"] == vector["mx_source_id"]
        assert set(answer) == {"mx_source_id", "canonical_json"}
        assert json.loads(answer["canonical_json"])["model_name"] == vector["identity"].get("model_name", "").lower()


def test_standard_input_is_utf8_whatever_the_locale_says() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "shardpool", "identity", "--from", "-", "--json"],
        input='{"model_name": "模型-Ü"}'.encode(),
        env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(json.loads(result.stdout)["canonical_json"])["model_name"] == "模型-ü"


def test_a_table_for_people_shows_no_control_characters() -> None:
    given = {"model_name": "A\x1b[31mB [red]x", "extra_parameters": {"K": "v"}, "mx_source_type": "MX_SOURCE_TYPE_LORA"}
    result = CliRunner().invoke(identity, ["--from", "-"], input=json.dumps(given))
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "a\\u001b[31mb [red]x" in result.stdout
    assert "extra_parameters[k]" in result.stdout


@pytest.mark.parametrize("content", ["", "[1]", '{"dtype": 1}', '{"model_name": "\\ud800"}', '{"nope": 1}'])
def test_what_is_not_an_identity_is_a_usage_error(content: str) -> None:
    result = CliRunner().invoke(identity, ["--from", "-", "--json"], input=content)
    assert isinstance(result.exception, ConfigurationError)
    assert result.exception.exit_code == 2
    assert result.stdout == ""


def test_the_list_of_vectors_is_refused_with_advice() -> None:
    result = CliRunner().invoke(identity, ["--from", str(VECTORS), "--json"])
    assert "one JSON object, not a list" in str(result.exception)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(identity, ["--from", str(tmp_path / "none.json")])
    assert isinstance(result.exception, ConfigurationError)
    assert "none.json" in str(result.exception)
