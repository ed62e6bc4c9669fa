"""The wire is what the contract says, fresh, and at home beside other holders of the same names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from shardpool.wire import p2p, pool
from shardpool.wire.descriptors import methods

ROOT = Path(__file__).resolve().parents[3]
LISTING = ROOT / "tests" / "contract" / "p2p_listing.txt"
_TYPES = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("string", "bytes", "bool", "float", "uint32", "uint64", "int64")
}


def _type(field: FieldDescriptorProto) -> str:
    return _TYPES.get(field.type) or field.type_name.removeprefix(".model_express.p2p.")


def _listed(message: DescriptorProto, indent: str) -> Iterator[str]:
    suffix = " (map_entry)" if message.options.map_entry else " "
    yield f"{indent}message {message.name}{suffix}"
    for field in message.field:
        label = "repeated " if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
        label = "optional " if field.proto3_optional else label
        line = f"{indent}    {label}{_type(field)} {field.name} = {field.number}"
        if field.HasField("oneof_index") and not field.proto3_optional:
            line += f" oneof {message.oneof_decl[field.oneof_index].name}"
        yield line + (" [deprecated]" if field.options.deprecated else "")
    for nested in message.nested_type:
        yield from _listed(nested, indent + "    ")


def _listing(file: FileDescriptorProto) -> Iterator[str]:
    """A descriptor in the notation of the contract's listing."""
    yield f"file {file.name} package {file.package} syntax {file.syntax} deps {list(file.dependency)}"
    for enum in file.enum_type:
        yield f"enum {enum.name}"
        yield from (f"    {value.name} = {value.number}" for value in enum.value)
    for message in file.message_type:
        yield from _listed(message, "")
    for service in file.service:
        yield f"service {service.name}"
        for method in service.method:
            ends = [name.removeprefix(".model_express.p2p.") for name in (method.input_type, method.output_type)]
            assert not method.client_streaming
            assert not method.server_streaming
            yield f"    rpc {method.name} {ends[0]} -> {ends[1]}"


def _proto(file: object) -> FileDescriptorProto:
    proto = FileDescriptorProto()
    file.CopyToProto(proto)  # type: ignore[attr-defined]
    return proto


def test_the_contract_is_the_listed_one_field_by_field() -> None:
    written = [line.rstrip() for line in LISTING.read_text().splitlines()]
    assert [line.rstrip() for line in _listing(_proto(p2p.DESCRIPTOR))] == written


def test_the_committed_descriptors_and_stubs_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "runtime" / "tools" / "generate_wire.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_names_that_another_package_owns_do_not_clash() -> None:
    """A process that has ModelExpress loaded holds the same names in protobuf's default pool."""
    code = (
        "from google.protobuf import descriptor_pool, message_factory\n"
        "from google.protobuf.descriptor_pb2 import FileDescriptorProto\n"
        "from pathlib import Path\n"
        f"other = FileDescriptorProto.FromString(Path({str(ROOT / 'runtime/src/shardpool/wire/p2p.binpb')!r}).read_bytes())\n"
        "other.message_type[0].field[0].name = 'renamed'  # not even the same definition\n"
        "theirs = descriptor_pool.Default().AddSerializedFile(other.SerializeToString())\n"
        "from shardpool.wire import p2p\n"
        "descriptor = descriptor_pool.Default().FindMessageTypeByName('model_express.p2p.SourceIdentity')\n"
        "their_class = message_factory.GetMessageClass(descriptor)\n"
        "message = their_class(renamed='a', model_name='b').SerializeToString()\n"
        "ours = p2p.SourceIdentity.FromString(message)\n"
        "assert (ours.mx_version, ours.model_name) == ('a', 'b'), ours\n"
        "assert p2p.DESCRIPTOR.pool is not descriptor_pool.Default()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


RECORDED = [
    (
        p2p.GetTensorManifestRequest(mx_source_id="0123456789abcdef"),
        "0a1030313233343536373839616263646566",
    ),
    (
        p2p.GetTensorManifestRequest(mx_source_id="0123456789abcdef", worker_id=""),
        "0a10303132333435363738396162636465661200",
    ),
    (
        p2p.GetTensorManifestResponse(
            tensors=[p2p.TensorDescriptor(name="w", addr=1 << 40, size=8, device_id=1, dtype="torch.bfloat16")],
            mx_source_id="s",
            metadata_endpoint="10.0.0.1:5555",
            agent_name="a",
            worker_rank=3,
            accelerator="cuda",
        ),
        "0a1e0a017710808080808020180820012a0e746f7263682e62666c6f617431361201731a0d31302e302e302e313a35353535220161280332"
        + "0463756461",
    ),
    (p2p.ReleaseTensorReadRequest(mx_source_id="s", lease_id="l"), "0a01731a016c"),
]


@pytest.mark.parametrize(("message", "recorded"), RECORDED, ids=lambda value: type(value).__name__)
def test_messages_are_the_recorded_bytes(message: object, recorded: str) -> None:
    assert message.SerializeToString(deterministic=True).hex() == recorded  # type: ignore[attr-defined]
    assert type(message).FromString(bytes.fromhex(recorded)) == message  # type: ignore[attr-defined]


def test_fields_of_a_later_version_are_ignored() -> None:
    recorded = bytes.fromhex("0a01731a016c") + b"\xa2\x06\x03new"
    assert p2p.ReleaseTensorReadRequest.FromString(recorded).lease_id == "l"


def test_methods_say_their_paths_and_which_sides_stream() -> None:
    calls = methods(pool.DESCRIPTOR, "PoolService")
    assert calls["ReadPieces"].path == "/shardpool.v1.PoolService/ReadPieces"
    assert (calls["ReadPieces"].client_streaming, calls["ReadPieces"].server_streaming) == (True, True)
    assert (calls["GetState"].client_streaming, calls["GetState"].server_streaming) == (False, False)
    assert calls["GetState"].request is pool.StateRequest


def test_descriptors_load_without_generated_code() -> None:
    """So that no version of protobuf refuses them: only calls that 5, 6 and 7 share."""
    for name in ("p2p", "pool", "health"):
        data = (ROOT / "runtime/src/shardpool/wire" / f"{name}.binpb").read_bytes()
        private = DescriptorPool()
        private.AddSerializedFile(data)
        file = private.FindFileByName(f"{name}.proto")
        messages: list[Descriptor] = list(file.message_types_by_name.values())
        enums: list[EnumDescriptor] = list(file.enum_types_by_name.values())
        assert messages
        assert all(GetMessageClass(message)().SerializeToString() == b"" for message in messages)
        assert all(enum.values[0].number == 0 for enum in enums)
