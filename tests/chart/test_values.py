"""Every value is documented, known to the schema, and no other is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import values_docs as docs
import yaml
from chartlib import CHART, RenderError, Values, merged, render

DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
MODEL = {"model": {"id": "org/model", "revision": "a" * 40}}
DOCUMENTED = docs.values()


def properties(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property of the schema with its dotted name, objects and leaves."""
    for key, child in docs.resolve(SCHEMA, node).get("properties", {}).items():
        name = f"{path}.{key}" if path else key
        yield name, docs.resolve(SCHEMA, child)
        yield from properties(child, name)


def nested(name: str, value: Any) -> Values:
    for key in reversed(name.split(".")):
        value = {key: value}
    return dict(value)


def test_the_schema_knows_exactly_the_documented_values() -> None:
    """Values that are Kubernetes' own objects (resources) and the canary's parts are documented as a whole."""
    documented = {value.name for value in DOCUMENTED}
    leaves = {name for name, node in properties(SCHEMA) if name in documented or not node.get("properties")}
    parts = {name for name in leaves if any(name.startswith(f"{whole}.") for whole in documented)}
    assert leaves - parts == documented


def test_every_documented_value_is_accepted_at_its_default() -> None:
    assert render(merged(DEFAULTS, MODEL)) == render(MODEL)


@pytest.mark.parametrize(
    "place", ["", *sorted(name for name, node in properties(SCHEMA) if node.get("properties") and name != "global")]
)
def test_an_unknown_key_is_refused_everywhere(place: str) -> None:
    values = merged(MODEL, nested(f"{place}.unheardOf" if place else "unheardOf", 1))
    with pytest.raises(RenderError, match="'unheardOf' not allowed"):
        render(values)


def test_helm_3_refuses_an_unknown_key() -> None:
    with pytest.raises(RenderError, match="'unheardOf' not allowed"):
        render(merged(MODEL, {"unheardOf": 1}), helm="helm3")


def test_no_value_holds_a_token() -> None:
    names = [value.name for value in DOCUMENTED]
    assert not [name for name in names if re.search(r"(?i)(token|password|accessKey|secretKey)$", name)]


@pytest.mark.parametrize("value", DOCUMENTED, ids=[value.name for value in DOCUMENTED])
def test_a_sentence_says_what_a_value_is(value: docs.Value) -> None:
    assert re.search(r"[.)]$", value.sentence), "a sentence ends with a full stop"


def test_the_readme_is_fresh() -> None:
    assert docs.README.read_text() == docs.readme(), "run `make chart-docs`"


def test_the_schema_says_what_values_yaml_says() -> None:
    assert docs.SCHEMA.read_text() == docs.schema(), "run `make chart-docs`"
