"""Environment and flags become one frozen object here, and nowhere else.

Every `MX_`, `SHARDPOOL_` and downward-API name that shardpool reads is in this module; `docs/settings.md` and the
command-line flags are made from it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardpool.errors import ConfigurationError

LAYOUTS = ("whole", "striped", "sharded")
TRANSPORTS = ("auto", "nixl", "stream")
DISCOVERIES = ("headless", "k8s-service", "static", "none")
RANK_FAILURE_POLICIES = ("restart", "end")
DEFAULT_WIRE_VERSION = "shardpool/1"
_PINNED = re.compile(r"(?:[0-9a-f]{40}|sha256:[0-9a-f]{64})")
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}


def _text(value: str) -> str:
    return value


def _boolean(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError("is not one of true, false")


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value)
        if not low <= number <= high:
            raise ValueError(f"is not between {low} and {high}")
        return number

    return parse


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        number = float(value)
        if not low <= number <= high:
            raise ValueError(f"is not between {low:g} and {high:g}")
        return number

    return parse


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"is not one of {', '.join(choices)}")
        return value

    return parse


def _setting(
    default: Any,
    names: str,
    help: str,
    parse: Callable[[str], Any] = _text,
    *,
    choices: tuple[str, ...] = (),
    group: str,
) -> Any:
    """A field of `Settings`: the environment names it is read from (first one set wins), its help, its parser."""
    return field(
        default=default,
        metadata={
            "names": tuple(names.split()),
            "help": help,
            "parse": _one_of(*choices) if choices else parse,
            "choices": choices,
            "group": group,
        },
    )


_PORT = _whole(1, 65535)
_SECONDS = _number(0, 7 * 24 * 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a process of shardpool can be told.

    Times are in seconds, sizes in bytes unless the name says otherwise.
    """

    # Model
    model: str = _setting(
        "", "SHARDPOOL_MODEL", "Hub id of the model, such as `Qwen/Qwen2.5-7B-Instruct`.", group="Model"
    )
    revision: str = _setting(
        "",
        "SHARDPOOL_REVISION MX_MODEL_REVISION",
        "Pinned revision: 40 hex digits of a commit, or `sha256:` and 64.",
        group="Model",
    )
    allow_unpinned: bool = _setting(
        False,
        "SHARDPOOL_ALLOW_UNPINNED",
        "Accept a revision that is a branch or a tag. Replicas may then differ.",
        _boolean,
        group="Model",
    )
    dtype: str = _setting("", "SHARDPOOL_DTYPE", "The identity's dtype, for engines that put one in.", group="Model")
    quantization: str = _setting("", "SHARDPOOL_QUANTIZATION", "The identity's quantization.", group="Model")
    wire_version: str = _setting(
        DEFAULT_WIRE_VERSION,
        "MX_VERSION",
        "The identity's `mx_version`; a constant of the wire format, set only for interop.",
        group="Model",
    )
    content_digest: str = _setting(
        "",
        "SHARDPOOL_CONTENT_DIGEST",
        "Pinned content digests (64 hex digits each), one a rank of the world, comma-separated: other bytes are refused whoever offers them.",
        group="Model",
    )

    # Topology
    layout: str = _setting(
        "whole", "SHARDPOOL_LAYOUT", "The rule that maps files to shards.", choices=LAYOUTS, group="Topology"
    )
    world: int = _setting(1, "SHARDPOOL_WORLD", "In how many parts a replica is.", _whole(1, 65536), group="Topology")
    local_ranks: int | None = _setting(
        None, "SHARDPOOL_LOCAL_RANKS", "Ranks in this pod; unset: the whole world.", _whole(1, 1024), group="Topology"
    )
    first_rank: int | None = _setting(
        None,
        "SHARDPOOL_FIRST_RANK",
        "Global rank of this pod's first rank; unset: pod index times local ranks.",
        _whole(0, 65535),
        group="Topology",
    )
    pod_index: int = _setting(
        0,
        "SHARDPOOL_POD_INDEX",
        "Ordinal of this pod in its replica (StatefulSet or LeaderWorkerSet).",
        _whole(0, 65535),
        group="Topology",
    )

    # Store
    directory: str = _setting(
        "",
        "SHARDPOOL_DIRECTORY",
        "The model directory to fill. Staging lies beside it, on the same volume.",
        group="Store",
    )
    verify_sha256: str = _setting(
        "auto",
        "SHARDPOOL_VERIFY_SHA256",
        "Check whole files against the SHA-256 that the publisher states: `auto` where the seed was read, `always` asks it, `never`.",
        choices=("auto", "always", "never"),
        group="Store",
    )
    audit_interval_seconds: float = _setting(
        60.0,
        "SHARDPOOL_AUDIT_INTERVAL_SECONDS",
        "A serving replica hashes one piece again each so many seconds; 0 turns it off.",
        _SECONDS,
        group="Store",
    )

    # Seed
    seed: str = _setting(
        "none",
        "SHARDPOOL_SEED",
        "Where bytes come from first: `hf`, `directory:PATH`, `s3://BUCKET/PREFIX` or `none`.",
        group="Seed",
    )
    seed_concurrency: int = _setting(
        4,
        "SHARDPOOL_SEED_CONCURRENCY",
        "Reads from the seed that one rank has under way at once.",
        _whole(1, 64),
        group="Seed",
    )
    seed_readers: int = _setting(
        0,
        "SHARDPOOL_SEED_READERS",
        "How many replicas may read the seed at once; 0 is no limit.",
        _whole(0, 65536),
        group="Seed",
    )
    hub_endpoint: str = _setting("https://huggingface.co", "HF_ENDPOINT", "Address of the hub.", group="Seed")
    hub_token: str = _setting("", "HF_TOKEN", "Token for the hub. Never logged.", group="Seed")
    s3_endpoint: str = _setting(
        "", "AWS_ENDPOINT_URL_S3 AWS_ENDPOINT_URL", "Address of an S3-compatible store; empty: AWS.", group="Seed"
    )
    s3_region: str = _setting("", "AWS_REGION AWS_DEFAULT_REGION", "Region of the bucket.", group="Seed")

    # Peers
    discovery: str = _setting(
        "",
        "SHARDPOOL_DISCOVERY",
        "How peers are found; empty: by what is set below.",
        choices=("", *DISCOVERIES),
        group="Peers",
    )
    peers_pattern: str = _setting(
        "",
        "SHARDPOOL_PEERS_PATTERN",
        "Headless Service whose DNS name lists every peer of a rank; `{rank}` is replaced.",
        group="Peers",
    )
    peers: str = _setting(
        "", "SHARDPOOL_PEERS", "Static peers `HOST:PORT,...`; `{port}` and `{rank}` are replaced.", group="Peers"
    )
    metadata_backend: str = _setting(
        "", "MX_METADATA_BACKEND", "ModelExpress's name of the discovery: `k8s-service` or `service`.", group="Peers"
    )
    service_pattern: str = _setting(
        "mx-sources",
        "MX_K8S_SERVICE_PATTERN",
        "Service of a rank; `{rank}` is replaced, a port may be given.",
        group="Peers",
    )
    source_retries: int = _setting(
        5, "MX_K8S_SOURCE_RETRIES", "Further attempts at a Service after the first.", _whole(0, 1000), group="Peers"
    )
    source_backoff_seconds: float = _setting(
        0.5, "MX_K8S_SOURCE_BACKOFF_SECONDS", "Pause between rounds of attempts.", _SECONDS, group="Peers"
    )
    worker_host: str = _setting("", "MX_WORKER_HOST POD_IP", "Address of this pod as told to peers.", group="Peers")

    # Serving
    worker_grpc_port: int = _setting(
        6555, "MX_WORKER_GRPC_PORT", "Base port: a process binds base + local rank.", _PORT, group="Serving"
    )
    metadata_port: int = _setting(
        5555, "MX_METADATA_PORT", "Base port of NIXL's own listener, where interop asks for it.", _PORT, group="Serving"
    )
    nixl_listener: bool = _setting(
        False,
        "SHARDPOOL_NIXL_LISTENER",
        "Open NIXL's own listener, which stock ModelExpress receivers need.",
        _boolean,
        group="Serving",
    )
    bind_host: str = _setting(
        "", "SHARDPOOL_BIND_HOST", "Address to bind; empty: every IPv6 and IPv4 address.", group="Serving"
    )
    http_port: int = _setting(
        9465, "SHARDPOOL_HTTP_PORT", "Port of /readyz, /livez, /status and /metrics.", _whole(0, 65535), group="Serving"
    )
    http_host: str = _setting(
        "", "SHARDPOOL_HTTP_HOST", "Address of the HTTP port; empty: every address.", group="Serving"
    )
    transport: str = _setting("auto", "SHARDPOOL_TRANSPORT", "How bytes move.", choices=TRANSPORTS, group="Serving")
    egress_limit_mbps: float = _setting(
        0.0,
        "SHARDPOOL_EGRESS_LIMIT_MBPS",
        "Cap on what a rank sends, in megabits a second; 0 is none.",
        _number(0, 1e7),
        group="Serving",
    )
    egress_limit_file: str = _setting(
        "",
        "SHARDPOOL_EGRESS_LIMIT_FILE",
        "File that holds the cap as a number; looked at each second, so that it can be changed while serving. Wins over the setting.",
        group="Serving",
    )
    max_readers: int = _setting(
        8,
        "SHARDPOOL_MAX_READERS",
        "Receivers that a rank serves at once; others are told when to come back.",
        _whole(1, 1024),
        group="Serving",
    )
    lease_seconds: float = _setting(
        30.0,
        "SHARDPOOL_LEASE_SECONDS",
        "A lease that is not renewed ends after this.",
        _number(1, 3600),
        group="Serving",
    )
    drain_seconds: float = _setting(
        20.0,
        "SHARDPOOL_DRAIN_SECONDS",
        "On SIGTERM, how long leased reads may take to finish.",
        _SECONDS,
        group="Serving",
    )
    rank_failure: str = _setting(
        "restart",
        "SHARDPOOL_RANK_FAILURE",
        "What follows when the process of a rank dies.",
        choices=RANK_FAILURE_POLICIES,
        group="Serving",
    )
    tls_cert: str = _setting(
        "",
        "SHARDPOOL_TLS_CERT",
        "Certificate chain (PEM) of this pod; with key and CA, peers must show one of the same CA.",
        group="Serving",
    )
    tls_key: str = _setting("", "SHARDPOOL_TLS_KEY", "Private key (PEM).", group="Serving")
    tls_ca: str = _setting("", "SHARDPOOL_TLS_CA", "CA certificates (PEM).", group="Serving")

    # Time
    deadline_seconds: float = _setting(
        3600.0, "SHARDPOOL_DEADLINE_SECONDS", "Bound on a whole load.", _number(0.1, 7 * 24 * 3600), group="Time"
    )
    wait_for_peers_seconds: float = _setting(
        30.0,
        "SHARDPOOL_WAIT_FOR_PEERS_SECONDS",
        "With no seed, how long to look for a first peer; for `wait`, how long to hold a pod back.",
        _SECONDS,
        group="Time",
    )
    stall_seconds: float = _setting(
        10.0,
        "SHARDPOOL_STALL_SECONDS",
        "A transfer without a byte of progress for so long is given up.",
        _number(0.1, 3600),
        group="Time",
    )
    connect_seconds: float = _setting(
        2.0, "SHARDPOOL_CONNECT_SECONDS", "Bound on connecting to a peer.", _number(0.1, 60), group="Time"
    )

    # Operation
    log_level: str = _setting(
        "info",
        "SHARDPOOL_LOG_LEVEL",
        "How much is logged.",
        choices=("debug", "info", "warning", "error"),
        group="Operation",
    )
    log_format: str = _setting(
        "text", "SHARDPOOL_LOG_FORMAT", "Lines for people or for machines.", choices=("text", "json"), group="Operation"
    )
    plan: str = _setting("", "SHARDPOOL_PLAN", "Path of the release's plan (JSON).", group="Operation")
    engine_health_url: str = _setting(
        "", "SHARDPOOL_ENGINE_HEALTH_URL", "What `gate` asks for the engine's health.", group="Operation"
    )
    pod_name: str = _setting("", "POD_NAME", "Downward API.", group="Operation")
    pod_namespace: str = _setting("", "POD_NAMESPACE", "Downward API.", group="Operation")
    node_name: str = _setting("", "NODE_NAME", "Downward API.", group="Operation")

    def __post_init__(self) -> None:
        ranks = range(self.global_first_rank, self.global_first_rank + self.ranks_here)
        if self.ranks_here > self.world or ranks.stop > self.world:
            raise ConfigurationError(
                f"ranks {ranks.start} to {ranks.stop - 1} do not fit a world of {self.world}",
                hint="set SHARDPOOL_WORLD, SHARDPOOL_LOCAL_RANKS, SHARDPOOL_FIRST_RANK so that first + local <= world",
            )
        if self.layout == "whole" and self.world != 1:
            raise ConfigurationError(
                f"layout whole is for a world of 1, not {self.world}",
                hint="set SHARDPOOL_LAYOUT=striped or SHARDPOOL_WORLD=1",
            )
        for base, name in ((self.worker_grpc_port, "MX_WORKER_GRPC_PORT"), (self.metadata_port, "MX_METADATA_PORT")):
            if base + self.ranks_here - 1 > 65535:
                raise ConfigurationError(
                    f"{name} {base} + {self.ranks_here} local ranks passes port 65535", hint=f"lower {name}"
                )
        if len({bool(self.tls_cert), bool(self.tls_key), bool(self.tls_ca)}) != 1:
            raise ConfigurationError(
                "TLS needs a certificate, a key and a CA",
                hint="set all of SHARDPOOL_TLS_CERT, SHARDPOOL_TLS_KEY, SHARDPOOL_TLS_CA, or none",
            )
        digests = self.content_digest.split(",") if self.content_digest else []
        if digests and (
            len(digests) != self.world or not all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in digests)
        ):
            raise ConfigurationError(
                f"SHARDPOOL_CONTENT_DIGEST is not {self.world} times 64 lower-case hex digits, comma-separated",
                hint="take them from `shardpool inspect` of a pool that you trust",
            )

    def content_digest_of(self, rank: int) -> bytes | None:
        """The pinned content digest of a global rank (32 bytes), None where none is pinned."""
        return bytes.fromhex(self.content_digest.split(",")[rank]) if self.content_digest else None

    @property
    def ranks_here(self) -> int:
        """Number of ranks in this pod."""
        return self.world if self.local_ranks is None else self.local_ranks

    @property
    def global_first_rank(self) -> int:
        """Global rank of this pod's first rank."""
        if self.first_rank is not None:
            return self.first_rank
        return (self.pod_index * self.ranks_here) % self.world

    def require_model(self) -> None:
        """Raise ConfigurationError unless model and a usable revision are set."""
        if not self.model:
            raise ConfigurationError("no model is set", hint="give --model or SHARDPOOL_MODEL")
        if not _PINNED.fullmatch(self.revision) and not self.allow_unpinned:
            raise ConfigurationError(
                f"revision {self.revision!r} is not pinned",
                hint="give 40 hex digits of a commit or sha256:<64 hex>, or SHARDPOOL_ALLOW_UNPINNED=true",
            )

    @classmethod
    def load(
        cls, environment: Mapping[str, str] | None = None, flags: Mapping[str, str | None] | None = None
    ) -> Settings:
        """Read settings from the environment; `flags` (field name to text, None is unset) win over it.

        Raises ConfigurationError that lists every value that cannot be used, not only the first.
        """
        environment = os.environ if environment is None else environment
        flags = flags or {}
        values: dict[str, Any] = {}
        mistakes: list[str] = []
        for entry in dataclasses.fields(cls):
            raw, name = flags.get(entry.name), "--" + entry.name.replace("_", "-")
            if raw is None:
                name = next((n for n in entry.metadata["names"] if environment.get(n, "") != ""), "")
                if not name:
                    continue
                raw = environment[name]
            try:
                values[entry.name] = entry.metadata["parse"](raw)
            except ValueError as error:
                reason = str(error) if str(error).startswith("is not") else "is not a number"
                mistakes.append(f"{name}={raw!r} {reason}")
        if mistakes:
            raise ConfigurationError(
                "; ".join(mistakes), hint="`shardpool serve --help` and docs/settings.md list what each takes"
            )
        return cls(**values)
