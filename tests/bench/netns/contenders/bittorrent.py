"""aria2, with a tracker on the first source."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import netns.hosts
from netns.contenders.torrent import torrent
from netns.network import Host
from netns.stage import Process, Stage, python

PORT = 6881
TRACKER_PORT = 6969
TRACKER_SECONDS = 5  # between announces: receivers that were alone at first soon hear of the others
TRACKER = Path(netns.hosts.__file__).with_name("tracker.py")
OPTIONS = (
    "--no-conf",
    "--quiet=false",
    "--summary-interval=0",
    "--enable-dht=false",
    "--enable-dht6=false",
    "--bt-enable-lpd=false",
    "--enable-peer-exchange=true",
    "--seed-ratio=0",  # goes on serving when it is complete
    "--file-allocation=none",
    "--disk-cache=0",
    "--bt-max-peers=0",
    "--bt-request-peer-speed-limit=1000M",  # never content with the peers it has
    f"--bt-tracker-interval={TRACKER_SECONDS}",
    f"--listen-port={PORT}",
    "--console-log-level=notice",
)


class BitTorrent:
    """Every host runs aria2, which checks each piece's SHA-1; the sources hold the files and have checked them before the start."""

    name: ClassVar[str] = "bittorrent"
    title: ClassVar[str] = "BitTorrent (aria2)"

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def prepare(self) -> None:
        stage, payload = self.stage, self.stage.payload
        # Not on a source: one of them may be made to fail, and trackers are not what is measured.
        tracker = stage.services
        stage.spawn(tracker, [python(), "-S", str(TRACKER), tracker.address, str(TRACKER_PORT), str(TRACKER_SECONDS)],
                    "tracker")  # fmt: skip
        announce = f"http://{tracker.address}:{TRACKER_PORT}/announce"
        file = stage.folder / "model.torrent"
        file.write_bytes(torrent(payload.directory, payload.sizes, payload.piece_bytes, announce))
        for source in stage.sources:
            process = stage.spawn(
                source, [*self._aria2(source, payload.directory.parent), "--check-integrity=true", str(file)], "aria2"
            )
            stage.wait(partial(_seeds, process), "aria2 to seed")
        for host in stage.receivers:
            stage.spawn_gated(host, [*self._aria2(host, stage.home(host)), str(file)], "aria2")

    def _aria2(self, host: Host, folder: Path) -> list[str]:
        done = self._done(host)
        hook = self.stage.home(host) / "complete.sh"
        hook.write_text(f"#!/bin/sh\n: > {done}\n")
        hook.chmod(0o700)
        return ["aria2c", *OPTIONS, f"--dir={folder}", f"--on-bt-download-complete={hook}"]

    def _done(self, host: Host) -> Path:
        return self.stage.home(host) / "complete"

    def complete(self, host: Host) -> bool:
        return self._done(host).exists()

    def details(self) -> dict[str, Any]:
        return {}


def _seeds(process: Process) -> bool:
    said = process.tail()
    return "Verification finished successfully" in said and "listening on TCP" in said
