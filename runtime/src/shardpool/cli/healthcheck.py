"""`shardpool healthcheck`."""

from __future__ import annotations

import http.client
from typing import Any

import click

from shardpool.cli.options import load_settings, settings_options


@click.command()
@settings_options(only=("http_port", "http_host"))
@click.option("--path", default="/readyz", show_default=True, help="The page to ask for.")
@click.option("--timeout", default=3.0, show_default=True, help="Seconds.")
def healthcheck(path: str, timeout: float, **flags: Any) -> int:
    """Ask the replica on this machine for its readiness: exit 0 when ready, 1 when not."""
    settings = load_settings(flags)
    connection = http.client.HTTPConnection(settings.http_host or "127.0.0.1", settings.http_port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        click.echo(answer.read().decode(errors="replace").strip())
    except (OSError, http.client.HTTPException) as error:
        click.echo(f"no answer at port {settings.http_port}: {error}", err=True)
        return 1
    finally:
        connection.close()
    return 0 if answer.status == http.client.OK else 1
