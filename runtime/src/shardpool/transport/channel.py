"""How every gRPC connection of shardpool is set up: channel and server options, credentials, targets. Nothing else opens one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.experimental

from shardpool.discovery.base import Endpoint
from shardpool.errors import ConfigurationError
from shardpool.settings import Settings

LARGEST_MESSAGE = 64 * 1024 * 1024
"""Bytes of one message. gRPC's own limit of 4 MiB is met near 44,000 tensors in a manifest."""
KEEPALIVE_MS = 20_000
KEEPALIVE_TIMEOUT_MS = 10_000
IDLE_CONNECTION_MS = 300_000
STREAMS_PER_CONNECTION = 64
TLS_NAME = "shardpool"
"""The DNS name that every certificate of a pool carries. Peers are dialled by pod address, which no certificate can list beforehand."""

Options = list[tuple[str, Any]]

_BOTH: Options = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # Pieces come in large messages; frames of the default 16 KiB cost a tenth of the throughput.
    ("grpc.http2.max_frame_size", 1024 * 1024),
]


def channel_options() -> Options:
    """Options of a channel to a peer."""
    return [
        *_BOTH,
        # A fresh channel is a fresh connection: behind a Service it may reach another pod.
        ("grpc.use_local_subchannel_pool", 1),
        # A proxy set in the pod's environment is for the world outside, never for pod addresses.
        ("grpc.enable_http_proxy", 0),
        # Whoever calls decides on retries; a retrying channel would also keep copies of what it sent.
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        # Who waits for announcements takes them from the connection itself: no thread in between, and no look ten times a second.
        (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
    ]


def server_options() -> Options:
    """Options of a source's server."""
    return [
        *_BOTH,
        # A second process on the same port is a mistake to be told, not half of the connections lost.
        ("grpc.so_reuseport", 0),
        ("grpc.max_connection_idle_ms", IDLE_CONNECTION_MS),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.server_handshake_timeout_ms", 10_000),
        # Receivers send keepalive pings while they wait for announcements; that is not abuse.
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ]


def open_channel(endpoint: Endpoint, settings: Settings) -> grpc.Channel:
    """A fresh connection to a peer; it is made when the first call needs it. Raises ConfigurationError for unreadable certificates."""
    options = channel_options()
    if not settings.tls_cert:
        return grpc.insecure_channel(endpoint.target, options=options)
    certificate, key, authority = _certificates(settings)
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.secure_channel(
        endpoint.target, credentials, options=[*options, ("grpc.ssl_target_name_override", TLS_NAME)]
    )


def server_credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """Credentials that ask every caller for a certificate of the same CA; None without TLS. Raises ConfigurationError."""
    if not settings.tls_cert:
        return None
    certificate, key, authority = _certificates(settings)
    return grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)


def _certificates(settings: Settings) -> tuple[bytes, bytes, bytes]:
    read = []
    for name, path in (("TLS_CERT", settings.tls_cert), ("TLS_KEY", settings.tls_key), ("TLS_CA", settings.tls_ca)):
        try:
            read.append(Path(path).read_bytes())
        except OSError as error:
            raise ConfigurationError(
                f"SHARDPOOL_{name}={path!r} cannot be read: {error.strerror}", hint="mount the release's TLS secret"
            ) from error
    return read[0], read[1], read[2]
