"""A complete source sends each piece to one receiver before any to two."""

from __future__ import annotations

from shardpool.swarm.first_copies import FirstCopies


def test_a_piece_is_lent_to_whoever_asks_first_and_to_that_one_again() -> None:
    copies = FirstCopies()
    assert copies.lend(3, "a")
    assert not copies.lend(3, "b")
    assert copies.lend(3, "a")
    assert copies.lend(0, "b")
    assert copies.lent == 0b1001


def test_a_piece_that_was_not_sent_to_its_end_may_be_lent_to_another() -> None:
    copies = FirstCopies()
    copies.lend(3, "a")
    copies.broke_off(3, "b")
    assert not copies.lend(3, "b"), "only who has it can break it off"
    copies.broke_off(3, "a")
    assert copies.lent == 0
    assert copies.lend(3, "b")


def test_what_a_reader_was_sent_is_free_when_it_leaves() -> None:
    copies = FirstCopies()
    copies.lend(2, "b")
    with copies.while_there("a"):
        assert copies.lend(1, "a")
        assert not copies.lend(1, "b")
    assert copies.lent == 0b100
    assert copies.lend(1, "b")
