"""Compile wire/*.proto into what is committed beside them: serialized descriptors (.binpb) and type stubs (.pyi).

There is no generated code: modules load the descriptors at run time (wire/descriptors.py), so any protobuf from 5 on will do.
Needs grpcio-tools. With --check nothing is written; the exit code is 1 when something committed is stale.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

WIRE = Path(__file__).resolve().parent.parent / "src" / "shardpool" / "wire"
NAMES = ("p2p", "pool", "health")


def compile_proto(name: str, into: Path) -> tuple[FileDescriptorProto, str]:
    """The descriptor and the text of the type stub of `wire/<name>.proto`; `into` is a scratch directory."""
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{WIRE}", f"--descriptor_set_out={into / name}"]
    subprocess.run([*command, f"--pyi_out={into}", f"{name}.proto"], check=True)
    (file,) = FileDescriptorSet.FromString((into / name).read_bytes()).file
    stub = (into / f"{name}_pb2.pyi").read_text()
    stub = re.sub(r"^DESCRIPTOR: .*$", "DESCRIPTOR: _descriptor.FileDescriptor", stub, flags=re.M)
    stub = stub.replace("_Mapping]", "_Mapping[str, _Any]]").replace(
        "from typing import ", "from typing import Any as _Any, "
    )
    return file, f"# Generated from {name}.proto by `make generate`.\n{stub}"


def stale(name: str, file: FileDescriptorProto, stub: str) -> list[str]:
    """Which committed files differ from what the .proto gives now. Descriptors are compared by meaning, not by bytes."""
    descriptor, stub_path = WIRE / f"{name}.binpb", WIRE / f"{name}.pyi"
    wrong = []
    if not descriptor.exists() or FileDescriptorProto.FromString(descriptor.read_bytes()) != file:
        wrong.append(descriptor.name)
    if not stub_path.exists() or stub_path.read_text() != stub:
        wrong.append(stub_path.name)
    return wrong


def main() -> int:
    """Write what is stale, or only name it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when something is stale")
    check = parser.parse_args().check
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in NAMES:
            file, stub = compile_proto(name, Path(scratch))
            wrong += stale(name, file, stub)
            if not check:
                (WIRE / f"{name}.binpb").write_bytes(file.SerializeToString(deterministic=True))
                (WIRE / f"{name}.pyi").write_text(stub)
    for path in wrong:
        print(f"{path} {'is stale; run make generate' if check else 'written'}")
    return 1 if check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
