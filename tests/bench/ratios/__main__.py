"""`python -m ratios`: run the sections, print their table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from netns.machine import BenchError

from ratios import exchange, faults, idle, pull
from ratios.footprint import load_average
from ratios.replicas import Bench
from ratios.table import Row, Skipped, markdown, show

MIB = 1024 * 1024
SECTIONS = ("start", "pull", "shaped", "exchange", "faults", "footprint")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="ratios", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", default=SECTIONS, metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all by default"
    )
    parser.add_argument("--mebibytes", type=int, default=1024, help="size of the model that is pulled")
    parser.add_argument("--rounds", type=int, default=3, help="of what is repeated; medians are shown")
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--page", type=Path, help="also write the table to this Markdown page")
    parser.add_argument("--work", type=Path, help="for models and logs; by default in memory where there is room")
    options = parser.parse_args()
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(SECTIONS)}")
    if options.mebibytes < 16 or options.rounds < 1 or options.idle_seconds < 1:
        parser.error("take at least 16 MiB, 1 round, 1 idle second")
    return options


def rows(options: argparse.Namespace, bench: Bench) -> Iterator[Row | Skipped]:
    """Measure section after section."""
    size, rounds = options.mebibytes * MIB, options.rounds
    run: dict[str, Callable[[], Iterator[Row | Skipped]]] = {
        "start": lambda: idle.measure_start(bench, rounds),
        "pull": lambda: pull.measure(bench, size, rounds),
        "shaped": lambda: pull.measure_shaped(bench, size, rounds),
        "exchange": lambda: exchange.measure(bench, (1_000, 10_000, 100_000), rounds),
        "faults": lambda: faults.measure(bench, size // 2),
        "footprint": lambda: idle.measure(bench, size // 2, options.idle_seconds),
    }
    for name in options.sections:
        print(f"measuring: {name}", file=sys.stderr)
        try:
            yield from run[name]()
        except (BenchError, subprocess.SubprocessError, OSError) as error:  # the other sections are still worth having
            yield Skipped(name, str(error), failed=True)


def work_folder(options: argparse.Namespace) -> Path:
    """Where models lie: in memory if six copies fit, so that no disk is measured."""
    if options.work:
        return Path(options.work)
    memory = Path("/dev/shm")
    if memory.is_dir():
        room = os.statvfs(memory)
        if room.f_bavail * room.f_frsize > 6 * options.mebibytes * MIB:
            return memory
    return Path(tempfile.gettempdir())


def main() -> int:
    """Exit code 0: every target met; 3: some missed, the table says which; 1: a section failed."""
    options = arguments()
    signal.signal(signal.SIGTERM, _interrupt)
    machine = {
        "cores": os.cpu_count(),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "load_before": round(load_average(), 1),
    }
    try:
        with Bench(work_folder(options)) as bench:
            measured = list(rows(options, bench))
    except KeyboardInterrupt:
        print("bench: interrupted; what it had made is removed", file=sys.stderr)
        return 130
    about = f"{machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}, load before the run {machine['load_before']}"
    if options.json:
        print(json.dumps({"machine": machine, "rows": [row.as_dict() for row in measured if isinstance(row, Row)],
                          "not_measured": {row.section: row.why for row in measured if isinstance(row, Skipped)}}, indent=2))  # fmt: skip
    else:
        print(about)
        show(measured)
    if options.page:
        made_by = f'Made by `make bench BENCH_FLAGS="--page {options.page}"` on a machine with {about}.'
        options.page.write_text(f"# One replica's numbers\n\n{made_by}\n\n{markdown(measured)}\n")
    if any(isinstance(row, Skipped) and row.failed for row in measured):
        return 1
    return 3 if any(isinstance(row, Row) and row.met is False for row in measured) else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
