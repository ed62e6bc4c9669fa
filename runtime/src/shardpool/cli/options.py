"""Flags made from `Settings`, so that a setting is described once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import click

from shardpool.settings import Settings

Function = TypeVar("Function", bound=Callable[..., Any])
SECRETS = {"hub_token"}  # never a flag: command lines are visible to every process


def settings_options(*groups: str, only: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """Add a flag for each setting of the groups (or of those named in `only`) to a command."""

    def decorate(function: Function) -> Function:
        for entry in reversed(dataclasses.fields(Settings)):
            data = entry.metadata
            if entry.name in SECRETS or not (data["group"] in groups or entry.name in only):
                continue
            default = "" if entry.default in ("", None, False) else f" Default {entry.default}."
            function = click.option(
                "--" + entry.name.replace("_", "-"),
                entry.name,
                default=None,
                metavar="[" + "|".join(c for c in data["choices"] if c) + "]" if data["choices"] else "VALUE",
                help=f"{data['help']}{default} [{', '.join(data['names'])}]",
            )(function)
        return function

    return decorate


def load_settings(flags: dict[str, Any], **fixed: str) -> Settings:
    """Settings from the environment with a command's flags on top, logging set up by them."""
    from shardpool.log import set_up_logging

    settings = Settings.load(flags={**flags, **fixed})
    set_up_logging(settings.log_level, settings.log_format)
    return settings
