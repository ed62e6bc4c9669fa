"""Who a model is on the wire: ModelExpress's `SourceIdentity`, its canonical JSON and its `mx_source_id`.

The rules are those of the ModelExpress wire contract (release 0.7.0), and must stay byte-compatible with it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardpool.errors import ConfigurationError
from shardpool.settings import Settings

BACKEND_FRAMEWORKS = {
    "BACKEND_FRAMEWORK_UNKNOWN": 0,
    "BACKEND_FRAMEWORK_VLLM": 1,
    "BACKEND_FRAMEWORK_SGLANG": 2,
    "BACKEND_FRAMEWORK_TRT_LLM": 3,
}
MX_SOURCE_TYPES = {
    "MX_SOURCE_TYPE_WEIGHTS": 0,
    "MX_SOURCE_TYPE_LORA": 1,
    "MX_SOURCE_TYPE_CUDA_GRAPH": 2,
    "MX_SOURCE_TYPE_TORCH_COMPILE_CACHE": 3,
    "MX_SOURCE_TYPE_TRITON_CACHE": 4,
    "MX_SOURCE_TYPE_DEEP_GEMM_CACHE": 5,
    "MX_SOURCE_TYPE_TILELANG_CACHE": 6,
    "MX_SOURCE_TYPE_CUTE_DSL_CACHE": 7,
    "MX_SOURCE_TYPE_FLASHINFER_CACHE": 8,
    "MX_SOURCE_TYPE_TVM_FFI_CACHE": 9,
}
_ENUMS = {"backend_framework": BACKEND_FRAMEWORKS, "mx_source_type": MX_SOURCE_TYPES}
_COUNTS = ("tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size")
_ALWAYS = ("dtype", "model_name", "mx_version", "quantization", "revision")
_WHEN_SET = (
    "backend_framework_version",
    "compile_config_digest",
    "cuda_version",
    "gpu_arch",
    "torch_version",
    "triton_version",
)
_LONGEST_CANONICAL = 1 << 20
_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIdentity:
    """The fields of `model_express.p2p.SourceIdentity`, with proto3's defaults.

    Enum values that this release does not know are kept as numbers, as proto3 does. Raises ConfigurationError for
    whatever could not travel as that message: numbers out of range, text that has no UTF-8 form.
    """

    mx_version: str = ""
    mx_source_type: int = 0
    model_name: str = ""
    backend_framework: int = 0
    tensor_parallel_size: int = 0
    pipeline_parallel_size: int = 0
    expert_parallel_size: int = 0
    dtype: str = ""
    quantization: str = ""
    extra_parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    revision: str = ""
    backend_framework_version: str = ""
    torch_version: str = ""
    cuda_version: str = ""
    triton_version: str = ""
    gpu_arch: str = ""
    compile_config_digest: str = ""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _check_number(name, getattr(self, name), 0, 2**32 - 1)
        for name in _ENUMS:
            _check_number(name, getattr(self, name), -(2**31), 2**31 - 1)
        for name in (*_ALWAYS, *_WHEN_SET):
            _check_text(name, getattr(self, name))
        if not isinstance(self.extra_parameters, Mapping):
            raise ConfigurationError(
                f"identity field extra_parameters is {_shown(self.extra_parameters)}",
                hint="give an object of texts",
            )
        for key, value in self.extra_parameters.items():
            _check_text("extra_parameters (a key)", key)
            _check_text(f"extra_parameters[{_shown(key)}]", value)
        object.__setattr__(self, "extra_parameters", dict(self.extra_parameters))

    def canonical_json(self) -> str:
        """The text that is hashed: sorted keys, no blanks, lower case, ASCII with `\\u` escapes."""
        extra: dict[str, str] = {}
        for key in sorted(self.extra_parameters):
            extra.setdefault(key.lower(), self.extra_parameters[key].lower())
        canonical: dict[str, Any] = {name: getattr(self, name) for name in (*_COUNTS, *_ENUMS)}
        canonical |= {name: getattr(self, name).lower() for name in _ALWAYS}
        canonical |= {name: text.lower() for name in _WHEN_SET if (text := getattr(self, name))}
        canonical["extra_parameters"] = extra
        return json.dumps(canonical, sort_keys=True, separators=(",", ":"))

    def mx_source_id(self) -> str:
        """16 lower-case hex digits: the start of the SHA-256 of the canonical JSON."""
        return source_id_of(self.canonical_json())

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SourceIdentity:
        """Make an identity of a parsed JSON object that has the message's field names.

        Enum values may be numbers or the names of the contract. Raises ConfigurationError for an unknown field, a value
        of the wrong type, or one out of range.
        """
        if not isinstance(fields, Mapping):
            raise ConfigurationError(
                f"an identity is one JSON object, not {_kind(fields)}",
                hint="give the fields of one identity, such as the value of `identity` in a list of test vectors",
            )
        known = {entry.name for entry in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known, key=repr)
        if unknown:
            raise ConfigurationError(
                f"an identity has no field {', '.join(_shown(name) for name in unknown)}",
                hint=f"its fields are {', '.join(sorted(known))}",
            )
        values = dict(fields)
        for name, numbers in _ENUMS.items():
            if isinstance(values.get(name), str):
                if values[name] not in numbers:
                    raise ConfigurationError(
                        f"identity field {name} is {_shown(values[name])}",
                        hint=f"give a number or one of {', '.join(numbers)}",
                    )
                values[name] = numbers[values[name]]
        return cls(**values)

    @classmethod
    def parse(cls, text: str | bytes, origin: str) -> SourceIdentity:
        """Make an identity of JSON text (UTF-8 where it is bytes); `origin` names it in errors.

        Raises ConfigurationError as `from_json` does, and for text that is not JSON or names a key twice.
        """
        try:
            decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
            fields = json.loads(decoded, object_pairs_hook=_without_duplicates)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{origin} is not JSON: {error}", hint="give one JSON object in UTF-8") from error
        return cls.from_json(fields)

    def fields(self) -> dict[str, Any]:
        """The fields that differ from proto3's defaults, under their names: what `from_json` takes."""
        blank = SourceIdentity()
        return {
            entry.name: getattr(self, entry.name)
            for entry in dataclasses.fields(self)
            if getattr(self, entry.name) != getattr(blank, entry.name)
        }


