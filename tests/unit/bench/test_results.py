"""Results of the bench on shaped links: how plays are grouped, and what the page says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from netns import limits
from netns.machine import BenchError
from netns.report import page
from netns.results import RESULTS, Results
from netns.targets import verdicts

SIZE = 1000 * 4096


def outcome(contender: str, receivers: int, seconds: Sequence[float], **other: Any) -> dict[str, Any]:
    return {
        "contender": contender,
        "start": "simultaneous",
        "receivers": receivers,
        "sources": 1,
        "fault": "",
        "seconds": list(seconds),
        "first_source_copies": 1.0,
        "most_sent_copies": 1.2,
        "sent_copies": float(receivers),
        "most_received_copies": 1.01,
        "busy_share": 0.3,
        "cpu_seconds": 1.0,
        "waiting_share": 0.1,
        "beside": 1,
        "details": {},
    } | other


def results(folder: Path, outcomes: Sequence[dict[str, Any]], **other: Any) -> Results:
    machine = {"cores": 2, "kernel": "6", "python": "3", "aria2": "1", "nginx": "1", "iperf3": "3"}
    network = {"rate_mbps": 32.0, "mtu": 9000, "queue_bytes": 262144, "congestion_control": "cubic"}
    control = {"before_mbps": [31.5], "after_mbps": [31.6], "valid": True}
    data = {"machine": machine, "network": network, "control": control, "outcomes": outcomes, "size": SIZE, "piece_bytes": 4096,
            "count": 5, "steady_count": 2, "bittorrent_count": 5, "staggered_count": 5, "lanes": 4} | other  # fmt: skip
    (folder / RESULTS).write_text(json.dumps(data))
    return Results(folder)


COPY = outcome("star", 1, [2.0])


def test_a_setting_is_shown_by_the_median_of_its_plays_slowest_receivers(tmp_path: Path) -> None:
    plays = [outcome("warm", 2, seconds) for seconds in ([1.0, 4.0], [3.0, 2.0], [2.5, 2.4])]
    found = results(tmp_path, [COPY, *plays, outcome("warm", 4, [9.0] * 4)])
    group = found.group("warm", "simultaneous", 2)
    assert group is not None
    assert found.copies(group) == (1.5, 1.25, 2.0)
    assert found.group("cold", "simultaneous", 2) is None


def test_the_tax_of_a_fault_is_the_time_beyond_the_same_play_without_one(tmp_path: Path) -> None:
    sound = outcome("warm", 1, [2.0], sources=2)
    killed = outcome("warm", 1, [2.5], sources=2, fault="killed")
    found = results(tmp_path, [COPY, sound, killed])
    assert [(fault, tax) for fault, _, tax in found.taxes("warm")] == [("killed", 0.5)]
    assert not list(found.taxes("star"))


def test_results_of_an_older_bench_are_refused(tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_text('{"outcomes": [], "size": 1, "network": {"rate_mbps": 1}}')
    with pytest.raises(BenchError, match="older bench"):
        Results(tmp_path)


def test_the_page_states_pieces_and_how_many_plays_were_made_at_once(tmp_path: Path) -> None:
    beside = [outcome("star", 2, [4.0, 4.0], beside=n, busy_share=share) for n, share in ((3, 0.4), (4, 0.7))]
    text = "\n".join(page(results(tmp_path, [COPY, *beside, outcome("warm", 4, [2.0] * 4, busy_share=1.0)]), []))
    assert "1000 pieces of 4 KiB" in text
    assert "2 of 4 plays" in text
    assert "at most 4 at once" in text
    assert "at most 70% busy" in text
    assert "too many at once" not in text


def test_the_page_warns_of_lanes_that_were_too_many(tmp_path: Path) -> None:
    text = "\n".join(page(results(tmp_path, [COPY, outcome("star", 2, [4.0], beside=2, busy_share=0.95)]), []))
    assert "too many at once" in text


def test_each_kind_of_start_has_its_tables(tmp_path: Path) -> None:
    text = "\n".join(page(results(tmp_path, [COPY, outcome("warm", 4, [3.0] * 4, start="staggered")]), []))
    assert "## Simultaneous start" in text
    assert "## Staggered start" in text
    assert "| 4 | 1.50 (1.50 to 1.50) |" in text


def test_a_cold_pool_is_measured_by_the_largest_upload_of_any_replica(tmp_path: Path) -> None:
    cold = outcome("cold", 16, [2.2] * 16, most_sent_copies=1.7, details={"storage_bytes": SIZE})
    rows = {row[0]: row[-1] for row in verdicts(results(tmp_path, [COPY, cold]))}
    assert rows == {
        "cold pool, 16 at once: time": "met",
        "cold pool, 16 at once: bytes read from storage": "met",
        "cold pool, 16 at once: the largest upload of a replica": "**missed**",
    }


@pytest.mark.parametrize(
    ("receivers", "star", "whole", "swarm"), [(1, 1, 1, 1.0), (2, 2, 2, 1.01), (7, 7, 3, 1.02), (16, 16, 5, 1.04)]
)
def test_limits(receivers: int, star: int, whole: int, swarm: float) -> None:
    assert limits.star_limit(receivers) == star
    assert limits.whole_limit(receivers) == whole
    assert limits.swarm_limit(receivers, 100) == pytest.approx(swarm)


def test_a_page_of_staggered_starts_alone_says_so_and_has_ratios_to_its_own_copy(tmp_path: Path) -> None:
    plays = [outcome("star", 1, [2.0], start="staggered"), outcome("warm", 4, [3.0] * 4, start="staggered")]
    found = results(tmp_path, plays, count=3, staggered_count=5)
    assert found.copy_seconds == 2.0
    text = "\n".join(page(found, [], guide="../swarm.md"))
    assert "results, staggered start only" in text
    assert "[swarm.md](../swarm.md)" in text
    assert "1.50 (1.50 to 1.50)" in text
    assert "Targets" not in text, "none is for staggered starts"


def test_a_page_of_both_starts_says_how_often_each_was_played(tmp_path: Path) -> None:
    plays = [COPY, outcome("warm", 4, [3.0] * 4), outcome("warm", 4, [3.0] * 4, start="staggered")]
    text = "\n".join(page(results(tmp_path, plays, count=5, steady_count=1, bittorrent_count=2, staggered_count=3), []))
    assert (
        "5 plays of each setting (1 of star and whole copies, whose times hardly differ; 2 of BitTorrent; 3 with a staggered start)"
        in text
    )
