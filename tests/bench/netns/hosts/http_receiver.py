"""Pull a model directory by plain HTTP from any of several sources, checking SHA-256 while it reads.

Arguments: one JSON file with `gate`, `mark` (paths), `staging`, `final` (directories), `files` (name -> [size, sha256]),
`sources` (HOST:PORT), `shuffle` (choose at random, else the first one that works), `stall_seconds`. A source that refuses, breaks
off or stalls is left for another one, which goes on at the same offset. Prints one JSON line: the bytes taken from each source.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import sys
import time
from collections import Counter
from typing import Any

BLOCK = 256 * 1024
PAUSE_SECONDS = (0.1, 0.3)  # between two rounds over all sources, chosen at random


class Pull:
    """One receiver's pull of all files."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.sources: list[str] = plan["sources"]
        self.taken: Counter[str] = Counter()
        self.block = memoryview(bytearray(BLOCK))

    def run(self) -> None:
        """Pull every file into `staging`, then show it as `final`."""
        os.makedirs(self.plan["staging"])
        for name, (size, sha256) in self.plan["files"].items():
            self.file(name, size, sha256)
        os.rename(self.plan["staging"], self.plan["final"])

    def file(self, name: str, size: int, sha256: str) -> None:
        """Pull one file, from as many sources as it takes."""
        hasher, offset = hashlib.sha256(), 0
        with open(os.path.join(self.plan["staging"], name), "wb", buffering=0) as file:
            while offset < size:
                before = offset
                for source in self.order():
                    offset = self.some(source, name, offset, size, file, hasher)
                    if offset == size:
                        break
                    self.sources.remove(source)  # to the end: it is asked again when the others have failed
                    self.sources.append(source)
                if offset == before:
                    time.sleep(random.uniform(*PAUSE_SECONDS))
        if hasher.hexdigest() != sha256:
            raise SystemExit(f"{name}: SHA-256 differs")

    def order(self) -> list[str]:
        """The sources in the order in which to try them."""
        return random.sample(self.sources, len(self.sources)) if self.plan["shuffle"] else list(self.sources)

    def some(self, source: str, name: str, offset: int, size: int, file: Any, hasher: Any) -> int:
        """Read from one source for as long as it sends; returns the new offset."""
        host, port = source.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=self.plan["stall_seconds"])
        try:
            connection.request("GET", f"/{name}", headers={"Range": f"bytes={offset}-"})
            answer = connection.getresponse()
            if answer.status not in (200, 206) or (answer.status == 200 and offset):
                return offset
            while offset < size:
                count = answer.readinto(self.block)
                if not count:
                    return offset
                hasher.update(self.block[:count])
                file.write(self.block[:count])
                offset += count
                self.taken[source] += count
        except (OSError, http.client.HTTPException):
            return offset
        finally:
            connection.close()
        return offset


def main() -> None:
    """Wait at the gate, pull, report."""
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    pull = Pull(plan)
    with open(plan["mark"], "w", encoding="ascii"):
        pass
    with open(plan["gate"], encoding="ascii") as gate:
        gate.readline()
    pull.run()
    print(json.dumps(pull.taken), flush=True)


if __name__ == "__main__":
    main()
