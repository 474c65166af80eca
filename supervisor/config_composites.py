"""Kinds of values in config.yaml that hold several: counts by model, mappings, lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .config_kinds import Number, Scalar, Text, Value, Whole, read_plain, shown

EVERYBODY: Final = "*"
"""In a mapping of counts: the count for all that are not named."""


@dataclass(frozen=True, slots=True)
class Counts:
    """A count, or a mapping with one for everybody (`*`) and others for those that are named."""

    count: Whole
    name: Text
    part = "a count", "a whole number"

    @property
    def valid(self) -> str:
        return f'{self.count.valid}; or for single models too: {{"{EVERYBODY}": 2, glm-5: 1}}'

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, dict):
            return self.count.problem(value)
        if EVERYBODY not in value:
            return f'the mapping says nothing about all others ("{EVERYBODY}")'
        problems = ((name, self._problem_with(name, count)) for name, count in value.items())
        return next((f"{name}: {problem}" for name, problem in problems if problem), None)

    def _problem_with(self, name: str, count: Scalar) -> str | None:
        return self.count.problem(count) or (None if name == EVERYBODY else self.name.problem(name))

    def read(self, text: str) -> Value:
        return read_plain(text)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping of names to values of one kind; `example` shows one."""

    of: Number | Text
    name: Text
    example: str
    part = "a value", "a single value"

    @property
    def valid(self) -> str:
        return f"a mapping of {self.name.valid} to {self.of.valid}: {self.example}"

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, dict):
            return f"{shown(value)} is not a mapping"
        problems = ((name, self.name.problem(name) or self.of.problem(of)) for name, of in value.items())
        return next((f"{name}: {problem}" for name, problem in problems if problem), None)

    def read(self, text: str) -> Value:
        return read_plain(text)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of texts, each once; on a command line with commas between them."""

    item: Text
    longest: int = 16

    @property
    def valid(self) -> str:
        return f"a list of at most {self.longest}, each {self.item.valid}"

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, list):
            return f"{shown(value)} is not a list"
        if len(value) > self.longest:
            return f"the list has {len(value)} items"
        if len(set(value)) < len(value):
            return "the list names something twice"
        return next((problem for item in value if (problem := self.item.problem(item))), None)

    def read(self, text: str) -> Value:
        inner = text.strip().removeprefix("[").removesuffix("]")
        return [item.strip().strip("\"'") for item in inner.split(",") if item.strip()]
