"""What the hub says no to, and what its CDN must not be told."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request

import huggingface_hub
import pytest

from shardpool.errors import ConfigurationError, SeedError
from shardpool.seed.hub import HubSeed

MODEL = "acme/tiny-model"
BIG = "model-00001-of-00001.safetensors"


@pytest.fixture
def at(start_hub):
    made: list[HubSeed] = []

    def make(hub, revision: str = "main", model: str = MODEL, token: str = "") -> HubSeed:
        made.append(HubSeed(model, revision, endpoint=hub.url, token=token))
        return made[-1]

    yield make
    for seed in made:
        seed.close()


def read(seed: HubSeed, path: str = BIG, offset: int = 0, length: int = 1000) -> bytes:
    content = bytearray(length)
    seed.read_into(path, offset, memoryview(content))
    return bytes(content)


def test_token_stays_with_the_hub_and_does_not_reach_the_cdn(start_hub, at, tree) -> None:
    hub = start_hub("--cdn-port", "0", "--token", "sesame")
    assert read(at(hub, token="sesame"), length=5000) == tree[BIG][:5000]
    stats = hub.stats()
    assert (stats["redirects"], stats["leaked_tokens"], stats["refused"]) == (1, 0, 0)


def test_redirect_is_asked_for_once_and_again_when_its_address_has_expired(start_hub, at, tree) -> None:
    hub = start_hub("--cdn-port", "0")
    seed = at(hub)
    for start in range(10):
        read(seed, offset=start)
    assert hub.stats()["redirects"] == 1
    hub.fault({"match": BIG, "at": "cdn", "status": 403, "times": 1})
    assert read(seed, offset=7) == tree[BIG][7:1007]
    assert hub.stats()["redirects"] == 2


def test_branch_is_pinned_to_its_commit_when_files_are_listed(start_hub, at) -> None:
    hub = start_hub()
    seed = at(hub, "main")
    seed.files()
    assert seed.describe().endswith(f"{MODEL}@{hub.commit[:7]}")
    hub.fault({"match": "/resolve/main/", "status": 404})
    assert read(seed)


def test_hub_is_asked_for_the_listing_once(start_hub, at) -> None:
    hub = start_hub()
    seed = at(hub)
    for _ in range(3):
        seed.files()
        read(seed)
    assert hub.stats()["listings"] == 1


@pytest.mark.parametrize(
    ("options", "token", "words"),
    [
        (("--token", "sesame"), "", "does not exist or is private .* 401 to no token.*HF_TOKEN"),
        (("--token", "sesame"), "wrong", "does not exist or is private .* 401 to the token in HF_TOKEN"),
        (("--token", "sesame", "--gated"), "", "is gated, and no token does not open it.*ask for access"),
        (("--token", "sesame", "--gated"), "wrong", "is gated, and the token in HF_TOKEN does not open it"),
    ],
)
def test_hub_that_does_not_admit_us_says_what_to_do(start_hub, at, options, token: str, words: str) -> None:
    seed = at(start_hub(*options), token=token)
    with pytest.raises(SeedError, match=words) as failure:
        read(seed)
    assert not failure.value.transient
    assert "wrong" not in str(failure.value)


def test_unknown_model_and_revision_are_told_apart(start_hub, at) -> None:
    hub = start_hub()
    with pytest.raises(SeedError, match=r"acme/huge@main does not exist or is private.*SHARDPOOL_MODEL"):
        at(hub, model="acme/huge").files()
    with pytest.raises(SeedError, match="the hub has no such revision; check SHARDPOOL_REVISION"):
        at(hub, "ab" * 20).files()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"status": 404, "code": "EntryNotFound"}, "no longer has the file"),
        ({"status": 416}, "shorter than the hub's listing"),
        ({"shift": 10}, "asked for bytes from 0"),
        ({"total": 77}, "asked for bytes from 0 of 3000001"),
        ({"encode": "gzip"}, "comes encoded as gzip"),
        ({"ignore_range": True, "total": 77}, "has 77 bytes, not 3000001"),
        ({"status": 418}, "answers 418"),
    ],
)
def test_answer_that_cannot_be_right_is_refused_at_once(start_hub, at, fault, words: str) -> None:
    hub = start_hub()
    seed = at(hub)
    seed.files()
    hub.fault({"match": BIG, **fault})
    before = hub.stats()["requests"]
    with pytest.raises(SeedError, match=words) as failure:
        read(seed)
    assert not failure.value.transient
    assert hub.stats()["requests"] - before == 2  # the read, and this question


def test_server_that_ignores_ranges_still_gives_small_files(start_hub, at, tree) -> None:
    hub = start_hub()
    hub.fault({"ignore_range": True})
    seed = at(hub)
    assert read(seed, offset=1_500_000, length=100_000) == tree[BIG][1_500_000:1_600_000]
    assert read(seed, offset=3_000_000, length=1) == tree[BIG][-1:]


def test_retry_after_is_heeded_without_an_error(start_hub, at, hasty, tree) -> None:
    hub = start_hub()
    seed = at(hub)
    seed.files()
    hub.fault({"match": BIG, "status": 429, "retry_after": 1, "times": 1})
    assert read(seed) == tree[BIG][:1000]


def test_listing_survives_passing_failures(start_hub, at, hasty) -> None:
    hub = start_hub()
    hub.fault({"match": MODEL, "status": 503, "times": 3})
    assert len(at(hub).files()) == 5


def test_answer_that_is_no_hub_is_refused(start_hub, at, hub_root) -> None:
    hub = start_hub()
    with pytest.raises(SeedError, match="check"):
        HubSeed(MODEL, "main", endpoint=hub.url + "/stats?").files()


def test_proxy_of_the_environment_is_used_for_the_hub(start_hub, tree, monkeypatch) -> None:
    hub = start_hub()
    monkeypatch.setenv("http_proxy", hub.url)
    monkeypatch.setenv("HTTP_PROXY", hub.url)
    seed = HubSeed(MODEL, "main", endpoint="http://hub.invalid")
    assert read(seed, length=500) == tree[BIG][:500]
    seed.close()


def test_no_proxy_keeps_the_hub_direct(start_hub, tree, monkeypatch) -> None:
    hub = start_hub()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    seed = HubSeed(MODEL, "main", endpoint=hub.url)
    assert read(seed, length=500) == tree[BIG][:500]
    seed.close()


def test_offline_switch_of_the_hub_client_is_named(start_hub) -> None:
    hub = start_hub()
    script = f"from shardpool.seed.hub import HubSeed; HubSeed({MODEL!r}, 'main', endpoint={hub.url!r}).files()"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=False
    )
    assert "HF_HUB_OFFLINE is set; unset it for this container" in done.stderr


@pytest.mark.parametrize("model", ["", "a/b/c", "../x", "a b/c", "acme/", "/x"])
def test_text_that_is_no_hub_id_is_refused(model: str) -> None:
    with pytest.raises(ConfigurationError, match="SHARDPOOL_MODEL"):
        HubSeed(model, "main", endpoint="http://localhost")


@pytest.mark.parametrize("endpoint", ["", "huggingface.co", "ftp://x", "http://"])
def test_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="HF_ENDPOINT"):
        HubSeed(MODEL, "main", endpoint=endpoint)


def test_content_digest_is_no_revision_of_the_hub() -> None:
    with pytest.raises(ConfigurationError, match="40 hex digits of a commit"):
        HubSeed(MODEL, "sha256:" + "0" * 64, endpoint="http://localhost")


def test_the_stand_in_satisfies_the_real_client(start_hub, tmp_path, tree) -> None:
    hub = start_hub("--cdn-port", "0", "--token", "sesame")
    folder = huggingface_hub.snapshot_download(MODEL, endpoint=hub.url, token="sesame", cache_dir=tmp_path / "cache")
    for path, content in tree.items():
        with open(f"{folder}/{path}", "rb") as stream:
            assert stream.read() == content
    with urllib.request.urlopen(hub.url + "/stats") as answer:
        assert json.load(answer)["bytes"] == sum(map(len, tree.values()))
