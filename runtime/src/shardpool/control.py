"""What a node and the processes of its ranks say to each other: JSON objects, one a line, over the rank's standard input and output."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import IO, Any

from shardpool.log import logger

LOG = logger(__name__)

# From the node
START = "start"  # rank, settings, staying
SNAPSHOT = "snapshot"  # id
SERVE = "serve"  # the directory is committed
FORGET = "forget"  # paths: their bytes are not what was published; do not count them as verified any more
LIMIT = "limit"  # mbps: the cap on what the rank sends, 0 is none
DRAIN = "drain"  # refuse new reads, finish the leased ones, leave

# From a rank
FILLING = "filling"  # port
COMPLETE = "complete"  # summary, sha256: every piece is verified
SERVING = "serving"
DAMAGED = "damaged"  # reason: served bytes changed under it
FAILED = "failed"  # error, text, exit_code


class Pipe:
    """One end of the conversation. `send` may be called from any thread; the other end going away is not an error here but ends `receive`."""

    def __init__(self, incoming: IO[str], outgoing: IO[str]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._lock = threading.Lock()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message; silently dropped when the other end has gone, whose end is noticed elsewhere."""
        line = json.dumps({"kind": kind, **fields}) + "\n"
        with self._lock:
            try:
                self._outgoing.write(line)
                self._outgoing.flush()
            except (BrokenPipeError, ValueError):
                LOG.debug("message %s not sent: the other end has gone", kind)

    def receive(self) -> Iterator[Mapping[str, Any]]:
        """Yield messages until the other end closes."""
        for line in self._incoming:
            try:
                message = json.loads(line)
            except json.JSONDecodeError:
                message = None
            if isinstance(message, dict) and isinstance(message.get("kind"), str):
                yield message
            else:  # a library printed to standard output
                LOG.warning("unexpected output of a rank: %s", line.rstrip()[:500])
