"""Kinds of values in config.yaml: what each accepts, and how it says so.

A kind either takes a value as it is or names the problem; it never converts. `0x10`, `1_000` and `1:30` are text here:
YAML 1.1 and 1.2 disagree about them, and so would two programs that read the same file.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Protocol

Scalar = None | bool | int | float | str
"""A single value as it stands in the file."""

Value = Scalar | dict[str, Scalar] | list[Scalar]
"""What a key may hold: a single value, or for a few keys a mapping or a list of them."""

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "yes", "on", "y"})
_FALSE: Final = frozenset({"false", "no", "off", "n"})
_WHOLE: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_NUMBER: Final = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|nan)", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./:@+-]*(?<!:)")


def read_plain(text: str) -> Scalar:
    """Read an unquoted word: nothing, a truth value, a number, or else text."""
    if text in _NULL:
        return None
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and not _has_leading_zeros(text):
        return float(text)
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return text


def write_plain(value: Value) -> str:
    """Write a value so that every YAML reader reads it back the same; text is quoted where it has to be."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            is_plain = _PLAIN.fullmatch(value) and isinstance(read_plain(value), str)
            return value if is_plain else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case dict():
            return "{" + ", ".join(f"{write_plain(name)}: {write_plain(of)}" for name, of in value.items()) + "}"
        case list():
            return "[" + ", ".join(write_plain(item) for item in value) + "]"


class Kind(Protocol):
    """What one key accepts."""

    @property
    def valid(self) -> str:
        """What would be accepted, for people."""
        ...

    def problem(self, value: Value) -> str | None:
        """Say why `value` is refused; None if it is accepted."""
        ...

    def read(self, text: str) -> Value:
        """Read what was typed on a command line."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`; `zero` says what 0 means."""

    low: int
    high: int
    zero: str = ""

    @property
    def valid(self) -> str:
        return f"a whole number from {self.low} to {self.high}" + (f" (0 {self.zero})" if self.zero else "")

    def problem(self, value: Value) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{shown(value)} is not a whole number"
        return _out_of_range(value, self.low, self.high)

    def read(self, text: str) -> Value:
        return read_plain(text)


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number from `low` to `high`; `zero` says what 0 means."""

    low: float
    high: float
    zero: str = ""

    @property
    def valid(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}" + (f" (0 {self.zero})" if self.zero else "")

    def problem(self, value: Value) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{shown(value)} is not a number"
        if not math.isfinite(value):
            return f"{shown(value)} is not a finite number"
        return _out_of_range(value, self.low, self.high)

    def read(self, text: str) -> Value:
        return read_plain(text)


@dataclass(frozen=True, slots=True)
class Bound:
    """A whole number from `low` to `high`, or 0 for no limit: less than `low` could never be kept."""

    low: int
    high: int

    @property
    def valid(self) -> str:
        return f"a whole number from {self.low} to {self.high}, or 0 (is no limit)"

    def problem(self, value: Value) -> str | None:
        return None if value == 0 and value is not False else Whole(self.low, self.high).problem(value)

    def read(self, text: str) -> Value:
        return read_plain(text)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def valid(self) -> str:
        return " or ".join(self.words)

    def problem(self, value: Value) -> str | None:
        return None if isinstance(value, str) and value in self.words else f"{shown(value)} is not known"

    def read(self, text: str) -> Value:
        return text


@dataclass(frozen=True, slots=True)
class Truth:
    """Yes or no."""

    valid: str = "true or false"

    def problem(self, value: Value) -> str | None:
        return None if isinstance(value, bool) else f"{shown(value)} is not a truth value"

    def read(self, text: str) -> Value:
        return read_plain(text)


@dataclass(frozen=True, slots=True)
class Text:
    """Text on one line that matches `pattern`, described by `valid`.

    `is_shown` is False where people put secrets by mistake: the refused text is not repeated then.
    """

    valid: str
    pattern: re.Pattern[str] | None = None
    is_shown: bool = True
    longest: int = 200

    def problem(self, value: Value) -> str | None:
        if value is None or not isinstance(value, str):
            return f"{shown(value)} is not text" + ("" if value is None else "; put it in quotes")
        if not value.strip():
            return "the text is empty"
        if len(value) > self.longest:
            return f"the text has {len(value)} characters, {self.longest} are allowed"
        if not value.isprintable():
            return "the text has characters that cannot be printed"
        if self.pattern is not None and not self.pattern.fullmatch(value):
            return f"{shown(value)} does not fit" if self.is_shown else "this text does not fit"
        return None

    def read(self, text: str) -> Value:
        return text


def shown(value: Value) -> str:
    """Show a refused value in a message, short."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"{str(value).lower()} (a truth value)"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case float():
            return f".{value}".replace(".-", "-.")
        case str():
            return f'"{value}" (text)' if len(value) <= 60 else f'"{value[:57]}…" (text)'
        case dict():
            return "a mapping"
        case list():
            return "a list"


def _has_leading_zeros(text: str) -> bool:
    return bool(re.match(r"[-+]?0[0-9]", text))


def _out_of_range(value: float, low: float, high: float) -> str | None:
    if value < low:
        return f"{value} is too small"
    if value > high:
        return f"{value} is too large"
    return None
