"""What replicas say of themselves: `status.py HOST:PORT...` prints a JSON list of the answers to GET /status, in that order."""

from __future__ import annotations

import http.client
import json
import sys
from typing import Any

SECONDS = 5.0


def status(address: str) -> Any:
    """The answer of one replica."""
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    try:
        connection.request("GET", "/status")
        return json.load(connection.getresponse())
    finally:
        connection.close()


if __name__ == "__main__":
    json.dump([status(address) for address in sys.argv[1:]], sys.stdout)
