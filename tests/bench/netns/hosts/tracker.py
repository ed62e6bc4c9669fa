"""A BitTorrent tracker (BEP 3 and 23) that knows one swarm and keeps nothing: `tracker.py HOST PORT INTERVAL_SECONDS`."""

from __future__ import annotations

import http.server
import socket
import sys
import threading
import urllib.parse


class Tracker(http.server.ThreadingHTTPServer):
    """Answers announces with every other peer that has announced itself."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, interval: int) -> None:
        super().__init__((host, port), Announce)
        self.interval = interval
        self.peers: dict[tuple[str, int], None] = {}
        self.lock = threading.Lock()


class Announce(http.server.BaseHTTPRequestHandler):
    """GET /announce."""

    server: Tracker

    def do_GET(self) -> None:
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query, encoding="latin-1")
        me = (self.client_address[0], int(query["port"][0]))
        with self.server.lock:
            if query.get("event") == ["stopped"]:
                self.server.peers.pop(me, None)
            else:
                self.server.peers[me] = None
            others = [peer for peer in self.server.peers if peer != me]
        peers = b"".join(socket.inet_aton(host) + port.to_bytes(2, "big") for host, port in others)
        interval = b"%d" % self.server.interval
        body = b"d8:intervali%se12:min intervali%se5:peers%d:%se" % (interval, interval, len(peers), peers)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing of each request."""


if __name__ == "__main__":
    Tracker(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).serve_forever()
