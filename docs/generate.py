"""Makes docs/cli.md, docs/settings.md and docs/metrics.md from the code; with --check, says which are out of date.

Usage: python docs/generate.py [--check]
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from shardpool import errors
from shardpool.cli import COMMANDS, cli
from shardpool.metrics import GATE_METRICS, RANK_METRICS
from shardpool.settings import Settings

DOCS = Path(__file__).parent
MADE = "<!-- Made by docs/generate.py (`make docs`); edit the code instead. -->\n"


def settings_page() -> str:
    """The reference of settings, by group."""
    lines = [
        "# Settings",
        "",
        MADE,
        "Each setting is an environment variable and, where a command uses it, a flag; the flag wins, then the first name that is set.",
        "Values that cannot be used are all named in one error, with exit code 2.",
    ]
    group = ""
    for entry in dataclasses.fields(Settings):
        data = entry.metadata
        if data["group"] != group:
            group = data["group"]
            lines += ["", f"## {group}", "", "| environment | flag | default | meaning |", "|---|---|---|---|"]
        names = ", ".join(f"`{name}`" for name in data["names"])
        default = "" if entry.default in ("", None) else f"`{str(entry.default).lower()}`"
        choices = " One of " + ", ".join(f"`{c}`" for c in data["choices"] if c) + "." if data["choices"] else ""
        meaning = (data["help"] + choices).replace("|", "\\|")
        lines.append(f"| {names} | `--{entry.name.replace('_', '-')}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """The reference of metrics."""
    lines = ["# Metrics", "", MADE, "`/metrics` of `serve` has all ranks of the pod, each with the label `rank`.", ""]
    for title, table in (("`shardpool serve`", RANK_METRICS), ("`shardpool gate`", GATE_METRICS)):
        lines += [f"## {title}", "", "| metric | kind | further labels | meaning |", "|---|---|---|---|"]
        for name, metric in table.items():
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |")
        lines.append("")
    return "\n".join(lines)


def _exit_codes() -> Iterator[str]:
    kinds = [
        (name, kind)
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.ShardpoolError)
    ]
    for _, kind in sorted(kinds, key=lambda item: (item[1].exit_code, item[0])):
        summary = (kind.__doc__ or "").splitlines()[0].replace("|", "\\|")
        yield f"| {kind.exit_code} | `{kind.__name__}` | {summary} |"


def cli_page() -> str:
    """The reference of commands: what each prints for --help, and the exit codes."""
    lines = ["# Commands", "", MADE]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        context = click.Context(command, info_name=f"shardpool {name}", terminal_width=100, max_content_width=100)
        lines += [f"## shardpool {name}", "", "```text", command.get_help(context), "```", ""]
    lines += [
        "## Exit codes",
        "",
        "0 is done (for `serve`: drained after SIGTERM). Other signals end with 128 + their number.",
        "",
        "| code | error | meaning |",
        "|---|---|---|",
        *_exit_codes(),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


PAGES = {"settings.md": settings_page, "metrics.md": metrics_page, "cli.md": cli_page}


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is out of date")
    check = parser.parse_args().check
    stale = []
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
        else:
            path.write_text(text)
    if stale:
        print(f"out of date: {', '.join(stale)}; run `make docs` and commit the result", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
