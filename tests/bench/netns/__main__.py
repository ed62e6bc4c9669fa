"""`python -m netns`: run the bench, or write its pages anew from the results of the last run."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from flag_lists import names, numbers
from plotting import PlotError

from netns.contenders import CONTENDERS
from netns.machine import BenchError
from netns.plan import STARTS, Plan
from netns.play import FAULTS
from netns.report import DOCUMENTS, write


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def arguments(line: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, of this process by default."""
    parser = argparse.ArgumentParser(prog="netns", description=__doc__)
    parser.add_argument("--receivers", type=numbers, default=(1, 2, 4, 8, 16), help="how many, comma-separated")
    parser.add_argument("--starts", type=names(STARTS), default=STARTS, help=", ".join(STARTS))
    parser.add_argument("--contenders", type=names(CONTENDERS), default=tuple(CONTENDERS), help=", ".join(CONTENDERS))
    parser.add_argument(
        "--faults",
        type=names([*FAULTS, "none"]),
        default=tuple(FAULTS),
        help=", ".join(FAULTS) + "; none for no failure tax",
    )
    parser.add_argument("--count", type=_positive, default=5, help="plays of each; the tables show medians")
    parser.add_argument("--steady-count", type=int, default=2, help="at most so many of star and whole copies")
    parser.add_argument("--bittorrent-count", type=int, default=5, help="at most so many of BitTorrent")
    parser.add_argument("--staggered-count", type=int, default=5, help="at most so many with a staggered start")
    parser.add_argument(
        "--lanes",
        type=_positive,
        default=4,
        help="plays at once of those that leave the processors nearly idle; 1: every play alone",
    )
    parser.add_argument("--rate", type=float, default=32.0, help="megabits a second of each link, each way")
    parser.add_argument("--size", type=int, default=64, help="MiB of the model")
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm"), help="for models and logs; memory, so that no disk is measured"
    )
    parser.add_argument("--output", type=Path, default=DOCUMENTS, help="folder of swarm.json, its tables and plots")
    parser.add_argument("--time-limit", type=float, default=4 * 3600, help="seconds for the whole run")
    parser.add_argument("--keep-logs", type=Path, help="folder to which the processes' logs are copied")
    parser.add_argument("--report-only", action="store_true", help="tables and plots from the swarm.json that is there")
    options = parser.parse_args(line)
    options.faults = tuple(fault for fault in options.faults if fault != "none")
    return options


def main() -> int:
    """Exit code 0: measured and valid; 1: could not measure; 3: measured, but the control says that it is invalid."""
    options = arguments()
    for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT too: a shell's background job is started with it ignored
        signal.signal(number, _interrupt)
    try:
        if not options.report_only:
            from netns.run import run

            run(
                Plan(
                    receivers=options.receivers,
                    starts=options.starts,
                    contenders=options.contenders,
                    faults=options.faults,
                    count=options.count,
                    steady_count=options.steady_count,
                    bittorrent_count=options.bittorrent_count,
                    staggered_count=options.staggered_count,
                    lanes=options.lanes,
                    rate=options.rate,
                    size=options.size << 20,
                    work=options.work,
                    output=options.output,
                    time_limit=options.time_limit,
                    keep_logs=options.keep_logs,
                )
            )
        return 0 if write(options.output) else 3
    except (BenchError, PlotError) as error:
        print(f"bench-swarm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench-swarm: interrupted; what it had made is removed", file=sys.stderr)
        return 130


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)  # a second one would break off the tidying up
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
