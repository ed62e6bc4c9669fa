"""The journal: what was verified outlives the process, and only what was written whole is believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpool.errors import StoreError
from shardpool.model.journal import Journal

OUTLINE = bytes(range(32))
D = [bytes([number]) * 32 for number in range(1, 10)]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "rank-0.journal", OUTLINE)


def test_what_is_recorded_is_read_by_the_next(journal: Journal) -> None:
    journal.start({7: D[0]})
    journal.record(3, D[1])
    journal.record(4, D[2])
    journal.forget(3)
    journal.record(4, D[3])
    journal.sync()
    assert Journal(journal.path, OUTLINE).read() == {7: D[0], 4: D[3]}
    journal.close()
    journal.close()


def test_there_is_nothing_before_the_first_start(journal: Journal) -> None:
    assert journal.read() == {}


def test_a_journal_about_another_outline_is_not_believed(journal: Journal) -> None:
    journal.start({1: D[0]})
    journal.close()
    assert Journal(journal.path, bytes(32)).read() == {}


def test_starting_again_leaves_out_what_is_not_given(journal: Journal) -> None:
    journal.start({1: D[0], 2: D[1]})
    journal.close()
    again = Journal(journal.path, OUTLINE)
    again.start({2: D[1]})
    again.close()
    assert again.read() == {2: D[1]}
    assert [path.name for path in journal.path.parent.iterdir()] == ["rank-0.journal"]


def test_another_process_may_forget_in_a_journal_that_is_open(journal: Journal) -> None:
    journal.start({1: D[0], 2: D[1]})
    other = Journal(journal.path, OUTLINE)
    other.forget(1)
    other.close()
    journal.record(5, D[4])
    journal.close()
    assert journal.read() == {2: D[1], 5: D[4]}


def test_a_torn_record_is_passed_over_at_any_length(journal: Journal) -> None:
    journal.start({1: D[0]})
    journal.record(2, D[1])
    journal.close()
    whole = journal.path.read_bytes()
    for cut in range(1, 40):
        journal.path.write_bytes(whole[:-cut])
        assert journal.read() == {1: D[0]}


@given(st.data())
def test_a_flipped_bit_never_brings_a_piece_in(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    journal = Journal(tmp_path_factory.mktemp("j") / "journal", OUTLINE)
    journal.start({number: D[number] for number in range(4)})
    journal.close()
    content = bytearray(journal.path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    journal.path.write_bytes(content)
    assert journal.read().items() <= {number: D[number] for number in range(4)}.items()


def test_a_digest_of_another_length_is_refused(journal: Journal) -> None:
    journal.start({})
    for digest in (b"", bytes(31), bytes(32)):
        with pytest.raises(ValueError, match="digest"):
            journal.record(0, digest)
    journal.close()


def test_a_journal_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "gone" / "journal", OUTLINE)
    with pytest.raises(StoreError, match="gone"):
        journal.start({})
    with pytest.raises(StoreError, match="gone"):
        journal.record(0, D[0])


def test_no_descriptor_is_left_after_close(journal: Journal) -> None:
    before = len(os.listdir("/proc/self/fd"))
    journal.start({})
    journal.record(1, D[0])
    journal.close()
    assert len(os.listdir("/proc/self/fd")) == before
