"""Transfers over real NIXL between processes, whole and broken."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

MIB = 1024 * 1024
TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
SHARED_MEMORY = {"UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "lo"}
BY_DEFAULT: dict[str, str] = {}


def _file(folder: Path, name: str, size: int, seed: int = 1) -> Path:
    path = folder / name
    path.write_bytes(random.Random(seed).randbytes(size))
    return path


def _open(receiver: Any, offer: dict[str, Any], piece_size: int, name: str = "a", **more: Any) -> dict[str, Any]:
    receiver.order(do="open", name=name, offer=offer, piece_size=piece_size, **more)
    event = receiver.expect("opened", "refused")
    assert isinstance(event, dict)
    return event


def _digest(receiver: Any, piece: int) -> str:
    receiver.order(do="digest", piece=piece)
    return str(receiver.expect("digest")["digest"])


@pytest.mark.parametrize("environment", [TCP, SHARED_MEMORY, BY_DEFAULT], ids=["tcp", "shared memory", "by default"])
def test_pieces_of_several_files_land_as_they_are(
    tmp_path: Path, start: Callable[..., Any], environment: dict[str, str]
) -> None:
    sizes = (3 * MIB + 5, 1, 4096, 7 * MIB + 4091)
    files = [_file(tmp_path, f"{n}", size, n) for n, size in enumerate(sizes)]
    shard = b"".join(file.read_bytes() for file in files)
    source, receiver = start("source", *files, **environment), start("receiver", **environment)
    assert _open(receiver, source.expect("offer"), 4 * MIB)["event"] == "opened"
    for piece in range(3):
        length = len(shard[piece * 4 * MIB : (piece + 1) * 4 * MIB])
        receiver.order(do="request", name="a", piece=piece, spans=[1, 2 * MIB + 3, length - 2 * MIB - 4])
    assert {receiver.expect("landed")["piece"] for _ in range(3)} == {0, 1, 2}
    for piece in range(3):
        expected = shard[piece * 4 * MIB : (piece + 1) * 4 * MIB]
        assert _digest(receiver, piece) == blake3(expected).hexdigest()
        told = [
            event["received"] for event in receiver.seen if event["event"] == "progress" and event["piece"] == piece
        ]
        assert told[-1] == len(expected), "progress adds up to the piece"
    assert receiver.finish() == 0
    assert receiver.expect("ended")["threads"] == ["MainThread"]
    assert source.finish() == 0


def test_a_killed_source_fails_what_was_asked_of_it(tmp_path: Path, start: Callable[..., Any]) -> None:
    file = _file(tmp_path, "f", 64 * MIB)
    source, receiver = start("source", file, **TCP), start("receiver", **TCP)
    _open(receiver, source.expect("offer"), 16 * MIB, rate_limit=8 * MIB)
    for piece in range(4):
        receiver.order(do="request", name="a", piece=piece, spans=[16 * MIB])
    receiver.expect("progress")
    source.signal(signal.SIGKILL)
    failed = [receiver.expect("failed") for _ in range(4)]
    assert {event["piece"] for event in failed} == {0, 1, 2, 3}
    assert {event["error"] for event in failed} == {"PeerUnreachableError"}
    assert receiver.expect("broken")["error"] == "PeerUnreachableError"
    receiver.order(do="request", name="a", piece=0, spans=[16 * MIB])
    assert receiver.expect("failed")["piece"] == 0, "a broken reader settles further requests"
    assert receiver.finish() == 0


def test_pieces_of_a_stopped_source_can_be_given_up_and_are_not_written_any_more(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    file = _file(tmp_path, "f", 64 * MIB)
    source, receiver = start("source", file, **TCP), start("receiver", **TCP)
    _open(receiver, source.expect("offer"), 16 * MIB)
    receiver.order(do="request", name="a", piece=0, spans=[16 * MIB])
    receiver.expect("landed")
    source.signal(signal.SIGSTOP)
    receiver.order(do="request", name="a", piece=1, spans=[16 * MIB])
    receiver.order(do="request", name="a", piece=2, spans=[16 * MIB])
    receiver.order(do="wait until under way", name="a")
    receiver.expect("under way")
    receiver.order(do="abandon", name="a", piece=1)
    events = [receiver.expect("failed") for _ in range(2)]
    assert {(event["piece"], event["error"]) for event in events} == {(1, "AbandonedError"), (2, "TransportError")}
    receiver.expect("broken")
    before = [_digest(receiver, piece) for piece in (1, 2)]
    source.signal(signal.SIGCONT)
    # The source is at work again: a fresh process reads from it, or it has died of the connection that is gone (UCX does that).
    other = start("receiver", **TCP)
    _open(other, source.seen[0], 16 * MIB)
    assert [_digest(receiver, piece) for piece in (1, 2)] == before
    assert receiver.finish() == 0


def test_a_piece_given_up_in_good_health_costs_the_other_pieces_nothing(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    file = _file(tmp_path, "f", 32 * MIB)
    source, receiver = start("source", file, **TCP), start("receiver", **TCP)
    _open(receiver, source.expect("offer"), 16 * MIB, rate_limit=32 * MIB)
    receiver.order(do="request", name="a", piece=0, spans=[16 * MIB])
    receiver.order(do="request", name="a", piece=1, spans=[16 * MIB])
    receiver.order(do="abandon", name="a", piece=0)
    event = receiver.expect("failed")
    assert (event["piece"], event["error"]) == (0, "AbandonedError")
    assert receiver.expect("landed", "broken") == {"event": "landed", "piece": 1}
    assert _digest(receiver, 1) == blake3(file.read_bytes()[16 * MIB :]).hexdigest()


def test_closing_settles_what_is_under_way(tmp_path: Path, start: Callable[..., Any]) -> None:
    file = _file(tmp_path, "f", 32 * MIB)
    source, receiver = start("source", file, **TCP), start("receiver", **TCP)
    _open(receiver, source.expect("offer"), 16 * MIB, rate_limit=MIB)
    receiver.order(do="request", name="a", piece=0, spans=[16 * MIB])
    receiver.order(do="close", name="a")
    event = receiver.expect("failed")
    assert (event["piece"], event["error"]) == (0, "AbandonedError")
    receiver.expect("closed")
    receiver.order(do="request", name="a", piece=1, spans=[16 * MIB])
    assert receiver.expect("failed")["error"] == "AbandonedError"
    assert not [event for event in receiver.seen if event["event"] == "broken"]
    assert receiver.finish() == 0


def test_a_restarted_source_is_not_read_under_its_predecessors_lease(tmp_path: Path, start: Callable[..., Any]) -> None:
    old = start("source", _file(tmp_path, "old", MIB, 1), **TCP)
    granted = old.expect("offer")
    old.signal(signal.SIGKILL)
    old.child.wait()
    fresh = start("source", _file(tmp_path, "new", MIB, 2), **TCP).expect("offer")
    receiver = start("receiver", **TCP)
    # On the same address and port, old metadata leads to the new process without an error. (Ports stay busy for a minute here,
    # so the new metadata stands in for what the old would reach.)
    event = _open(receiver, {**fresh, "instance": granted["instance"]}, MIB)
    assert (event["event"], event.get("error")) == ("refused", "LeaseError"), event
    assert fresh["instance"] in event["text"]
    assert receiver.finish() == 0


def test_a_source_that_left_is_unreachable(tmp_path: Path, start: Callable[..., Any]) -> None:
    source, receiver = start("source", _file(tmp_path, "f", MIB), **TCP), start("receiver", **TCP)
    offer = source.expect("offer")
    source.signal(signal.SIGKILL)
    source.child.wait()
    event = _open(receiver, offer, MIB)
    assert event["event"] == "refused"
    assert event["error"] in {"TransportError", "PeerUnreachableError"}
    assert receiver.finish() == 0


@pytest.mark.parametrize(
    "regions",
    [
        [[0, MIB, 2**64 - 4096]],
        [[0, MIB, 0]],
        [[0, 2 * MIB, 4096]],
        [[MIB // 2, MIB // 2, 4096], [0, MIB // 2, 8192]],
    ],
    ids=["past the end of memory", "no address", "past the shard", "out of order"],
)
def test_an_offer_that_makes_no_sense_is_refused(
    tmp_path: Path, start: Callable[..., Any], regions: list[list[int]]
) -> None:
    source, receiver = start("source", _file(tmp_path, "f", MIB), **TCP), start("receiver", **TCP)
    event = _open(receiver, {**source.expect("offer"), "regions": regions}, MIB)
    assert (event["event"], event["error"]) == ("refused", "TransportError")
    assert "makes no sense" in event["text"]


def test_a_region_that_the_source_did_not_register_is_not_read(tmp_path: Path, start: Callable[..., Any]) -> None:
    source, receiver = start("source", _file(tmp_path, "f", MIB), **TCP), start("receiver", **TCP)
    offer = source.expect("offer")
    start_at, length, address = offer["regions"][0]
    _open(receiver, {**offer, "regions": [[start_at, length, address + MIB]]}, MIB)
    receiver.order(do="request", name="a", piece=0, spans=[MIB])
    assert receiver.expect("failed", "landed")["event"] == "failed"


def test_a_piece_that_the_offer_does_not_cover_fails_alone(tmp_path: Path, start: Callable[..., Any]) -> None:
    file = _file(tmp_path, "f", 2 * MIB)
    source, receiver = start("source", file, **TCP), start("receiver", **TCP)
    offer = source.expect("offer")
    start_at, _, address = offer["regions"][0]
    _open(receiver, {**offer, "regions": [[start_at, MIB, address]]}, MIB)
    receiver.order(do="request", name="a", piece=1, spans=[MIB])
    assert "does not cover" in receiver.expect("failed")["text"]
    receiver.order(do="request", name="a", piece=0, spans=[MIB])
    assert receiver.expect("landed", "broken")["event"] == "landed"
    assert _digest(receiver, 0) == blake3(file.read_bytes()[:MIB]).hexdigest()


def test_one_receiver_reads_from_several_sources(tmp_path: Path, start: Callable[..., Any]) -> None:
    files = [_file(tmp_path, str(n), 4 * MIB, n) for n in range(2)]
    receiver = start("receiver", **TCP)
    for number, file in enumerate(files):
        _open(receiver, start("source", file, **TCP).expect("offer"), 2 * MIB, name=str(number))
        receiver.order(do="request", name=str(number), piece=number, spans=[2 * MIB])
    for _ in files:
        receiver.expect("landed")
    for number, file in enumerate(files):
        data = file.read_bytes()
        assert _digest(receiver, number) == blake3(data[number * 2 * MIB :][: 2 * MIB]).hexdigest()
    assert receiver.finish() == 0