def source_id_of(canonical_json: str) -> str:
    """The `mx_source_id` that belongs to a canonical JSON, also one that another party sent."""
    return hashlib.sha256(canonical_json.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def pool_identity(settings: Settings) -> SourceIdentity:
    """The identity of the pool that the settings describe.

    Framework 0, a wire version of our own and the layout as an extra parameter keep it apart from every identity that an
    engine could compute: an engine must never take raw checkpoint tensors for its own.
    """
    return SourceIdentity(
        mx_version=settings.wire_version,
        model_name=settings.model,
        tensor_parallel_size=settings.world,
        pipeline_parallel_size=1,
        dtype=settings.dtype,
        quantization=settings.quantization,
        revision=settings.revision,
        extra_parameters={"shardpool_layout": settings.layout},
    )


def explain_difference(ours: str | SourceIdentity, theirs: str) -> str:
    """One line that says in which fields two identities differ.

    Args:
        ours: our identity, or its canonical JSON.
        theirs: canonical JSON as a peer sent it: any text, of any length.
    """
    our_fields = _parsed(ours.canonical_json() if isinstance(ours, SourceIdentity) else ours)
    their_fields = _parsed(theirs)
    if our_fields is None or their_fields is None:
        whose = "theirs" if their_fields is None else "ours"
        return f"{whose} is not a canonical identity: {_shown(theirs if their_fields is None else ours)}"
    missing = object()
    differences = []
    for name in sorted(set(our_fields) | set(their_fields)):
        mine, other = our_fields.get(name, missing), their_fields.get(name, missing)
        if mine != other or type(mine) is not type(other):
            said = ["not set" if value is missing else _shown(value) for value in (mine, other)]
            differences.append(f"{_label(name)}: ours {said[0]}, theirs {said[1]}")
    shown = "; ".join(differences[:20])
    if len(differences) > 20:
        shown += f"; and {len(differences) - 20} more"
    return shown or "no field differs"


def _check_number(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ConfigurationError(
            f"identity field {name} is {_shown(value)}", hint=f"give a whole number from {low} to {high}"
        )


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ConfigurationError(f"identity field {name} is {_shown(value)}", hint="give a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"identity field {name} holds half of a surrogate pair at character {error.start}: {_shown(value)}",
            hint="give a text that UTF-8 can write",
        ) from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {_shown(twice)} is there twice")
    return found


def _parsed(canonical: str) -> dict[str, Any] | None:
    if len(canonical) > _LONGEST_CANONICAL:
        return None
    try:
        found = json.loads(canonical)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _label(name: str) -> str:
    return name if name.isidentifier() and name.isascii() and len(name) <= _LONGEST_SHOWN else _shown(name)


def _kind(value: object) -> str:
    kinds: list[tuple[Callable[[object], bool], str]] = [
        (lambda v: isinstance(v, list), "a list"),
        (lambda v: isinstance(v, str), "a text"),
        (lambda v: isinstance(v, bool), "true or false"),
        (lambda v: isinstance(v, (int, float)), "a number"),
        (lambda v: v is None, "null"),
    ]
    return next((text for test, text in kinds if test(value)), type(value).__name__)


def _shown(value: object) -> str:
    """ASCII, on one line, not longer than fits a log line."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = ascii(value) if not isinstance(value, int) else "a number too long to show"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
