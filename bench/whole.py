"""Whole numbers on the command lines of benchmarks."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """A parser for one from `low` to `high`."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else None
        if value is None or value < low or (high is not None and value > high):
            end = f" to {high}" if high is not None else ""
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {low}{end}")
        return value

    return parse


def whole_numbers(low: int, high: int | None = None) -> Callable[[str], tuple[int, ...]]:
    """A parser for several with commas between them."""
    one = whole(low, high)
    return lambda text: tuple(dict.fromkeys(one(word) for word in text.split(",")))
