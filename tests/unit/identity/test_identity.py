"""`SourceIdentity`: what is hashed, what is refused, how two of them differ."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpool.errors import ConfigurationError
from shardpool.identity import SourceIdentity, explain_difference, pool_identity, source_id_of
from shardpool.settings import Settings

VECTORS = json.loads((Path(__file__).parents[2] / "contract" / "source_id_vectors.json").read_text(encoding="utf-8"))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_contracts_vectors(vector: dict[str, Any]) -> None:
    assert SourceIdentity.from_json(vector["identity"]).mx_source_id() == vector["mx_source_id"]


def test_canonical_json_has_what_is_always_there() -> None:
    assert SourceIdentity().canonical_json() == (
        '{"backend_framework":0,"dtype":"","expert_parallel_size":0,"extra_parameters":{},"model_name":"",'
        '"mx_source_type":0,"mx_version":"","pipeline_parallel_size":0,"quantization":"","revision":"","tensor_parallel_size":0}'
    )


@pytest.mark.parametrize(
    "name",
    [
        "backend_framework_version",
        "compile_config_digest",
        "cuda_version",
        "gpu_arch",
        "torch_version",
        "triton_version",
    ],
)
def test_a_field_that_may_be_left_out_is_there_only_when_set(name: str) -> None:
    assert name not in json.loads(SourceIdentity().canonical_json())
    assert json.loads(SourceIdentity(**{name: "ABC"}).canonical_json())[name] == "abc"


def test_text_is_lowercased_as_python_does_and_escaped_as_json_does() -> None:
    canonical = SourceIdentity(model_name='ΑΣ İ\t\x7f\u2028😀/\\"').canonical_json()
    assert '"model_name":"\\u03b1\\u03c2 i\\u0307\\t\\u007f\\u2028\\ud83d\\ude00/\\\\\\""' in canonical


def test_text_is_neither_trimmed_nor_normalised() -> None:
    composed, decomposed, padded = (SourceIdentity(model_name=text).mx_source_id() for text in ("é", "e\u0301", " é "))
    assert len({composed, decomposed, padded}) == 3


def test_the_first_of_colliding_parameters_wins_in_code_point_order_of_the_original_keys() -> None:
    extra = {"foo": "last", "Foo": "second", "FOO": "First", "\U0001f600": "z", "\uffff": "y"}
    canonical = json.loads(SourceIdentity(extra_parameters=extra).canonical_json())
    assert canonical["extra_parameters"] == {"foo": "first", "\U0001f600": "z", "\uffff": "y"}
    assert list(canonical["extra_parameters"]) == ["foo", "\uffff", "\U0001f600"], (
        "sorted by code point, not UTF-16 unit"
    )


def test_the_order_in_which_parameters_were_given_does_not_matter() -> None:
    forth = SourceIdentity(extra_parameters={"a": "1", "b": "2"})
    back = SourceIdentity(extra_parameters={"b": "2", "a": "1"})
    assert forth == back
    assert hash(forth) == hash(back)
    assert forth.canonical_json() == back.canonical_json()


def test_the_id_is_the_start_of_a_sha256() -> None:
    identity = SourceIdentity(model_name="a/b")
    assert identity.mx_source_id() == hashlib.sha256(identity.canonical_json().encode()).hexdigest()[:16]
    assert source_id_of(identity.canonical_json()) == identity.mx_source_id()


@pytest.mark.parametrize("value", [42, -1, -(2**31), 2**31 - 1])
def test_an_unknown_enum_value_is_kept_as_a_number(value: int) -> None:
    assert json.loads(SourceIdentity(backend_framework=value).canonical_json())["backend_framework"] == value


def test_enum_names_are_numbers_too() -> None:
    named = SourceIdentity.from_json(
        {"backend_framework": "BACKEND_FRAMEWORK_SGLANG", "mx_source_type": "MX_SOURCE_TYPE_LORA"}
    )
    assert named == SourceIdentity(backend_framework=2, mx_source_type=1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tensor_parallel_size": -1}, "from 0 to 4294967295"),
        ({"tensor_parallel_size": 2**32}, "from 0 to 4294967295"),
        ({"tensor_parallel_size": 10**5000}, "tensor_parallel_size"),
        ({"tensor_parallel_size": 8.0}, "tensor_parallel_size is 8.0"),
        ({"tensor_parallel_size": True}, "tensor_parallel_size is true"),
        ({"tensor_parallel_size": "8"}, "tensor_parallel_size"),
        ({"mx_source_type": 2**31}, "mx_source_type"),
        ({"mx_source_type": "WEIGHTS"}, "MX_SOURCE_TYPE_WEIGHTS"),
        ({"model_name": None}, "model_name is null"),
        ({"model_name": "a\ud800b"}, "half of a surrogate pair at character 1"),
        ({"extra_parameters": {"a": 1}}, 'extra_parameters["a"] is 1'),
        ({"extra_parameters": {"\udfff": "a"}}, "surrogate"),
        ({"extra_parameters": ["a"]}, "extra_parameters"),
        ({"worker_rank": 0}, 'no field "worker_rank"'),
        ({"Model_name": "a"}, "no field"),
        ([], "not a list"),
        ("text", "not a text"),
        (None, "not null"),
        (3, "not a number"),
    ],
)
def test_what_could_not_be_that_message_is_refused(fields: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        SourceIdentity.from_json(fields)
    assert said in str(refusal.value)
    assert str(refusal.value).isascii()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"dtype": "a", "dtype": "b"}', '"dtype" is there twice'),
        (b'{"extra_parameters": {"a": "1", "a": "2"}}', "twice"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{" * 100_000, "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"tensor_parallel_size": ' + b"9" * 10_000 + b"}", "not JSON"),
        (b'{"tensor_parallel_size": NaN}', "tensor_parallel_size"),
    ],
)
def test_text_that_is_not_one_object_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(ConfigurationError, match=r"file\.json|identity field") as refusal:
        SourceIdentity.parse(text, "file.json")
    assert said in str(refusal.value)


def test_a_byte_order_mark_is_passed_over() -> None:
    assert SourceIdentity.parse(b'\xef\xbb\xbf{"dtype": "x"}', "f") == SourceIdentity(dtype="x")


def test_an_identity_cannot_be_changed_from_outside_and_can_be_copied() -> None:
    extra = {"a": "b"}
    identity = SourceIdentity(extra_parameters=extra)
    extra["a"] = "c"
    assert identity.extra_parameters == {"a": "b"}
    assert copy.deepcopy(identity) == identity


def test_fields_give_the_identity_back() -> None:
    for vector in VECTORS:
        identity = SourceIdentity.from_json(vector["identity"])
        assert SourceIdentity.from_json(identity.fields()) == identity


@given(name=TEXTS, extra=st.dictionaries(TEXTS, TEXTS, max_size=4), size=st.integers(0, 2**32 - 1))
def test_canonical_json_is_ascii_sorted_and_without_blanks(name: str, extra: dict[str, str], size: int) -> None:
    identity = SourceIdentity(model_name=name, extra_parameters=extra, tensor_parallel_size=size)
    canonical = identity.canonical_json()
    parsed = json.loads(canonical)
    assert canonical.isascii()
    assert canonical == json.dumps(parsed, sort_keys=True, separators=(",", ":"))
    assert parsed["model_name"] == name.lower()
    assert set(parsed["extra_parameters"]) == {key.lower() for key in extra}


def test_a_pools_identity_is_one_that_no_engine_computes() -> None:
    settings = Settings(model="Acme/Tiny", revision="a" * 40, layout="striped", world=4)
    identity = pool_identity(settings)
    assert identity == SourceIdentity(
        mx_version="shardpool/1",
        model_name="Acme/Tiny",
        tensor_parallel_size=4,
        pipeline_parallel_size=1,
        revision="a" * 40,
        extra_parameters={"shardpool_layout": "striped"},
    )
    other = pool_identity(Settings(model="Acme/Tiny", revision="a" * 40, layout="sharded", world=4))
    assert other.mx_source_id() != identity.mx_source_id()


def test_a_difference_is_told_field_by_field_on_one_line() -> None:
    ours = SourceIdentity(model_name="a", revision="r1", extra_parameters={"shardpool_layout": "whole"})
    theirs = SourceIdentity(model_name="a", revision="r2", gpu_arch="sm90")
    said = explain_difference(ours, theirs.canonical_json())
    assert said == (
        'extra_parameters: ours {"shardpool_layout": "whole"}, theirs {}; gpu_arch: ours not set, theirs "sm90"; '
        'revision: ours "r1", theirs "r2"'
    )
    assert explain_difference(ours.canonical_json(), ours.canonical_json()) == "no field differs"


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "[]",
        "[" * 100_000,
        "{" + "a" * 5_000_000,
        '{"a\\nb": 1}',
        '{"model_name": "' + "x" * 100_000 + '"}',
        json.dumps({str(number): number for number in range(1000)}),
        '{"a": NaN}',
        '{"\\ud800": "\\u001b[31m"}',
    ],
)
def test_whatever_a_peer_sends_as_its_identity_makes_one_short_line(hostile: str) -> None:
    said = explain_difference(SourceIdentity(), hostile)
    assert said.isascii()
    assert said.isprintable()
    assert len(said) < 6000
