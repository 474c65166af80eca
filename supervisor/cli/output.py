"""What commands print: people get text, in colour on a terminal; programs get JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.table import Table


def console(file: TextIO | None = None) -> Console:
    """A console on `file` (stdout): no colour, no control codes, no wrapped lines where nobody watches."""
    from rich.console import Console

    file = file or sys.stdout
    if file.isatty():
        return Console(file=file, highlight=False)
    # Lines that another program reads are as long as they are.
    return Console(file=file, highlight=False, force_terminal=False, no_color=True, width=10_000, soft_wrap=True)


def table(*headers: str) -> Table:
    """A table without lines; `>` before a header aligns its column to the right."""
    from rich.table import Table

    rows = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        name = header.removeprefix(">")
        rows.add_column(name, justify="right" if name != header else "left", no_wrap=True)
    return rows


def print_json(value: object) -> None:
    """Print `value` as one line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_line(text: str = "") -> None:
    """Print one line of text for people."""
    sys.stdout.write(text + "\n")


def warn(warnings: Iterable[object]) -> None:
    """Print each on a line of its own where it is in nobody's way."""
    for warning in warnings:
        sys.stderr.write(f"covey: warning: {warning}\n")
