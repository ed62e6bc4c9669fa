"""What holds for every discovery back end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from shardpool.discovery import Discovery, Endpoint, Listing, Registration, make_discovery, resolving
from shardpool.errors import ConfigurationError
from shardpool.settings import Settings

NAME = "pool.ns.svc.cluster.local."
BACKENDS = {
    "headless": {"peers_pattern": "pool"},
    "k8s-service": {"metadata_backend": "k8s-service", "service_pattern": "pool:6555"},
    "static names": {"peers": "pool:{port}"},
    "static literals": {"peers": "10.0.0.1:{port},10.0.0.2"},
    "none": {},
}
ON_DNS = ["headless", "k8s-service", "static names"]
Make = Callable[[str], Discovery]


@pytest.fixture
def make(resolver):
    made: list[Discovery] = []

    def build(backend: str) -> Discovery:
        made.append(make_discovery(Settings(**BACKENDS[backend]), 0, resolver=resolver))
        return made[-1]

    yield build
    for discovery in made:
        discovery.close()


@pytest.mark.parametrize("backend", BACKENDS)
class TestEveryBackEnd:
    def test_listing_is_sorted_and_without_repetition(self, dns_server, make: Make, backend: str) -> None:
        dns_server.zone[NAME] = ["10.0.0.2", "10.0.0.1"]
        endpoints = make(backend).list().endpoints
        assert list(endpoints) == sorted(set(endpoints))
        assert {endpoint.port for endpoint in endpoints} <= {6555}

    def test_nobody_is_a_listing_and_not_an_error(self, make: Make, backend: str) -> None:
        listing = make(backend).list()
        assert bool(listing.endpoints) != bool(listing.problem)

    def test_watch_ends_without_a_change(self, dns_server, make: Make, backend: str) -> None:
        dns_server.zone[NAME] = ["10.0.0.1"]
        discovery = make(backend)
        assert discovery.watch(discovery.list(), 0.05) is None

    def test_watch_answers_at_once_when_the_listing_differs_already(self, dns_server, make: Make, backend: str) -> None:
        dns_server.zone[NAME] = ["10.0.0.1"]
        discovery = make(backend)
        stale = Listing((Endpoint("10.9.9.9", 1),))
        assert discovery.watch(stale, 30) == discovery.list()

    def test_close_ends_a_waiting_watch(self, dns_server, make: Make, backend: str) -> None:
        dns_server.zone[NAME] = ["10.0.0.1"]
        discovery = make(backend)
        known = discovery.list()
        answers: list[Listing | None] = []
        watcher = threading.Thread(target=lambda: answers.append(discovery.watch(known, 600)))
        watcher.start()
        discovery.close()
        watcher.join(30)
        assert not watcher.is_alive()
        assert answers == [None]

    def test_closed_back_end_lists_nobody(self, dns_server, make: Make, backend: str) -> None:
        dns_server.zone[NAME] = ["10.0.0.1"]
        discovery = make(backend)
        discovery.close()
        discovery.close()
        assert discovery.list() == Listing((), "discovery is closed")

    def test_own_registration_is_found_and_no_other(self, make: Make, backend: str) -> None:
        discovery = make(backend)
        own = Registration("0123456789abcdef", 0, "a" * 32, Endpoint("10.0.0.1", 6555))
        assert discovery.get(own.instance) is None
        discovery.register(own)
        discovery.set_ready(True)
        discovery.set_ready(False)
        assert discovery.get(own.instance) == own.endpoint
        assert discovery.get("b" * 32) is None


@pytest.mark.parametrize("backend", ON_DNS)
class TestBackEndsOnDns:
    @pytest.mark.parametrize("trouble", [None, [], "SERVFAIL"])
    def test_peers_are_picked_up_when_dns_comes_back(self, dns_server, make: Make, backend: str, trouble) -> None:
        dns_server.zone[NAME] = trouble
        discovery = make(backend)
        before = discovery.list()
        assert before.endpoints == ()
        assert before.problem
        dns_server.zone[NAME] = ["10.0.0.1"]
        after = discovery.watch(before, 60)
        assert after is not None
        assert [endpoint.target for endpoint in after.endpoints] == ["10.0.0.1:6555"]
        assert after.problem == ""

    def test_all_peers_replaced_while_somebody_watches(self, dns_server, make: Make, backend: str) -> None:
        dns_server.zone[NAME] = ["10.0.0.1", "10.0.0.2"]
        discovery = make(backend)
        before = discovery.list()
        dns_server.zone[NAME] = ["10.0.1.1", "fd00::1", "fd00::2"]
        after = discovery.watch(before, 60)
        assert after is not None
        assert {endpoint.host for endpoint in after.endpoints} == {"10.0.1.1", "fd00::1", "fd00::2"}

    def test_change_seen_by_one_caller_wakes_the_watching_ones(self, dns_server, make: Make, backend: str) -> None:
        dns_server.zone[NAME] = ["10.0.0.1"]
        discovery = make(backend)
        known = discovery.list()
        answers: list[Listing | None] = []
        watcher = threading.Thread(target=lambda: answers.append(discovery.watch(known, 600)))
        watcher.start()
        dns_server.zone[NAME] = ["10.0.0.2"]
        seen = discovery.list()
        watcher.join(60)
        assert answers == [seen]

    def test_what_was_known_is_kept_while_dns_is_broken_but_not_when_dns_says_no(
        self, dns_server, make: Make, backend: str
    ) -> None:
        dns_server.zone[NAME] = ["10.0.0.1"]
        discovery = make(backend)
        known = discovery.list()
        dns_server.everything = "SERVFAIL"
        broken = discovery.list()
        assert broken.endpoints == known.endpoints
        assert "SERVFAIL" in broken.problem
        dns_server.everything = ""
        del dns_server.zone[NAME]
        assert discovery.list().endpoints == ()

    def test_one_log_line_a_change_and_no_trace(self, dns_server, make: Make, backend: str, caplog) -> None:
        caplog.set_level("DEBUG", logger="shardpool")
        discovery = make(backend)
        for _ in range(3):
            discovery.list()
        dns_server.zone[NAME] = ["10.0.0.1"]
        for _ in range(3):
            discovery.list()
        assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
        assert "no peer yet: pool is not in DNS (NXDOMAIN)" in caplog.text
        assert "pool lists 1 address(es) (+1 -0)" in caplog.text
        assert "Traceback" not in caplog.text


def test_silent_dns_does_not_overrun_a_short_watch(dns_server, make: Make) -> None:
    dns_server.everything = "SILENCE"
    discovery = make("headless")
    assert discovery.watch(Listing(()), 0.2) is None


def test_slow_dns_is_waited_for_over_many_short_watches(dns_server, make: Make) -> None:
    dns_server.zone[NAME] = ["10.0.0.1"]
    dns_server.zone[NAME, "AAAA"] = "SILENCE"  # each lookup takes its second of patience
    discovery = make("headless")
    waits = (discovery.watch(Listing(()), 0.1) for _ in range(600))
    found = next((listing for listing in waits if listing is not None), None)
    assert found is not None
    assert [endpoint.host for endpoint in found.endpoints] == ["10.0.0.1"]


def test_nobody_is_asked_when_nobody_watches_any_more(dns_server, make: Make, monkeypatch) -> None:
    monkeypatch.setattr(resolving, "WANTED_SECONDS", 0.0)
    discovery = make("headless")
    before = {thread.name for thread in threading.enumerate()}
    discovery.watch(Listing(()), 0.05)
    for thread in threading.enumerate():
        if thread.name == "lookup":
            thread.join(30)
    assert {thread.name for thread in threading.enumerate()} <= before
    dns_server.zone[NAME] = ["10.0.0.1"]
    assert discovery.watch(discovery.list(), 0.05) is None


def test_one_dead_name_of_a_list_does_not_hide_the_others(dns_server, resolver) -> None:
    dns_server.zone["a.ns.svc.cluster.local."] = "SILENCE"
    dns_server.zone["b.ns.svc.cluster.local."] = ["10.0.0.2"]
    discovery = make_discovery(Settings(peers="a,b,10.0.0.3"), 0, resolver=resolver)
    listing = discovery.list()
    assert [endpoint.host for endpoint in listing.endpoints] == ["10.0.0.2", "10.0.0.3"]
    assert "a: no DNS server answers" in listing.problem


def test_address_of_a_plain_service_is_shared_and_those_of_pods_are_not(dns_server, make: Make) -> None:
    dns_server.zone[NAME] = ["10.96.0.1", "fd00::1"]
    assert {endpoint.shared for endpoint in make("k8s-service").list().endpoints} == {True}
    assert {endpoint.shared for endpoint in make("headless").list().endpoints} == {False}
    dns_server.zone[NAME] = ["10.0.0.1", "10.0.0.2"]
    assert {endpoint.shared for endpoint in make("k8s-service").list().endpoints} == {False}


@pytest.mark.parametrize(
    ("values", "rank", "targets"),
    [
        ({"peers_pattern": "p-{rank}", "layout": "striped", "world": 4}, 2, ["10.0.0.9:6557"]),
        ({"peers_pattern": "p-{rank}", "layout": "striped", "world": 4, "local_ranks": 2}, 2, ["10.0.0.9:6555"]),
        (
            {"service_pattern": "p-{rank}", "metadata_backend": "service", "layout": "striped", "world": 4},
            2,
            ["10.0.0.9:6557"],
        ),
        (
            {"peers": "p-{rank}:{port},1.1.1.1", "layout": "striped", "world": 4, "local_ranks": 2},
            2,
            ["1.1.1.1:6555", "10.0.0.9:6555"],
        ),
    ],
)
def test_ports_follow_the_topology(dns_server, resolver, values, rank: int, targets: list[str]) -> None:
    dns_server.zone["p-2.ns.svc.cluster.local."] = ["10.0.0.9"]
    listing = make_discovery(Settings(**values), rank, resolver=resolver).list()
    assert [endpoint.target for endpoint in listing.endpoints] == targets


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"discovery": "headless"}, "SHARDPOOL_PEERS_PATTERN"),
        ({"discovery": "static"}, "SHARDPOOL_PEERS"),
        ({"metadata_backend": "redis"}, "MX_METADATA_BACKEND='redis'"),
        ({"peers_pattern": "p-{pod}"}, "unknown placeholder {pod}"),
    ],
)
def test_settings_that_lead_nowhere_are_refused(values, words: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        make_discovery(Settings(**values), 0)
    assert words in str(refusal.value)
