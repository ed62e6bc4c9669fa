"""The chart's README and the schema's descriptions, from the `# --` comments of values.yaml.

`python charts/tools/values_docs.py` fails when either is out of date; `--write` makes them anew.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from typing import Any

import yaml
from chartlib import CHART

README = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
TEMPLATE = CHART / "README.md.in"
MARK = "<!-- values -->"
_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z][A-Za-z0-9]*):(?P<rest>.*)$")


@dataclass(frozen=True)
class Value:
    """One documented value: its dotted name, its default, its sentence, and the banner of its section."""

    name: str
    default: Any
    sentence: str
    section: str


def values() -> list[Value]:
    """Every value of values.yaml in order; raises ValueError for a leaf without a `# --` sentence."""
    text = (CHART / "values.yaml").read_text()
    defaults = yaml.safe_load(text)
    found: list[Value] = []
    path: list[tuple[int, str]] = []
    section, sentence, banner = "", "", False
    for line in text.splitlines():
        if line.startswith("# ----"):
            banner = not banner
        elif banner and line.startswith("# "):
            section = line[2:]
        elif line.strip().startswith("# -- "):
            sentence = line.strip()[5:]
        elif match := _KEY.match(line):
            indent = len(match["indent"])
            path = [*(step for step in path if step[0] < indent), (indent, match["key"])]
            name = ".".join(key for _, key in path)
            if sentence:
                found.append(Value(name, _lookup(defaults, name), sentence, section))
            elif match["rest"].strip():
                raise ValueError(f"values.yaml: {name} has no `# --` sentence")
            sentence = ""
    return found


def _lookup(tree: Any, name: str) -> Any:
    for key in name.split("."):
        tree = tree[key]
    return tree


def readme() -> str:
    """README.md: the template with a table of values for each section in the place of the mark."""
    lines: list[str] = []
    section = ""
    for value in values():
        if value.section != section:
            section = value.section
            lines += ["", f"### {section}", "", "| value | default | what it says |", "|---|---|---|"]
        default = json.dumps(value.default, ensure_ascii=False)
        lines.append(f"| `{value.name}` | `{default}` | {value.sentence.replace('|', chr(92) + '|')} |")
    return TEMPLATE.read_text().replace(MARK, "\n".join(lines).strip())


def schema() -> str:
    """values.schema.json with the sentences as descriptions."""
    document = json.loads(SCHEMA.read_text())
    for value in values():
        node = document
        for key in value.name.split("."):
            node = resolve(document, node)["properties"][key]
        if "$ref" not in node:
            node["description"] = value.sentence
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def resolve(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """`node`, or what its `$ref` names."""
    if "$ref" not in node:
        return node
    found: dict[str, Any] = document["definitions"][node["$ref"].rsplit("/", 1)[1]]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="make both files anew")
    write = parser.parse_args().write
    stale = []
    for path, text in ((README, readme()), (SCHEMA, schema())):
        if write:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.stdout.write(f"out of date: {', '.join(stale)}; run `make chart-docs`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
