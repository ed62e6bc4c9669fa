"""The one error hierarchy: a type per decision that a caller can take, an exit code per type.

Every error says what went wrong, where, and what to do next. `str(error)` is one line fit for a log or a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class ShardpoolError(Exception):
    """Base of every error that shardpool raises on purpose.

    Args:
        what: what went wrong, naming the thing (a path, a peer, a setting) it happened to.
        hint: what to do next; shown after the text.
    """

    exit_code = 1

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}; {self.hint}" if self.hint else self.what


class ConfigurationError(ShardpoolError):
    """A setting, flag or input file of the user cannot be used as it is."""

    exit_code = 2


class NoSourceError(ShardpoolError):
    """Neither a peer nor the seed could provide the missing bytes."""

    exit_code = 3


class SeedError(NoSourceError):
    """The seed (directory, hub, S3) could not be read.

    `transient` says whether the same read may succeed later.
    """

    def __init__(self, what: str, *, hint: str = "", transient: bool = False) -> None:
        super().__init__(what, hint=hint)
        self.transient = transient


class IntegrityError(ShardpoolError):
    """Bytes differ from their digest, or input contradicts itself."""

    exit_code = 4


class CheckpointError(IntegrityError):
    """A checkpoint's files are not what they claim to be (truncated, overlapping, missing...)."""


class CatalogError(IntegrityError):
    """A catalog from a peer breaks a bound or contradicts itself."""


class DeadlineExceededError(ShardpoolError):
    """The whole load, or a step with a deadline of its own, took too long."""

    exit_code = 5


class StoreError(ShardpoolError):
    """The model directory cannot be written: no space, read-only, locked, permissions."""

    exit_code = 6


class MismatchError(ShardpoolError):
    """A peer is not of this pool.

    `reason` is one of `identity`, `rank`, `catalog`, `protocol`, `instance`, `self`; it labels the metric of rejected peers.
    """

    exit_code = 7

    def __init__(self, what: str, *, reason: str, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.reason = reason


class TensorMismatchError(MismatchError):
    """A ModelExpress source has other tensors than were asked for.

    `missing` are those that it has not, `unknown` those that nobody asked for, `differing` those of another size or dtype, by name with
    the difference.
    """

    _SHOWN = 20

    def __init__(
        self, where: str, *, missing: tuple[str, ...], unknown: tuple[str, ...], differing: Mapping[str, str]
    ) -> None:
        self.missing, self.unknown, self.differing = missing, unknown, dict(differing)
        parts = [
            self._listed("missing", missing),
            self._listed("unknown", unknown),
            self._listed("differing", [f"{name} ({why})" for name, why in differing.items()]),
        ]
        super().__init__(
            f"{where} has other tensors: {'; '.join(part for part in parts if part)}",
            reason="tensors",
            hint="compare model, revision and topology of the two ends",
        )

    def _listed(self, what: str, names: Sequence[str]) -> str:
        if not names:
            return ""
        rest = len(names) - self._SHOWN
        return f"{len(names)} {what}: {', '.join(names[: self._SHOWN])}{f' and {rest} more' if rest > 0 else ''}"


class RankDiedError(ShardpoolError):
    """The process of a local rank ended, and policy says not to restart it."""

    exit_code = 8


class TransportError(ShardpoolError):
    """A transfer or a call to one peer failed; another peer may do."""

    exit_code = 3


class PeerUnreachableError(TransportError):
    """No connection, a reset, a deadline, or something that does not speak our protocol answered."""


class PeerBusyError(TransportError):
    """The source admits no further reader now. `retry_after` is in seconds."""

    def __init__(self, what: str, *, retry_after: float, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.retry_after = retry_after


class PieceLentError(TransportError):
    """The source has sent the piece to another receiver, who passes it on; `lent` are all such pieces, as bits."""

    def __init__(self, what: str, *, lent: int) -> None:
        super().__init__(what)
        self.lent = lent


class LeaseError(TransportError):
    """The lease of a read is unknown, expired, or released."""


class AbandonedError(TransportError):
    """The receiver itself gave the transfer up; nothing writes into its buffer any more."""
