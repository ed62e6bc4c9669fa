"""The least that gRPC for Python can do with the same bytes, between two processes.

python -m ratios.bare_stream serve FILE            prints its port; serves until its standard input closes
python -m ratios.bare_stream take PORT SIZE [FILE] prints the seconds that it took; without FILE the bytes are thrown away
"""

from __future__ import annotations

import mmap
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from shardpool.transport.channel import channel_options, server_options

MESSAGE = 1 << 20


def serve(path: Path) -> None:
    """Stream a file to whoever asks."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        view = memoryview(content)

        def stream(_: bytes, __: grpc.ServicerContext) -> Iterator[bytes]:
            for start in range(0, len(view), MESSAGE):
                yield bytes(view[start : start + MESSAGE])

        server = grpc.server(ThreadPoolExecutor(2), options=server_options())
        handler = grpc.unary_stream_rpc_method_handler(stream)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", {"Bare": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        print(port, flush=True)
        sys.stdin.read()
        server.stop(0).wait()
        view.release()


def take(port: int, size: int, path: Path | None) -> float:
    """Receive the stream, and write it to a file of `size` bytes where one is given; seconds from the call on."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=channel_options()) as channel:
        grpc.channel_ready_future(channel).result(10)
        messages = channel.unary_stream("/bench/Bare")(b"")
        started = time.monotonic()
        if path is None:
            received = sum(len(message) for message in messages)
        else:
            with path.open("w+b") as file:
                received = sum(file.write(message) for message in messages)
        seconds = time.monotonic() - started
    if received != size:
        raise SystemExit(f"{received} bytes of {size} came")
    return seconds


def main() -> None:
    """Be one of the two processes."""
    role, *rest = sys.argv[1:]
    if role == "serve":
        serve(Path(rest[0]))
    else:
        print(take(int(rest[0]), int(rest[1]), Path(rest[2]) if len(rest) > 2 else None))


if __name__ == "__main__":
    main()
