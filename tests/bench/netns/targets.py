"""What a pool is to reach, and whether it did in this run."""

from __future__ import annotations

from collections.abc import Iterator

from netns.contenders.base import STALL_SECONDS
from netns.results import Results

MANY = 16
POOLS = {"cold": "cold pool", "warm": "first replica complete"}
Row = tuple[str, str, str, str]


def verdicts(results: Results) -> Iterator[Row]:
    """Rows: what, what to reach, what was measured, `met` or `missed`. Only what the run has measured."""
    for name, title in POOLS.items():
        group = results.group(name, "simultaneous", MANY)
        if group is None:
            continue
        time = results.copies(group)[0]
        yield _row(f"{title}, {MANY} at once: time", 1.3, time, "copies' time")
        few = results.group(name, "simultaneous", 4)
        if few is not None:
            growth = time / results.copies(few)[0]
            yield _row(f"{title}: growth of the time from 4 to {MANY}", 1.15, growth, "times")
        storage = group.detail("storage_bytes")
        if storage is not None:
            yield _row(f"{title}, {MANY} at once: bytes read from storage", 1.05, storage / results.size, "copies")
            most = group.middle("most_sent_copies")
            yield _row(f"{title}, {MANY} at once: the largest upload of a replica", 1.5, most, "copies")
        else:
            yield _row(
                f"{title}, {MANY} at once: first replica's upload", 1.5, group.middle("first_source_copies"), "copies"
            )
    yield from _taxes(results)


def _taxes(results: Results) -> Iterator[Row]:
    sound = results.group("warm", "simultaneous", 1, 2)
    for fault, group, tax in results.taxes("warm"):
        if fault == "killed":
            yield _row("source killed half way: tax", 0.1 * results.copy_seconds + 1, tax, "s")
            assert sound is not None
            again = (group.middle("most_received_copies") - sound.middle("most_received_copies")) * results.size
            yield _row("source killed half way: received again", 1.0, again / results.piece_bytes, "pieces")
        elif fault in ("frozen", "black-holed"):
            yield _row(f"source {fault} half way: tax", STALL_SECONDS + 1, tax, "s")


def _row(what: str, reach: float, measured: float, unit: str) -> Row:
    return what, f"<= {reach:.3g} {unit}", f"{measured:.4g} {unit}", "met" if measured <= reach else "**missed**"
