"""Golden renders: `python charts/tools/golden.py` compares them, `--write` makes them anew."""

from __future__ import annotations

import argparse
import difflib
import sys

from chartlib import Scenario, render, scenarios


def difference(scenario: Scenario) -> str:
    """Unified diff from the golden render to the present one; empty when they are the same."""
    golden = scenario.golden.read_text() if scenario.golden.exists() else ""
    lines = difflib.unified_diff(
        golden.splitlines(keepends=True), render(scenario.values).splitlines(keepends=True), "golden", "rendered"
    )
    return "".join(lines)


def strays() -> list[str]:
    """Golden files that no scenario makes."""
    known = {scenario.golden for scenario in scenarios()}
    return sorted(path.name for path in next(iter(known)).parent.glob("*.yaml") if path not in known)


def write() -> None:
    """Make every golden file anew, and remove those of scenarios that are gone."""
    every = scenarios()
    every[0].golden.parent.mkdir(parents=True, exist_ok=True)
    for scenario in every:
        scenario.golden.write_text(render(scenario.values))
    for name in strays():
        (every[0].golden.parent / name).unlink()
    sys.stdout.write(f"{len(every)} golden renders written\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="make the golden renders anew")
    if parser.parse_args().write:
        write()
        return 0
    changed = [text for text in map(difference, scenarios()) if text] + [f"no scenario: {name}\n" for name in strays()]
    sys.stdout.write("\n".join(changed))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
