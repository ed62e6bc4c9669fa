"""An S3 bucket, of AWS or of a store that speaks its protocol."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from shardpool.errors import ConfigurationError, SeedError
from shardpool.seed.base import SeedFile
from shardpool.seed.filling import SLICE, fill, repeat

try:
    import boto3
    import botocore.config
    import botocore.session
    from botocore import exceptions as faults
except ImportError as error:
    raise ConfigurationError(
        f"an s3:// seed needs a package that is not installed ({error.name})", hint="pip install 'shardpool[s3]'"
    ) from None

CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0
"""Longest silence within a response."""

_ADDRESS = re.compile(r"s3://([a-z0-9A-Z][a-z0-9A-Z._-]{1,254})(?:/(.*))?", re.DOTALL)
_PARTS = re.compile(r'-\d+"?$')
_PASSING = {"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "RequestTimeTooSkewed", "Throttling"}
_NO_CREDENTIALS = (
    "give the pod AWS credentials: a service account with a role, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_HINTS = {
    "AccessDenied": "the credentials need s3:ListBucket on the bucket and s3:GetObject on the prefix",
    "403": "the credentials need s3:ListBucket on the bucket and s3:GetObject on the prefix",
    "NoSuchBucket": "check SHARDPOOL_SEED, AWS_REGION and AWS_ENDPOINT_URL_S3",
    "InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID, and that it belongs to this endpoint",
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "renew AWS_SESSION_TOKEN, or use a service account with a role",
    "InvalidToken": "check AWS_SESSION_TOKEN",
    "PermanentRedirect": "set AWS_REGION to the bucket's region",
    "AuthorizationHeaderMalformed": "set AWS_REGION to the bucket's region",
    "IllegalLocationConstraintException": "set AWS_REGION to the bucket's region",
    "SecondLevelDomainForbidden": "set `addressing_style = virtual` in the s3 section of the AWS configuration",
}


@dataclass(frozen=True, slots=True)
class _Object:
    key: str
    etag: str
    file: SeedFile


class S3Seed:
    """The objects below a prefix. Each is read only as long as it is the one that was listed (by its ETag).

    Args:
        address: `s3://BUCKET/PREFIX`.
        endpoint: address of the store; empty: what the AWS configuration says, AWS itself otherwise.
        region: empty: what the AWS configuration says.
        connections: kept at once.
    """

    def __init__(self, address: str, *, endpoint: str = "", region: str = "", connections: int = 4) -> None:
        match = _ADDRESS.fullmatch(address)
        if match is None:
            raise ConfigurationError(f"SHARDPOOL_SEED={address!r} names no bucket", hint="write s3://BUCKET/PREFIX")
        self._bucket = match[1]
        self._prefix = (match[2] or "").strip("/")
        self._endpoint = endpoint
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._listed: dict[str, _Object] | None = None
        self._active: set[Any] = set()
        self._client = self._connect(endpoint, region, connections)

    def describe(self) -> str:
        """Such as `s3://models/qwen at http://minio:9000`."""
        at = f" at {urlsplit(self._endpoint).netloc.rpartition('@')[2]}" if self._endpoint else ""
        return f"s3://{self._bucket}/{self._prefix}{at}"

    def files(self) -> Sequence[SeedFile]:
        """List the prefix once, page by page; later calls repeat what was found."""
        return [entry.file for entry in self._listing().values()]

    def read_into(self, path: str, offset: int, buffer: memoryview) -> None:
        """Fill the buffer by ranged reads, going on where a response broke off."""
        entry = self._listing().get(path)
        where = f"{path} of {self.describe()}"
        if entry is None:
            raise SeedError(f"{where} is not an object of the seed")
        if offset < 0 or offset + len(buffer) > entry.file.size:
            raise SeedError(f"{where}: bytes {offset} to {offset + len(buffer)} are outside its {entry.file.size}")
        fill(buffer, offset, lambda at, rest: self._fetch(entry, where, at, rest), where=where, stop=self._stop)

    def close(self) -> None:
        """Cut reads under way off."""
        self._stop.set()
        with self._lock:
            active = list(self._active)
        for raw in active:
            with suppress(OSError, ValueError, RuntimeError, AttributeError):
                raw.shutdown()
        self._client.close()

    def _connect(self, endpoint: str, region: str, connections: int) -> Any:
        if endpoint and (urlsplit(endpoint).scheme not in {"http", "https"} or not urlsplit(endpoint).hostname):
            raise ConfigurationError(
                f"AWS_ENDPOINT_URL_S3={endpoint!r} is not an address", hint="write http://HOST:PORT"
            )
        try:
            core = botocore.session.get_session()
            session = boto3.session.Session(botocore_session=core, region_name=region or None)
            configured = core.get_scoped_config().get("s3") or {}
            # A bucket as a part of the host name needs DNS for it, which stores inside a cluster rarely have.
            own = bool(endpoint) and not (urlsplit(endpoint).hostname or "").endswith(".amazonaws.com")
            style = configured.get("addressing_style") or ("path" if own else "auto")
            config = botocore.config.Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                max_pool_connections=max(connections, 8),
                retries={"total_max_attempts": 1, "mode": "standard"},  # repeated here, from where a read broke off
                s3={"addressing_style": style},
                # A range has no checksum of its own; every byte is checked by its piece's digest.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                user_agent_extra="shardpool",
                tcp_keepalive=True,
            )
            return session.client("s3", endpoint_url=endpoint or None, config=config)
        except (faults.BotoCoreError, ValueError) as error:
            raise ConfigurationError(
                f"{self.describe()}: the AWS configuration cannot be used: {error}", hint="check AWS_* and AWS_PROFILE"
            ) from error

    def _listing(self) -> dict[str, _Object]:
        with self._lock:
            listed = self._listed
        if listed is None:
            found: list[_Object] = []
            repeat(lambda: self._list(found), stop=self._stop, where=self.describe())
            listed = {entry.file.path: entry for entry in sorted(found, key=lambda entry: entry.file.path)}
            with self._lock:
                self._listed = listed
        return listed

    def _list(self, found: list[_Object]) -> None:
        found.clear()
        start = f"{self._prefix}/" if self._prefix else ""
        summaries: list[dict[str, Any]] = []
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=start):
                summaries.extend(page.get("Contents", ()))
        except (faults.BotoCoreError, faults.ClientError) as error:
            raise self._failure(error, self.describe()) from error
        kept = [summary for summary in summaries if not summary["Key"].endswith("/")]  # consoles make folders of these
        if not kept:
            raise SeedError(f"{self.describe()} holds no object", hint="check the prefix in SHARDPOOL_SEED")
        with ThreadPoolExecutor(8, "s3-checksums") as pool:
            for summary, sha256 in zip(kept, pool.map(self._sha256, kept), strict=True):
                file = SeedFile(summary["Key"].removeprefix(start), int(summary["Size"]), sha256)
                found.append(_Object(summary["Key"], summary["ETag"], file))

    def _sha256(self, summary: dict[str, Any]) -> str:
        """The SHA-256 that the store keeps of a whole object, where whoever uploaded it asked for one."""
        in_parts = _PARTS.search(summary["ETag"]) or summary.get("ChecksumType") == "COMPOSITE"
        if in_parts or "SHA256" not in summary.get("ChecksumAlgorithm", ()):
            return ""  # of an upload in parts the store keeps a digest of the parts' digests
        try:
            head = self._client.head_object(
                Bucket=self._bucket, Key=summary["Key"], ChecksumMode="ENABLED", IfMatch=summary["ETag"]
            )
        except (faults.BotoCoreError, faults.ClientError) as error:
            raise self._failure(error, f"{summary['Key']} of {self.describe()}") from error
        stated = head.get("ChecksumSHA256", "")
        with suppress(ValueError):
            digest = base64.b64decode(stated, validate=True)
            if len(digest) == 32 and head.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT":
                return digest.hex()
        return ""

    def _fetch(self, entry: _Object, where: str, offset: int, buffer: memoryview) -> Iterator[int]:
        last = offset + len(buffer) - 1
        try:
            answer = self._client.get_object(
                Bucket=self._bucket, Key=entry.key, Range=f"bytes={offset}-{last}", IfMatch=entry.etag
            )
            body = answer["Body"]
            with closing(body):
                stated = answer.get("ContentRange", "")
                whole = not stated and offset == 0 and len(buffer) == entry.file.size
                if stated != f"bytes {offset}-{last}/{entry.file.size}" and not whole:
                    raise SeedError(
                        f"{where}: asked for bytes {offset} to {last} of {entry.file.size}, got {stated or 'no range'!r}",
                        hint="the object has changed, or the store ignores ranges",
                    )
                yield from self._body(body, buffer)
        except (faults.BotoCoreError, faults.ClientError, OSError) as error:
            raise self._failure(error, where) from error

    def _body(self, body: Any, buffer: memoryview) -> Iterator[int]:
        raw = getattr(body, "_raw_stream", None)  # only to cut it off in `close`
        with self._lock:
            self._active.add(raw)
        try:
            done = 0
            while done < len(buffer):
                count = body.readinto(buffer[done : done + SLICE])
                if not count:
                    return
                done += count
                yield count
            body.read(1)  # the end, after which the connection is free for the next read
        finally:
            with self._lock:
                self._active.discard(raw)

    def _failure(self, error: Exception, where: str) -> SeedError:
        if isinstance(error, faults.ClientError):
            fault = error.response.get("Error", {})
            code = str(fault.get("Code", ""))
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            if code in {"PreconditionFailed", "412"} or status == 412:
                return SeedError(
                    f"{where} has changed since it was listed", hint="a seed must not change; start the replica again"
                )
            if code in {"NoSuchKey", "404"}:
                return SeedError(f"{where} is gone since it was listed", hint="a seed must not change")
            if code in {"InvalidRange", "416"}:
                return SeedError(f"{where} is shorter than its listing says", hint="the object has changed")
            text = f"{where}: the store answers {code or status}: {fault.get('Message', '')}".rstrip(": ")
            return SeedError(
                text, hint=_HINTS.get(code, ""), transient=code in _PASSING or status in {429} or status >= 500
            )
        if isinstance(error, faults.NoCredentialsError | faults.PartialCredentialsError):
            return SeedError(f"{where} cannot be read without credentials: {error}", hint=_NO_CREDENTIALS)
        if isinstance(error, faults.CredentialRetrievalError | faults.TokenRetrievalError | faults.ProfileNotFound):
            return SeedError(f"{where}: credentials could not be had: {error}", hint=_NO_CREDENTIALS)
        if isinstance(error, faults.SSLError):
            return SeedError(f"{where} cannot be trusted: {error}", hint="put its CA in AWS_CA_BUNDLE")
        if isinstance(error, faults.ParamValidationError | faults.InvalidRegionError | faults.NoRegionError):
            return SeedError(f"{where}: {error}", hint="check SHARDPOOL_SEED and AWS_REGION")
        passing = isinstance(
            error, OSError | faults.ConnectionError | faults.HTTPClientError | faults.IncompleteReadError
        )
        hint = "check AWS_ENDPOINT_URL_S3, the network and the proxy settings"
        return SeedError(f"{where} cannot be read: {error}", hint=hint, transient=passing)
