"""Lookups against a DNS server on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardpool.discovery.dns import Resolver

SHORT = "model-peers.ns.svc.cluster.local."


def test_both_kinds_of_record_are_listed(dns_server, resolver) -> None:
    dns_server.zone[SHORT] = ["10.0.0.2", "10.0.0.1", "fd00::1"]
    answer = resolver.lookup("model-peers")
    assert (answer.addresses, answer.problem, answer.definite) == (("10.0.0.1", "10.0.0.2", "fd00::1"), "", True)


@pytest.mark.parametrize("host", ["model-peers", "model-peers.ns", "model-peers.ns.svc", SHORT[:-1], SHORT])
def test_search_domains_complete_every_usual_form_of_the_name(dns_server, resolver, host: str) -> None:
    dns_server.zone[SHORT] = ["10.0.0.1"]
    assert resolver.lookup(host).addresses == ("10.0.0.1",)


def test_name_with_enough_dots_is_asked_as_it_is_first(dns_server, resolver, tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\nsearch a.example\noptions ndots:2\n")
    dns_server.zone["x.y.z."] = ["10.0.0.1"]
    assert resolver.lookup("x.y.z").addresses == ("10.0.0.1",)
    assert dns_server.asked["x.y.z.a.example.", "A"] == 0


def test_the_candidate_that_worked_is_asked_first_the_next_time(dns_server, resolver) -> None:
    dns_server.zone[SHORT] = ["10.0.0.1"]
    for _ in range(3):
        assert resolver.lookup(SHORT[:-1]).addresses == ("10.0.0.1",)
    assert dns_server.asked[SHORT + "ns.svc.cluster.local.", "A"] == 1


def test_missing_name_is_a_definite_answer(dns_server, resolver) -> None:
    answer = resolver.lookup("nobody")
    assert answer.addresses == ()
    assert answer.definite
    assert "nobody is not in DNS (NXDOMAIN)" in answer.problem
    assert dns_server.asked["nobody.", "A"] == 1


def test_name_without_addresses_is_a_definite_answer(dns_server, resolver) -> None:
    dns_server.zone[SHORT] = []
    answer = resolver.lookup("model-peers")
    assert (answer.addresses, answer.definite) == ((), True)
    assert answer.problem == "model-peers has no address in DNS"


def test_server_failure_is_not_a_definite_answer(dns_server, resolver) -> None:
    dns_server.everything = "SERVFAIL"
    answer = resolver.lookup("model-peers")
    assert (answer.addresses, answer.definite) == ((), False)
    assert answer.problem == "model-peers: DNS answers SERVFAIL"


def test_failure_for_one_search_domain_does_not_hide_another(dns_server, resolver) -> None:
    dns_server.zone[SHORT[:-1] + ".ns.svc.cluster.local."] = "SERVFAIL"
    dns_server.zone[SHORT] = ["10.0.0.1"]
    assert resolver.lookup(SHORT[:-1]).addresses == ("10.0.0.1",)


def test_silence_ends_by_the_deadline_that_was_given(dns_server, resolver) -> None:
    dns_server.everything = "SILENCE"
    answer = resolver.lookup("model-peers", seconds=0.3)
    assert (answer.addresses, answer.definite) == ((), False)
    assert answer.problem.startswith("model-peers: no DNS server answers")


def test_addresses_are_used_though_questions_for_the_other_kind_are_ignored(dns_server, resolver) -> None:
    dns_server.zone[SHORT] = ["10.0.0.1"]
    dns_server.zone[SHORT, "AAAA"] = "SILENCE"
    answer = resolver.lookup("model-peers")
    assert answer.addresses == ("10.0.0.1",)
    assert "only some records could be read" in answer.problem


def test_long_answer_comes_over_tcp(dns_server, resolver) -> None:
    pods = [f"10.0.{i // 256}.{i % 256}" for i in range(1000)]
    dns_server.zone[SHORT] = pods
    assert set(resolver.lookup("model-peers", seconds=30).addresses) == set(pods)
    assert dns_server.by_tcp == 1


def test_nothing_is_cached_whatever_the_ttl_says(dns_server, resolver) -> None:
    dns_server.zone[SHORT] = ["10.0.0.1"]
    assert resolver.lookup("model-peers").addresses == ("10.0.0.1",)
    dns_server.zone[SHORT] = ["10.0.0.2"]
    assert resolver.lookup("model-peers").addresses == ("10.0.0.2",)


@pytest.mark.parametrize("literal", ["10.1.2.3", "fd00::5", "::1"])
def test_literals_are_not_asked_for(dns_server, resolver, literal: str) -> None:
    assert resolver.lookup(literal).addresses == (literal,)
    assert not dns_server.asked


def test_hosts_file_is_read(dns_server, resolver) -> None:
    assert resolver.lookup("localhost").addresses == ("127.0.0.1", "::1")
    assert resolver.lookup("ALIAS.example.").addresses == ("10.9.9.9",)
    assert not dns_server.asked


def test_changed_resolver_configuration_is_read_again(dns_server, resolver, tmp_path: Path) -> None:
    dns_server.zone["model-peers.other.example."] = ["10.0.0.7"]
    assert resolver.lookup("model-peers").addresses == ()
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\nsearch other.example\n")
    assert resolver.lookup("model-peers").addresses == ("10.0.0.7",)


@pytest.mark.parametrize("content", [None, "", "search only.example\n", "nameserver not-an-address\n"])
def test_unusable_resolver_configuration_is_a_problem_with_its_path(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "broken.conf"
    if content is not None:
        path.write_text(content)
    answer = Resolver(path, tmp_path / "no-hosts").lookup("model-peers")
    assert (answer.addresses, answer.definite) == ((), False)
    assert str(path) in answer.problem


def test_nothing_listening_on_the_dns_port_is_a_problem(dns_server, resolver) -> None:
    dns_server.close()
    answer = resolver.lookup("model-peers")
    assert (answer.addresses, answer.definite) == ((), False)
    assert answer.problem
