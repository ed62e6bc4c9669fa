"""`shardpool doctor`."""

from __future__ import annotations

from typing import Any

import click

from shardpool.cli.options import load_settings, settings_options
from shardpool.errors import ConfigurationError


@click.command()
@settings_options(
    only=("plan", "transport", "connect_seconds", "tls_cert", "tls_key", "tls_ca", "log_level", "log_format")
)
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def doctor(as_json: bool, **flags: Any) -> int:
    """Check a release from here: DNS and handshake of every rank, identity and rank against the plan, limits and devices of this host.

    Exits 0 when no check failed, 1 when one did.
    """
    settings = load_settings(flags)
    if not settings.plan:
        raise ConfigurationError(
            "no plan is given", hint="--plan FILE, from the release's ConfigMap or `shardpool plan --json`"
        )
    from shardpool.probe.doctor import examine
    from shardpool.probe.plan import read_plan

    report = examine(settings, read_plan(settings.plan))
    click.echo(report.as_json() if as_json else report.as_text())
    return 0 if report.ok else 1
