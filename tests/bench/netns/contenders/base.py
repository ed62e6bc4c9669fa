"""What the bench asks of every contender."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from netns.network import Host
from netns.stage import Stage

STALL_SECONDS = 10.0  # after which every contender that can be told gives up a source; shardpool's default


class Contender(Protocol):
    """One way to bring the copy of `stage.sources` to `stage.receivers`.

    A receiver's copy is complete, and verified by the contender's own means, when `complete` says so.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, stage: Stage) -> None: ...

    def prepare(self) -> None:
        """Make every source hold and offer a copy, and start every receiver, which comes to its gate."""

    def complete(self, host: Host) -> bool:
        """Whether a receiver has its copy, every byte of it checked. Cheap: asked a hundred times a second."""

    def details(self) -> dict[str, Any]:
        """What the contender itself says of the run, for the JSON results; asked at the end."""
