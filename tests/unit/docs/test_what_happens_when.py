"""docs/what-happens-when.md promises nothing that no test shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "what-happens-when.md"
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| (?!when|-)", line)]
LINK = re.compile(r"\[([a-z0-9 ]+)\]\((\.\./tests/[\w/]+\.py)\) \|$")


@pytest.mark.parametrize("row", ROWS)
def test_the_row_links_to_a_test_that_is_there(row: str) -> None:
    link = LINK.search(row)

    assert link, "a row ends with a link to its test"
    name = "test_" + link[1].replace(" ", "_")
    assert f"def {name}(" in (PAGE.parent / link[2]).read_text(encoding="utf-8")


def test_the_page_has_rows() -> None:
    assert len(ROWS) > 30
