"""Anthropic Messages: the request, as Anthropic, Z.AI's `/api/anthropic` and gateways take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ..mending import NO_MENDS, Mends
from ..settings import Dialect
from ..transcript import Role
from .anthropic_blocks import WORDLESS, Text, Turn, began_thoughtless, is_call_forced, marked_turns, turns_of
from .anthropic_reader import AnthropicReader
from .ask import Ask, Choice, Layout, NamedTool, Rendered, Thinking, Traits
from .base import NO_NAMES
from .draft import MARKS, Draft, Mark, draft_of
from .history import History, split
from .posting import all_headers, cache_fields, endpoint_at, json_headers, with_fields
from .thinking import LEAST_BUDGET, Thought

__all__ = ["MAX_TOKENS", "VERSION", "WORDLESS", "AnthropicMessages"]

VERSION: Final = "2023-06-01"
"""Of the API; the only one there is (docs.anthropic.com)."""

MAX_TOKENS: Final = 16_384
"""The dialect has no answer without a bound, and refuses one above the model's own."""

_PATH: Final = "/v1/messages"
_OWN_KEY: Final = "sk-ant-"


class AnthropicMessages:
    """The Anthropic Messages dialect (a `WireDialect`)."""

    def render(
        self, ask: Ask, traits: Traits, *, base_url: str, api_key: str | None, mends: Mends = NO_MENDS
    ) -> Rendered:
        """The request, with the history repaired, the system's words apart and the two roles in turns."""
        draft = draft_of(ask, traits, mends, Dialect.ANTHROPIC, Layout.BLOCKS)
        request = _request(draft, traits)
        return Rendered(
            url=endpoint_at(base_url, _PATH, but_for="/v1"),
            headers=all_headers(self.headers(api_key), ask, traits),
            body=with_fields(msgspec.json.encode(request), cache_fields(ask, traits, mends)),
            max_tokens=request.max_tokens,
            names=draft.names,
        )

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The headers of a request; none for authorisation without a key."""
        headers = {**json_headers(), "anthropic-version": VERSION}
        key = (api_key or "").strip()
        if not key:
            return headers
        headers["x-api-key"] = key
        # Z.AI takes either, some gateways only the second; Anthropic takes that for a login and not for a key.
        return headers if key.startswith(_OWN_KEY) else {**headers, "authorization": f"Bearer {key}"}

    def reader(
        self, names: Mapping[str, str] = NO_NAMES, *, model: str = "", reasoning_as_text: bool = False
    ) -> AnthropicReader:
        """A reader for the body of a 2xx response, streamed or not."""
        return AnthropicReader(names, model=model, reasoning_as_text=reasoning_as_text)


class _Tool(msgspec.Struct, frozen=True):
    name: str
    description: str
    input_schema: msgspec.Raw
    cache_control: Mark | msgspec.UnsetType = msgspec.UNSET


class _Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None


class _Thinking(msgspec.Struct, frozen=True, omit_defaults=True):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None


class _Output(msgspec.Struct, frozen=True):
    effort: str


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    max_tokens: int
    messages: list[Turn]
    stream: bool
    system: str | list[Text] = ""
    tools: list[_Tool] = []
    tool_choice: _Choice | None = None
    thinking: _Thinking | None = None
    output_config: _Output | None = None


def _request(draft: Draft, traits: Traits) -> _Request:
    history = split(draft.messages)
    thought = draft.thought
    if thought is not None and thought.is_on and _is_thinking_refused(draft, history, traits):
        thought = None
    bound = _bound(draft, traits, thought)
    thinking = _thinking(thought, traits, bound)
    # Blocks of an answer that was thought about may not stand before one that will not be.
    is_thinking_off = draft.thought is not None and (thinking is None or thinking.type == "disabled")
    is_users = bool(draft.messages) and draft.messages[-1].role is not Role.SYSTEM
    turn_chars = draft.turn_chars if draft.mark is not None and is_users else 0
    turns = turns_of(history.messages, turn_chars, has_signed=not is_thinking_off)
    tools = [_Tool(tool.name, tool.description, tool.parameters) for tool in draft.tools]
    system: str | list[Text] = history.system
    if draft.mark is not None:
        parts = _system(draft, history.system, draft.mark)
        system = parts or history.system
        tools[-1:] = [msgspec.structs.replace(tool, cache_control=draft.mark) for tool in tools[-1:]]
        turns = marked_turns(turns, draft.mark, MARKS - len(parts) - len(tools[-1:]))
    effort = thought.word if thinking is not None and thinking.type == "adaptive" and thought else None
    return _Request(
        model=draft.model,
        max_tokens=bound,
        messages=[turn for turn, _ in turns],
        stream=draft.stream,
        system=system,
        tools=tools,
        tool_choice=_choice(draft.choice),
        thinking=thinking,
        output_config=_Output(effort) if effort is not None else None,
    )


def _system(draft: Draft, text: str, mark: Mark) -> list[Text]:
    """The system's words: what is the same in every conversation, and the rest, marked if it lasts."""
    texts = [text[: draft.static_chars], text[draft.static_chars :]]
    if not all(part.strip() for part in texts):
        texts = [text] if text.strip() else []
    is_lasting = not (draft.turn_chars and draft.messages[-1].role is Role.SYSTEM)
    return [Text(part, mark) for part in texts[:-1]] + [
        Text(part, mark if is_lasting else msgspec.UNSET) for part in texts[-1:]
    ]


def _choice(choice: Choice | NamedTool | None) -> _Choice | None:
    match choice:
        case None:
            return None
        case NamedTool(name=name):
            return _Choice("tool", name)
        case Choice.REQUIRED:
            return _Choice("any")
        case Choice.NONE:
            return _Choice("none")
        case Choice.AUTO:
            return _Choice("auto")


def _bound(draft: Draft, traits: Traits, thought: Thought | None) -> int:
    """What the answer may have, its thinking included; never more than the model's own."""
    bound = draft.max_tokens
    if bound is None:
        # Room to think is added only where it is known that the model has it.
        room = thought.budget if thought is not None and thought.is_on and traits.max_tokens is not None else 0
        bound = MAX_TOKENS + room
    return bound if traits.max_tokens is None else min(bound, traits.max_tokens)


def _is_thinking_refused(draft: Draft, history: History, traits: Traits) -> bool:
    if is_call_forced(draft.choice):
        return True
    # Who decides by himself whether to think may have begun without.
    return traits.thinking is Thinking.BUDGET and began_thoughtless(history.messages)


def _thinking(thought: Thought | None, traits: Traits, bound: int) -> _Thinking | None:
    if thought is None:
        return None
    if traits.thinking is Thinking.ADAPTIVE:
        # These do not think unless they are told to, and some refuse to be told not to.
        return _Thinking("adaptive") if thought.is_on else None
    if traits.thinking is not Thinking.BUDGET:
        return None
    if not thought.is_on:
        return _Thinking("disabled")
    # A quarter of the answer is left for what is said.
    budget = min(thought.budget, bound * 3 // 4)
    return _Thinking("enabled", budget) if budget >= LEAST_BUDGET else None
