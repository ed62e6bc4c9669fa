"""The one interface behind which a model's first copy lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SeedFile:
    """A published file: relative POSIX path, size in bytes, and its SHA-256 (hex) where the publisher states one."""

    path: str
    size: int
    sha256: str = ""


class Seed(Protocol):
    """Ranged, thread-safe, read-only access to one revision of a model."""

    def describe(self) -> str:
        """One phrase for logs and errors; never a secret."""

    def files(self) -> Sequence[SeedFile]:
        """Every file of the revision, sorted by path. Raises SeedError."""

    def read_into(self, path: str, offset: int, buffer: memoryview) -> None:
        """Fill the whole buffer from `offset` of a file. Raises SeedError (never fills it partly without an error)."""

    def close(self) -> None:
        """Free connections and descriptors. Reads under way end with SeedError."""
