"""The egress cap in a file, so that it can be changed while a pod serves (a mounted ConfigMap, or an editor)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from shardpool.errors import ConfigurationError
from shardpool.log import logger

LOG = logger(__name__)
LOOK_SECONDS = 1.0
LARGEST_MBPS = 1e7


def read_limit(path: Path) -> float:
    """The number in the file, in megabits a second; 0 is no cap. Raises ConfigurationError."""
    try:
        text = path.read_text().strip()
        limit = float(text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{path} holds no egress limit: {error}", hint="write one number, megabits a second"
        ) from error
    if not 0 <= limit <= LARGEST_MBPS:
        raise ConfigurationError(
            f"{path} holds {text}, not a limit between 0 and {LARGEST_MBPS:g}", hint="write megabits a second"
        )
    return limit


def follow_limit(path: Path, changed: Callable[[float], None], stop: threading.Event) -> None:
    """Call `changed` with the limit now and whenever it becomes another, until `stop`.

    A file that cannot be used leaves the cap as it is, with one warning each time that its content changes.
    """
    known: float | str | None = None
    while True:
        found: float | str
        try:
            found = read_limit(path)
        except ConfigurationError as error:
            found = str(error)
        if found != known:
            if isinstance(found, str):
                LOG.warning("%s", found)
            else:
                LOG.info("egress limit: %g megabits a second%s", found, "" if found else " (none)")
                changed(found)
            known = found
        if stop.wait(LOOK_SECONDS):
            return
