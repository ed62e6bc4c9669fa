"""The conversation of a node and its ranks."""

from __future__ import annotations

import io
import os

import pytest

from shardpool.control import Pipe


def test_messages_arrive_as_they_were_sent() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "r") as incoming, os.fdopen(write, "w") as outgoing:
        sender = Pipe(io.StringIO(), outgoing)
        sender.send("complete", line="naïve \n line", sha256={"a": "b"})
        sender.send("serving")
        outgoing.close()
        assert list(Pipe(incoming, io.StringIO()).receive()) == [
            {"kind": "complete", "line": "naïve \n line", "sha256": {"a": "b"}},
            {"kind": "serving"},
        ]


@pytest.mark.parametrize("noise", ["hello from a library", "[1, 2]", '{"kind": 3}', '{"no": "kind"}', '{"kind": "cut'])
def test_what_a_library_prints_is_not_taken_for_a_message(noise: str) -> None:
    assert list(Pipe(io.StringIO(noise + '\n{"kind": "serving"}\n'), io.StringIO()).receive()) == [{"kind": "serving"}]


class _Gone(io.StringIO):
    tried = 0

    def flush(self) -> None:
        self.tried += 1
        raise BrokenPipeError


def test_sending_to_an_end_that_has_gone_is_no_error() -> None:
    gone = _Gone()
    pipe = Pipe(io.StringIO(), gone)
    pipe.send("drain")
    pipe.send("drain")
    assert gone.tried == 2
