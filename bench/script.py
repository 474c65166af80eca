"""A script: which requests the simulated provider answers how. The shape of a `--script` file.

    moods:                              # what it is like apart from single requests: provider_moods
      limit: 1
    rules:
      - goal: "(?i)overload"            # regexp over the last user message; all requests if left out
        model: "^glm-5"                 # regexp over the model's name
        think_s: 1.0
        turns:
          - refuse: {code: 1305, times: 3}
            tools: ['list_files {"path": "."}']
          - say: done

The first rule that matches decides; a request that none matches is improvised. `turns` is a list, or the number of
calls an improvised conversation takes. Times and chunks: the turn's own, else the rule's, else the provider's option.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from .provider_errors import Refusal, refusal
from .provider_moods import Death, Moods
from .script_steps import ToolUse, UnreadableStep, tool_uses

Seconds = Annotated[float, Meta(ge=0, le=3600)]
Chunks = Annotated[int, Meta(ge=1, le=100_000)]
Calls = Annotated[int, Meta(ge=1, le=10_000)]

DEFAULT_CALLS = 4
"""Calls of an improvised conversation: three turns with tools, then the final text."""

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast an answer comes: seconds before the first byte, pieces it is cut into, seconds between them."""

    think_s: float
    chunks: int
    chunk_pace_s: float


class Refuse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error instead of an answer; the first `times` calls only, every one if left out."""

    code: int | str
    status: Annotated[int, Meta(ge=400, le=599)] | None = None
    message: str | None = None
    headers: dict[str, str | int] = {}
    times: Calls | None = None

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(str(value)):
                raise ValueError(f"`headers`: {name}: {value} is no HTTP header")
            if name.lower() in ("content-length", "transfer-encoding"):
                raise ValueError(f"`headers`: the server itself sends {name}")

    def refusal(self) -> Refusal:
        """The error as the client gets it."""
        headers = {name: str(value) for name, value in self.headers.items()}
        return refusal(str(self.code), self.message, status=self.status, headers=headers)


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of the model: tool calls (written as in a prompt's `use:` lines), or text, or both."""

    tools: tuple[str, ...] = ()
    say: str | None = None
    think_s: Seconds | None = None
    chunks: Chunks | None = None
    chunk_pace_s: Seconds | None = None
    refuse: Refuse | None = None
    cut_after_chunks: Annotated[int, Meta(ge=0)] | None = None
    """Let the answer die after so many pieces; 0 before the first byte."""
    dies: Death = Death.CUT
    """How it dies then."""
    finish_reason: str | None = None
    usage: Literal["sent", "none"] = "sent"

    def __post_init__(self) -> None:
        try:
            self.uses()
        except UnreadableStep as error:
            raise ValueError(f"`tools`: {error}") from error
        if self.refuse is not None and self.refuse.times is None and self._says_something():
            raise ValueError("`refuse`: a turn that is always refused can say nothing else; give it its `times`")

    def uses(self) -> tuple[ToolUse, ...]:
        """The tool calls of this turn, in order."""
        return tuple(use for text in self.tools for use in tool_uses(text))

    def _says_something(self) -> bool:
        fields = zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
        return any(getattr(self, name) != default for name, default in fields if name != "refuse")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests, and the conversation they get. After the last turn comes an improvised final text."""

    goal: str = ""
    model: str = ""
    think_s: Seconds | None = None
    chunks: Chunks | None = None
    chunk_pace_s: Seconds | None = None
    turns: Calls | tuple[Turn, ...] = DEFAULT_CALLS

    def __post_init__(self) -> None:
        for key, pattern in (("goal", self.goal), ("model", self.model)):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"`{key}` is no regular expression: {error}") from error

    def matches(self, goal: str, model: str) -> bool:
        """Whether this rule answers for such a request."""
        return re.search(self.goal, goal) is not None and re.search(self.model, model) is not None


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All rules, in the order they are tried, and the provider's moods to begin with."""

    rules: tuple[Rule, ...] = ()
    moods: Moods = Moods()
