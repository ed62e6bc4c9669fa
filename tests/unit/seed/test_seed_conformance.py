"""What holds for every seed, and for every seed across a network."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardpool.errors import SeedError
from shardpool.seed import hub, ranged, s3

BIG = "model-00001-of-00001.safetensors"
NETWORK = ["hub", "hub with CDN and token", "s3"]
LOCAL = [
    "plain directory",
    "cache, relative links",
    "cache, absolute links",
    "snapshot of a cache",
    "moved cache, absolute links",
]


def read(seed, path: str, offset: int, length: int) -> bytes:
    content = bytearray(length)
    seed.read_into(path, offset, memoryview(content))
    return bytes(content)


@pytest.mark.parametrize("kind", LOCAL + NETWORK)
class TestEverySeed:
    def test_files_are_those_of_the_model_sorted_with_their_sizes(self, open_seed, tree, kind: str) -> None:
        seed, _ = open_seed(kind)
        listed = [(file.path, file.size) for file in seed.files()]
        assert listed == sorted((path, len(content)) for path, content in tree.items())
        assert list(seed.files()) == list(seed.files())

    def test_every_file_reads_back_byte_for_byte(self, open_seed, tree, kind: str) -> None:
        seed, _ = open_seed(kind)
        assert {file.path: read(seed, file.path, 0, file.size) for file in seed.files()} == tree

    @pytest.mark.parametrize(
        ("offset", "length"), [(0, 1), (1, 0), (12345, 67890), (3_000_000, 1), (3_000_001, 0), (999, 2_000_000)]
    )
    def test_any_range_of_a_file_reads_back(self, open_seed, tree, kind: str, offset: int, length: int) -> None:
        seed, _ = open_seed(kind)
        assert read(seed, BIG, offset, length) == tree[BIG][offset : offset + length]

    def test_many_threads_read_at_once(self, open_seed, tree, kind: str) -> None:
        seed, _ = open_seed(kind)
        ranges = [(start, 50_000) for start in range(0, 2_900_000, 97_003)]
        with ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(lambda part: read(seed, BIG, *part), ranges))
        assert parts == [tree[BIG][start : start + length] for start, length in ranges]

    @pytest.mark.parametrize(("offset", "length"), [(3_000_000, 2), (3_000_002, 1), (-1, 1)])
    def test_range_outside_the_file_is_refused(self, open_seed, kind: str, offset: int, length: int) -> None:
        seed, _ = open_seed(kind)
        with pytest.raises(SeedError, match="outside its 3000001"):
            read(seed, BIG, offset, length)

    @pytest.mark.parametrize("path", ["nobody.txt", "../config.json", "/etc/passwd", "sub", "", "sub/../config.json"])
    def test_file_that_is_not_listed_is_refused(self, open_seed, kind: str, path: str) -> None:
        seed, _ = open_seed(kind)
        with pytest.raises(SeedError, match="is not a"):
            read(seed, path, 0, 1)

    def test_description_has_no_secret(self, open_seed, kind: str) -> None:
        seed, _ = open_seed(kind)
        assert seed.describe()
        assert "sesame" not in seed.describe()
        assert "very-secret" not in seed.describe()

    def test_closed_seed_reads_no_more(self, open_seed, kind: str) -> None:
        seed, _ = open_seed(kind)
        seed.files()
        seed.close()
        seed.close()
        with pytest.raises(SeedError, match="the seed was closed"):
            read(seed, BIG, 0, 1000)

    def test_published_digest_is_the_one_of_the_bytes(self, open_seed, tree, kind: str) -> None:
        seed, _ = open_seed(kind)
        known = {file.path: file.sha256 for file in seed.files() if file.sha256}
        assert known == {path: hashlib.sha256(tree[path]).hexdigest() for path in known}
        assert (BIG in known) == (kind != "plain directory")


@pytest.mark.parametrize("kind", NETWORK)
class TestSeedAcrossANetwork:
    @pytest.fixture
    def remote(self, open_seed, kind: str, hasty):
        seed, remote = open_seed(kind)
        seed.files()
        return seed, remote

    @pytest.mark.parametrize("status", [500, 502, 503, 429])
    def test_passing_failure_is_got_over(self, remote, tree, status: int) -> None:
        seed, server = remote
        server.fault({"match": BIG, "status": status, "code": "SlowDown", "times": 2})
        assert read(seed, BIG, 5, 100_000) == tree[BIG][5:100_005]

    def test_lasting_failure_ends_as_transient_error(self, remote) -> None:
        seed, server = remote
        server.fault({"match": BIG, "status": 503, "code": "ServiceUnavailable"})
        with pytest.raises(SeedError, match=r"503|ServiceUnavailable") as failure:
            read(seed, BIG, 0, 1000)
        assert failure.value.transient

    def test_broken_response_is_gone_on_with_where_it_broke(self, remote, tree) -> None:
        seed, server = remote
        server.fault(
            {"match": BIG, "short": 400_000, "times": 3, "at": "hub"},
            {"match": BIG, "short": 400_000, "times": 3, "at": "cdn"},
        )
        before = server.bytes if hasattr(server, "bytes") else server.stats()["bytes"]
        assert read(seed, BIG, 0, 2_000_000) == tree[BIG][:2_000_000]
        after = server.bytes if hasattr(server, "bytes") else server.stats()["bytes"]
        assert after - before <= 2_000_000 + 3 * 400_000

    def test_responses_that_always_break_end_as_transient_error(self, remote) -> None:
        seed, server = remote
        server.fault({"match": BIG, "short": 0})
        with pytest.raises(SeedError) as failure:
            read(seed, BIG, 0, 1000)
        assert failure.value.transient

    def test_connections_are_used_again(self, remote) -> None:
        seed, server = remote
        read(seed, BIG, 0, 10)
        count = (
            (lambda: server.connections) if hasattr(server, "connections") else (lambda: server.stats()["connections"])
        )
        before = count()
        for start in range(20):
            read(seed, BIG, start * 1000, 5000)
        assert count() - before <= 1  # of the question itself

    def test_close_cuts_a_hanging_read_off(self, open_seed, kind: str, tree, monkeypatch) -> None:
        for module in (ranged, s3):
            monkeypatch.setattr(module, "READ_SECONDS", 600)
        seed, server = open_seed(kind)
        seed.files()
        read(seed, BIG, 0, 10)  # the CDN's address is known now
        server.fault({"match": BIG, "short": 2 << 20, "stall": True})
        content = bytearray(2_500_000)
        failures: list[Exception] = []

        def hang() -> None:
            try:
                seed.read_into(BIG, 0, memoryview(content))
            except SeedError as error:
                failures.append(error)

        reader = threading.Thread(target=hang)
        reader.start()
        until = time.monotonic() + 60
        while content[1 << 20] != tree[BIG][1 << 20] and time.monotonic() < until:
            reader.join(0.01)
        seed.close()
        reader.join(60)
        assert not reader.is_alive()
        assert len(failures) == 1


@pytest.mark.parametrize("kind", NETWORK)
def test_silent_server_is_given_up(open_seed, hasty, monkeypatch, kind: str) -> None:
    for module in (ranged, s3):
        monkeypatch.setattr(module, "READ_SECONDS", 0.2)
    seed, server = open_seed(kind)
    seed.files()
    server.fault({"match": BIG, "hang": True})
    with pytest.raises(SeedError) as failure:
        read(seed, BIG, 0, 1000)
    assert failure.value.transient


@pytest.mark.parametrize(
    "make",
    [
        lambda endpoint: hub.HubSeed("acme/tiny-model", "main", endpoint=endpoint),
        lambda endpoint: s3.S3Seed("s3://models/some/tiny", endpoint=endpoint),
    ],
    ids=["hub", "s3"],
)
def test_nobody_listens(hasty, make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(SeedError, match=r"check .*ENDPOINT") as failure:
        make(f"http://127.0.0.1:{port}").files()
    assert failure.value.transient
    assert "\n" not in str(failure.value)


def test_metadata_of_the_hub_has_a_deadline(open_seed, hasty, monkeypatch) -> None:
    monkeypatch.setattr(hub, "METADATA_SECONDS", 0.2)
    seed, server = open_seed("hub")
    server.fault({"hang": True})
    with pytest.raises(SeedError) as failure:
        seed.files()
    assert failure.value.transient
