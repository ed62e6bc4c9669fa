"""What a load did, in numbers and in one line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSummary:
    """The outcome of one load of one rank.

    Args:
        transport: name of the transport.
        bytes_from: verified bytes by origin: `peer`, `seed`, `resume` (found in the store and verified again).
        seconds: from the start to the last verified piece.
        pieces: pieces of the shard.
        refetched: pieces of which some bytes came more than once or in vain.
        peers_used: endpoints that delivered at least one verified piece.
        rejected: endpoint -> why it was not, or no longer, used.
        rejections: reason label (as in the metric of rejected peers) -> count.
        fallbacks: reason -> pieces read from the seed although peers offered them.
    """

    transport: str = ""
    bytes_from: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    pieces: int = 0
    refetched: int = 0
    peers_used: tuple[str, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    rejections: Mapping[str, int] = field(default_factory=dict)
    fallbacks: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Verified bytes in all."""
        return sum(self.bytes_from.values())

    def line(self) -> str:
        """One line for the log: bytes by origin, rate, pieces refetched, and why peers were not used."""
        moved = self.size - self.bytes_from.get("resume", 0)
        rate = f" ({_amount(moved / self.seconds)}/s)" if self.seconds > 0 and moved else ""
        origins = ", ".join(f"{_amount(count)} from {_ORIGIN[key]}" for key, count in self.bytes_from.items() if count)
        parts = [f"{_amount(self.size)} in {self.seconds:.1f} s{rate}: {origins or 'nothing to fetch'}"]
        if self.peers_used:
            parts.append(f"{len(self.peers_used)} peer{'s' if len(self.peers_used) > 1 else ''} over {self.transport}")
        if self.refetched:
            parts.append(f"{self.refetched} pieces refetched")
        parts += [f"{count} pieces read from the seed since {reason}" for reason, count in self.fallbacks.items()]
        if self.rejected:
            named = sorted(self.rejected.items())
            shown = ", ".join(f"{name} ({reason})" for name, reason in named[:8])
            parts.append(f"not used: {shown}" + (f" and {len(named) - 8} more" if len(named) > 8 else ""))
        return "; ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


_ORIGIN = {"peer": "peers", "seed": "the seed", "resume": "the store"}


def _amount(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


__all__ = ["LoadSummary"]
