"""The Hugging Face hub, or what speaks its protocol at HF_ENDPOINT."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from types import ModuleType
from urllib.parse import quote, urlsplit

from shardpool.errors import ConfigurationError, SeedError
from shardpool.seed.base import SeedFile
from shardpool.seed.filling import fill, repeat

try:
    import huggingface_hub

    from shardpool.seed.ranged import RangedClient, RefusedError
except ImportError as error:
    raise ConfigurationError(
        f"SHARDPOOL_SEED=hf needs a package that is not installed ({error.name})", hint="pip install 'shardpool[hub]'"
    ) from None

METADATA_SECONDS = 30.0
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


class HubSeed:
    """One revision of a model on the hub. A branch or tag is pinned to its commit when the files are listed.

    Args:
        model: hub id.
        revision: 40 hex digits, or a branch or tag; empty is `main`.
        endpoint: address of the hub.
        token: empty: the one that `hf auth login` saved, if any.
        connections: kept per host.
    """

    def __init__(self, model: str, revision: str, *, endpoint: str, token: str = "", connections: int = 4) -> None:
        if not _ID.fullmatch(model):
            raise ConfigurationError(f"{model!r} is not a hub id", hint="set SHARDPOOL_MODEL to OWNER/NAME")
        if revision.startswith("sha256:"):
            raise ConfigurationError(
                f"the hub knows commits, not {revision}", hint="set SHARDPOOL_REVISION to the 40 hex digits of a commit"
            )
        if urlsplit(endpoint).scheme not in {"http", "https"} or not urlsplit(endpoint).hostname:
            raise ConfigurationError(f"HF_ENDPOINT={endpoint!r} is not an address", hint="write https://HOST")
        self._model = model
        self._revision = revision or "main"
        self._endpoint = endpoint.rstrip("/")
        self._token = token or huggingface_hub.get_token() or ""
        self._stop = threading.Event()
        self._client = RangedClient(token=self._token, connections=connections, stop=self._stop)
        self._lock = threading.Lock()
        self._listed: dict[str, SeedFile] | None = None

    def describe(self) -> str:
        """Such as `hub https://huggingface.co/Qwen/Qwen2.5-7B@0123456`."""
        revision = self._revision[:7] if _COMMIT.fullmatch(self._revision) else self._revision
        return f"hub {urlsplit(self._endpoint).scheme}://{_bare(self._endpoint)}/{self._model}@{revision}"

    def files(self) -> Sequence[SeedFile]:
        """Ask the hub once; later calls repeat what it said."""
        return list(self._listing().values())

    def read_into(self, path: str, offset: int, buffer: memoryview) -> None:
        """Fill the buffer by ranged reads, going on where a response broke off."""
        file = self._listing().get(path)
        where = f"{path} of {self.describe()}"
        if file is None:
            raise SeedError(f"{where} is not a file of this revision")
        if offset < 0 or offset + len(buffer) > file.size:
            raise SeedError(f"{where}: bytes {offset} to {offset + len(buffer)} are outside its {file.size}")
        url = f"{self._endpoint}/{self._model}/resolve/{quote(self._revision, safe='')}/{quote(path)}"

        def fetch(at: int, rest: memoryview) -> Iterator[int]:
            try:
                yield from self._client.read(url, file.size, at, rest)
            except RefusedError as refusal:
                raise self._refused(where, refusal.status, refusal.code, refusal.message, refusal.host) from None

        fill(buffer, offset, fetch, where=where, stop=self._stop)

    def close(self) -> None:
        """Cut reads under way off."""
        self._stop.set()
        self._client.close()

    def _listing(self) -> dict[str, SeedFile]:
        with self._lock:
            if self._listed is None:
                repeat(self._list, stop=self._stop, where=self.describe())
            return self._listed or {}

    def _list(self) -> None:
        errors = _errors()
        api = huggingface_hub.HfApi(endpoint=self._endpoint, token=self._token or False)
        try:
            info = api.model_info(self._model, revision=self._revision, files_metadata=True, timeout=METADATA_SECONDS)
        except errors.OfflineModeIsEnabled:
            raise SeedError(
                f"{self.describe()} must not be asked: HF_HUB_OFFLINE is set", hint="unset it for this container"
            ) from None
        except errors.HfHubHTTPError as error:
            response = error.response
            status = getattr(response, "status_code", 0)
            headers = getattr(response, "headers", {})
            if status in {408, 429} or status >= 500:
                raise SeedError(f"{self.describe()} answers {status}", transient=True) from error
            code, message = headers.get("X-Error-Code", ""), headers.get("X-Error-Message", "")
            raise self._refused(self.describe(), status, code, message, _bare(self._endpoint)) from error
        except _network_errors(errors) as error:
            raise SeedError(
                f"{self.describe()} cannot be reached: {error}",
                hint="check HF_ENDPOINT, the network and the proxy settings",
                transient=True,
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SeedError(
                f"{self.describe()} does not answer as a hub does: {error}", hint="check HF_ENDPOINT"
            ) from error
        self._take(info)

    def _take(self, info: huggingface_hub.ModelInfo) -> None:
        files = []
        for sibling in info.siblings or ():
            if sibling.size is None:
                raise SeedError(f"{self.describe()} gives no size for {sibling.rfilename}", hint="check HF_ENDPOINT")
            lfs = sibling.lfs
            files.append(SeedFile(sibling.rfilename, sibling.size, str(lfs["sha256"]) if lfs else ""))
        if not files:
            raise SeedError(f"{self.describe()} holds no file", hint="check SHARDPOOL_MODEL and SHARDPOOL_REVISION")
        if info.sha and _COMMIT.fullmatch(info.sha):
            self._revision = info.sha
        self._listed = {file.path: file for file in sorted(files, key=lambda file: file.path)}

    def _refused(self, where: str, status: int, code: str, message: str, host: str) -> SeedError:
        """What a status of the hub means, and what to do about it."""
        token = "the token in HF_TOKEN" if self._token else "no token"
        if code == "GatedRepo":
            hint = "ask for access on the model's page, with the account that HF_TOKEN belongs to"
            return SeedError(f"{where} is gated, and {token} does not open it", hint=hint)
        if code == "RevisionNotFound":
            return SeedError(f"{where}: the hub has no such revision", hint="check SHARDPOOL_REVISION")
        if code == "EntryNotFound":
            return SeedError(f"{where}: the hub no longer has the file", hint="check SHARDPOOL_REVISION")
        if status == 401 or code == "RepoNotFound" or (status == 404 and not code):
            hint = "check SHARDPOOL_MODEL; a private model needs HF_TOKEN"
            return SeedError(f"{where} does not exist or is private ({host} answers {status} to {token})", hint=hint)
        if status == 416:
            return SeedError(f"{where} is shorter than the hub's listing says", hint="the file has changed")
        reason = f": {message}" if message else ""
        return SeedError(f"{where}: {host} answers {status} to {token}{reason}", hint="check HF_TOKEN and HF_ENDPOINT")


def _errors() -> ModuleType:
    import huggingface_hub.errors

    return huggingface_hub.errors


def _network_errors(errors: ModuleType) -> tuple[type[Exception], ...]:
    """What the hub's client raises without an answer: its HTTP library, which has changed with its version, has its own."""
    bases = [base for base in errors.HfHubHTTPError.__mro__ if issubclass(base, Exception)]
    return tuple(base for base in bases if base not in {errors.HfHubHTTPError, Exception})


def _bare(endpoint: str) -> str:
    return urlsplit(endpoint).netloc.rpartition("@")[2]
