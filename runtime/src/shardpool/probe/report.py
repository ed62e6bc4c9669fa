"""What a preflight found: checks with a verdict each, as a table for people and as JSON."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: `ok`, `warn` (works, but not as it could) or `fail`; what was seen; what to do about it."""

    name: str
    verdict: str
    seen: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All checks in the order they were made."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """No check failed."""
        return all(check.verdict != FAIL for check in self.checks)

    def as_json(self) -> str:
        """`{"ok": bool, "checks": [{"name", "verdict", "seen", "hint"}, ...]}`."""
        return json.dumps({"ok": self.ok, "checks": [asdict(check) for check in self.checks]}, indent=2)

    def as_text(self, width: int = 0) -> str:
        """A table with one check a line, and a last line that sums up."""
        width = width or shutil.get_terminal_size((120, 24)).columns
        names = max((len(check.name) for check in self.checks), default=0)
        lines: list[str] = []
        for check in self.checks:
            lines.extend(_row(check, names, width))
        counts = {verdict: sum(check.verdict == verdict for check in self.checks) for verdict in (OK, WARN, FAIL)}
        lines.append(f"{counts[OK]} ok, {counts[WARN]} warnings, {counts[FAIL]} failures")
        return "\n".join(lines)


def _row(check: Check, names: int, width: int) -> Sequence[str]:
    head = f"{check.verdict:<5} {check.name:<{names}}  "
    text = f"{check.seen}; {check.hint}" if check.hint else check.seen
    room = max(width - len(head), 40)
    wrapped = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    return [head + wrapped[0], *(" " * len(head) + line for line in wrapped[1:])]
