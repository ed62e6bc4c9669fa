"""Processor time of the bench's processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from netns.network import Host
from netns.stage import Process

LOAD = 0.2
BURN = f"import time\nwhile time.process_time() < {LOAD}: pass"


def test_a_process_that_has_ended_tells_its_own_time_and_that_of_those_it_waited_for(tmp_path: Path) -> None:
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])\n{BURN}"
    popen = subprocess.Popen([sys.executable, "-S", "-c", program])
    process = Process(Host(0, "none", "192.0.2.1", "port0"), popen, tmp_path / "log")
    assert process.wait() == 0
    assert process.seconds > 1.5 * LOAD
    assert process.code == 0
