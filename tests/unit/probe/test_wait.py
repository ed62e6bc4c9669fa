"""Of a cold pool one pod goes first; the others are let go by a ready peer, or by time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpool.discovery.base import Endpoint, Listing
from shardpool.errors import ConfigurationError
from shardpool.probe.manifest import Answer, Published, ask
from shardpool.probe.wait import Waiter, WaitingServer, elected, replica_name
from shardpool.settings import Settings

DEADLINE = 90.0


class Listed:
    """A discovery that lists what the test says."""

    def __init__(self, *hosts: str, port: int = 6555, problem: str = "") -> None:
        self.hosts, self.port, self.problem = list(hosts), port, problem

    def list(self) -> Listing:
        return Listing(tuple(Endpoint(host, self.port) for host in sorted(self.hosts)), self.problem)


def _settings(host: str = "10.0.0.1", **more: Any) -> Settings:
    return Settings(worker_host=host, **{"wait_for_peers_seconds": 60.0, "pod_name": f"pod-{host}", **more})


def _waiter(answers: dict[str, Answer], listed: Listed, settings: Settings | None = None, ranks: int = 1) -> Waiter:
    return Waiter(
        settings or _settings(),
        [listed] * ranks,  # type: ignore[list-item]
        question=lambda endpoint, _: answers[endpoint.host],
        round_seconds=0.01,
        settle_seconds=0.05,
    )


READY = Answer(Published.YES, "published", "0" * 16)
LOADING = Answer(Published.UNREACHABLE, "no answer")


def _waiting(name: str) -> Answer:
    return Answer(Published.WAITING, "waits", replica=name)


def _name(*, before: str) -> str:
    """A replica's name that comes after another's in the order of election."""
    return next(name for name in map(str, range(1000)) if elected(before, [name]) and not elected(name, [before]))


def test_a_ready_peer_lets_the_pod_go() -> None:
    outcome = _waiter({"10.0.0.2": LOADING, "10.0.0.3": READY}, Listed("10.0.0.1", "10.0.0.2", "10.0.0.3")).run()
    assert outcome.kind == "ready"


def test_a_lone_pod_is_elected() -> None:
    assert _waiter({}, Listed("10.0.0.1")).run().kind == "elected"


def test_the_lowest_hash_goes_first_and_the_other_waits() -> None:
    other = _name(before="pod-10.0.0.1")
    listed = Listed("10.0.0.1", "10.0.0.2")
    assert _waiter({"10.0.0.2": _waiting(other)}, listed).run().kind == "elected"
    mine = _settings(pod_name=_name(before="pod-10.0.0.1"), wait_for_peers_seconds=0.5)
    assert _waiter({"10.0.0.2": _waiting("pod-10.0.0.1")}, listed, mine).run().kind == "time"


def test_a_pod_that_loads_already_is_waited_for() -> None:
    outcome = _waiter(
        {"10.0.0.2": LOADING}, Listed("10.0.0.1", "10.0.0.2"), _settings(wait_for_peers_seconds=0.5)
    ).run()
    assert (outcome.kind, "1 no answer" in outcome.reason) == ("time", True)


def test_an_engine_that_has_not_published_is_waited_for() -> None:
    answers = {"10.0.0.2": Answer(Published.NO, "not published yet")}
    outcome = _waiter(answers, Listed("10.0.0.1", "10.0.0.2"), _settings(wait_for_peers_seconds=0.5)).run()
    assert outcome.kind == "time"


def test_a_pod_that_dns_does_not_list_yet_is_not_elected() -> None:
    outcome = _waiter({}, Listed(problem="x is not in DNS"), _settings(wait_for_peers_seconds=0.3)).run()
    assert (outcome.kind, "x is not in DNS" in outcome.reason) == ("time", True)


def test_every_local_rank_needs_a_ready_peer() -> None:
    asked: list[int] = []

    class Second(Listed):
        def list(self) -> Listing:
            asked.append(1)
            return Listing(tuple(Endpoint(host, 6556) for host in self.hosts))

    settings = _settings(world=2, layout="sharded", wait_for_peers_seconds=0.3)
    waiter = Waiter(
        settings,
        [Listed("10.0.0.1", "10.0.0.2"), Second("10.0.0.1", "10.0.0.2")],  # type: ignore[list-item]
        question=lambda endpoint, _: READY if endpoint.port == 6555 else Answer(Published.NO, "not yet"),
        round_seconds=0.01,
        settle_seconds=0.05,
    )
    assert waiter.run().kind == "time"
    assert asked


def test_stopping_ends_the_wait() -> None:
    waiter = _waiter({"10.0.0.2": LOADING}, Listed("10.0.0.1", "10.0.0.2"), _settings(wait_for_peers_seconds=3600.0))
    waiter.stop()
    assert waiter.run().kind == "time"


@given(st.lists(st.text(alphabet="abc-0123456789", min_size=1, max_size=20), min_size=1, max_size=30, unique=True))
def test_of_any_replicas_exactly_one_goes_first(names: list[str]) -> None:
    assert sum(elected(name, [other for other in names if other != name]) for name in names) == 1


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"pod_name": "m-7d4f-abcde"}, "m-7d4f-abcde"),
        ({"pod_name": "m-rank-1-3", "world": 2, "local_ranks": 1, "first_rank": 1}, "3"),
        ({"pod_name": "m-rank-0-3", "world": 2, "local_ranks": 1, "first_rank": 0}, "3"),
        ({"pod_name": "m-2-0", "world": 4, "local_ranks": 2, "pod_index": 0}, "m-2"),
        ({"pod_name": "m-2-1", "world": 4, "local_ranks": 2, "pod_index": 1}, "m-2"),
        ({"pod_name": "", "worker_host": "10.1.2.3"}, "10.1.2.3"),
    ],
)
def test_pods_of_one_replica_have_one_name(settings: dict[str, Any], name: str) -> None:
    layout = "sharded" if "world" in settings else "whole"
    assert replica_name(Settings(layout=layout, **settings)) == name


def test_a_pod_without_an_address_is_told_so() -> None:
    with pytest.raises(ConfigurationError, match="POD_IP"):
        Waiter(Settings(), [])


def test_of_a_cold_pool_one_pod_goes_first_and_the_others_find_it_ready(
    worker: Callable[..., Any], free_ports: Callable[[int], int]
) -> None:
    port = free_ports(1)
    hosts = [f"127.0.0.{number}" for number in range(2, 7)]
    outcomes: dict[str, str] = {}

    def live(host: str) -> None:
        settings = Settings(
            worker_host=host, bind_host=host, worker_grpc_port=port, pod_name=host, wait_for_peers_seconds=DEADLINE
        )
        server = WaitingServer(settings)
        try:
            listed = Listed(*hosts, port=port)
            outcome = Waiter(settings, [listed], round_seconds=0.1, settle_seconds=0.5).run()  # type: ignore[list-item]
        finally:
            server.close()
        if outcome.kind == "elected":
            worker(host, port, 0).publish()
        outcomes[host] = outcome.kind

    threads = [threading.Thread(target=live, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * DEADLINE)
    assert sorted(outcomes.values()) == ["elected", "ready", "ready", "ready", "ready"]


def test_a_waiting_pod_looks_unpublished_to_modelexpress_and_waiting_to_us(free_ports: Callable[[int], int]) -> None:
    port = free_ports(1)
    server = WaitingServer(
        Settings(bind_host="127.0.0.1", worker_grpc_port=port, pod_name="pod-a", worker_host="10.0.0.1")
    )
    try:
        answer = ask(Endpoint("127.0.0.1", port), 30.0)
        assert (answer.state, answer.replica) == (Published.WAITING, "pod-a")
        with pytest.raises(ConfigurationError, match="cannot be bound"):
            WaitingServer(Settings(bind_host="127.0.0.1", worker_grpc_port=port))
    finally:
        server.close()
    assert ask(Endpoint("127.0.0.1", port), 30.0).state is Published.UNREACHABLE
