"""Flags with a comma-separated value, for argparse."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers: `1,2,4`."""
    return tuple(int(part) for part in text.split(",") if part)


def names(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """A type for names out of `known`; another one is refused with the choice."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(part for part in text.split(",") if part)
        if unknown := set(found) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}")
        return found

    return parse


__all__ = ["names", "numbers"]
