"""A source in a process of its own: prints its port, serves a made-up shard until its standard input closes.

python tests/tools/serve_shard.py '{"pieces": 8, "piece_size": 262144, "settings": {"egress_limit_mbps": 8}}'
"""

from __future__ import annotations

import json
import sys

from pool_peers import Source, make_shard


def main() -> None:
    """Serve."""
    options = json.loads(sys.argv[1])
    shard = make_shard(options["pieces"], options["piece_size"])
    source = Source(shard, port=options.get("port", 0), **options.get("settings", {}))
    print(source.endpoint.port, flush=True)
    sys.stdin.read()
    source.server.stop()


if __name__ == "__main__":
    main()
