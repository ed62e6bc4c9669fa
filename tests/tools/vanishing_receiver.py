"""A receiver that kills itself in the middle of a piece.

python tests/tools/vanishing_receiver.py PORT PIECES PIECE_SIZE
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from pool_peers import Recorder, make_party, make_shard

from shardpool.discovery.base import Endpoint
from shardpool.settings import Settings
from shardpool.transport.grpc_link import GrpcTransport
from shardpool.transport.stream import StreamMover


class _Suicide(Recorder):
    def progress(self, link: object, piece: int, received: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Read until the first bytes come."""
    port, pieces, piece_size = map(int, sys.argv[1:])
    told = _Suicide()
    link = GrpcTransport(Settings(), [StreamMover()]).connect(Endpoint("127.0.0.1", port), make_party(), told)
    told.next("opened")
    shard = make_shard(pieces, piece_size)
    while True:
        link.request(0, shard.destination(0)[1])
        error = told.next("failed")[2]
        threading.Event().wait(getattr(error, "retry_after", 0.1))


if __name__ == "__main__":
    main()
