"""The command line of the bench on shaped links."""

from __future__ import annotations

import pytest
from netns.__main__ import arguments
from netns.play import FAULTS


@pytest.mark.parametrize(
    ("line", "faults"),
    [([], tuple(FAULTS)), (["--faults", "none"], ()), (["--faults", ""], ()), (["--faults", "killed"], ("killed",))],
    ids=str,
)
def test_the_failure_tax_can_be_left_out(line: list[str], faults: tuple[str, ...]) -> None:
    assert arguments(line).faults == faults


def test_numbers_of_receivers_are_a_list() -> None:
    assert arguments(["--receivers", "1,4"]).receivers == (1, 4)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (["--lanes", "0"], "at least 1"),
        (["--contenders", "rsync"], "choose from"),
        (["--faults", "rain"], "choose from"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(line: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(line)
    assert problem in capsys.readouterr().err
