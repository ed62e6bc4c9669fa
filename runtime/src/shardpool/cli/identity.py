"""`shardpool identity`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from shardpool.errors import ConfigurationError


@click.command()
@click.option(
    "--from",
    "origin",
    metavar="FILE|-",
    required=True,
    help="JSON object with the identity's fields, named as in the SourceIdentity message; - is standard input.",
)
@click.option("--json", "as_json", is_flag=True, help='Print {"mx_source_id": ..., "canonical_json": ...}.')
def identity(origin: str, as_json: bool) -> None:
    """Compute the mx_source_id of an identity, as ModelExpress does.

    Enum values may be numbers or the names of the contract, such as BACKEND_FRAMEWORK_VLLM.
    """
    from shardpool.identity import SourceIdentity

    found = SourceIdentity.parse(_read(origin), "standard input" if origin == "-" else origin)
    if as_json:
        click.echo(json.dumps({"mx_source_id": found.mx_source_id(), "canonical_json": found.canonical_json()}))
        return
    _print_table(found.mx_source_id(), json.loads(found.canonical_json()))


def _read(origin: str) -> bytes:
    if origin == "-":
        return sys.stdin.buffer.read()
    try:
        with open(origin, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigurationError(
            f"{origin} cannot be read: {error.strerror}", hint="give a file with the identity's fields as JSON"
        ) from error


def _print_table(source_id: str, canonical: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_header=False, title=f"mx_source_id  {source_id}", title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in canonical.items():
        if isinstance(value, dict):
            for key, text in value.items() or {"": ""}.items():
                table.add_row(Text(f"{name}[{_plain(key)}]" if key else name), Text(_plain(text)))
        else:
            table.add_row(Text(name), Text(_plain(value)))
    Console(soft_wrap=not sys.stdout.isatty()).print(table)


def _plain(value: object) -> str:
    """A value for a terminal: what cannot be shown (control characters) is escaped."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text)[1:-1]
