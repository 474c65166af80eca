"""One question to a model in words that all dialects share, and how a target wants it put.

Rendered anew for every attempt: the same `Ask` may go to another provider in another dialect, with other `Traits`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ..settings import Effort
from ..transcript import Message
from .tool_spec import ToolSpec


class Choice(StrEnum):
    """Whether the model may, must or must not call a tool."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


class NamedTool(msgspec.Struct, frozen=True):
    """The one tool the model must call, by the name its `ToolSpec` has."""

    name: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. Nothing in it depends on who is asked."""

    model: str
    messages: tuple[Message, ...]
    """As they are kept: they are repaired on the way out."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Choice | NamedTool = Choice.AUTO
    stream: bool = True
    max_tokens: int | None = None
    """Where the answer is to be cut; None leaves it to the provider, or to the table of models."""
    effort: Effort | None = None
    """None: the request says nothing about thinking."""
    static_chars: int = 0
    """How many characters at the beginning of the first system message are the same in every conversation."""
    turn_chars: int = 0
    """How many characters at the end of the last message hold for this turn only and are gone in the next request."""
    affinity: str | None = None
    """Who the conversation is, for providers that route or cache by it: a hash, never an id that means something."""


class Layout(StrEnum):
    """How a target is told what to cache."""

    NONE = "none"
    BLOCKS = "blocks"
    """`cache_control` on content blocks and tools, as Anthropic has it."""
    ENVELOPE = "envelope"
    """The same on text parts of chat messages, as OpenRouter takes it for models that need it."""


class Thinking(StrEnum):
    """How a target is told how much to think."""

    NONE = "none"
    """It is not: the field would be refused or mean nothing."""
    EFFORT = "effort"
    """`reasoning_effort` in chat completions, `reasoning.effort` in Responses."""
    SWITCH = "switch"
    """`thinking: {type: enabled|disabled}`: Z.AI in the chat shape."""
    OBJECT = "object"
    """`reasoning: {effort | enabled}`: OpenRouter."""
    BUDGET = "budget"
    """`thinking: {type, budget_tokens}`: Anthropic Messages."""
    ADAPTIVE = "adaptive"
    """`thinking: {type: adaptive}` and `output_config.effort`: Anthropic's models that refuse a budget."""


class Traits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one target wants requests: decided by host, dialect, model and configuration (`traits_of`)."""

    layout: Layout = Layout.NONE
    cache_hour: bool = False
    """Breakpoints hold for an hour instead of five minutes."""
    thinking: Thinking = Thinking.NONE
    efforts: tuple[str, ...] = ()
    """The words the target has for how much, of `thinking.STEPS`; empty: it knows on and off at most."""
    always_thinks: bool = False
    """Thinking cannot be switched off: who asks for none gets the least there is."""
    affinity_header: str | None = None
    """The header that carries `Ask.affinity`."""
    affinity_field: str | None = None
    """The field of the body that does (`prompt_cache_key`, `session_id`)."""
    max_tokens_field: str = "max_tokens"
    max_tokens: int | None = None
    """For dialects that have no answer without a bound: the model's own, where the table knows it."""
    extra_headers: tuple[tuple[str, str], ...] = ()
    refused_names: tuple[str, ...] = ()
    """Tool names that the target refuses whatever their letters."""


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A request ready to post."""

    url: str
    headers: dict[str, str]
    """Names in lower case. Holds the key: never to be logged."""
    body: bytes
    max_tokens: int | None = None
    """The bound on the answer that is in the body."""
    names: dict[str, str] = {}
    """Names of tools as the target knows them → as the caller does; only those that differ. For the reader."""
