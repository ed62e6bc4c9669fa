"""Messages from serialized descriptors, in a descriptor pool of their own.

A process holds the generated messages of a proto package once in protobuf's default pool, and ModelExpress may have put its own there.
A private pool cannot clash, and without generated code there is no check of its version: any protobuf from 5 on will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass


@dataclass(frozen=True, slots=True)
class Method:
    """A call of a service: its path in a request, the classes of its messages, and which sides stream."""

    path: str
    request: Any
    response: Any
    client_streaming: bool
    server_streaming: bool


def load_names(name: str) -> Mapping[str, Any]:
    """What the module of `<name>.proto` exports: `DESCRIPTOR`, messages, enums and the values of top-level enums."""
    serialized = Path(__file__).with_name(f"{name}.binpb").read_bytes()
    pool = DescriptorPool()
    pool.AddSerializedFile(serialized)
    file = pool.FindFileByName(FileDescriptorProto.FromString(serialized).name)
    names: dict[str, Any] = {"DESCRIPTOR": file}
    for message, descriptor in file.message_types_by_name.items():
        names[message] = GetMessageClass(descriptor)
    for enum, enum_descriptor in file.enum_types_by_name.items():
        names[enum] = EnumTypeWrapper(enum_descriptor)
        names.update({value.name: value.number for value in enum_descriptor.values})
    return names


def methods(file: FileDescriptor, service: str) -> Mapping[str, Method]:
    """The calls of `service` (its short name), by name."""
    descriptor = file.services_by_name[service]
    return MappingProxyType(
        {
            method.name: Method(
                path=f"/{descriptor.full_name}/{method.name}",
                request=GetMessageClass(method.input_type),
                response=GetMessageClass(method.output_type),
                client_streaming=method.client_streaming,
                server_streaming=method.server_streaming,
            )
            for method in descriptor.methods
        }
    )
