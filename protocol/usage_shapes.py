"""What one usage report says, in whichever of the known shapes it comes.

| shape | what contains what |
|---|---|
| chat completions | `prompt_tokens` contains the cached ones, `completion_tokens` the reasoning |
| Responses | `input_tokens` contains the cached ones, `output_tokens` the reasoning |
| Anthropic messages | cached tokens stand beside `input_tokens`, in and out of the cache |
| Gemini | cached tokens are in the prompt, thoughts stand beside the answer |
| llama.cpp | `timings` count what was computed, and what came from the cache beside it |

A count is a whole number up to `LARGEST_COUNT`; anything else in its place is no count. What went in and what came out
are two sides: a report may have only one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec

LARGEST_COUNT: Final = 10**12
"""No call has that many tokens; a count beyond it is no count."""

LARGEST_SURPLUS: Final = 1_000_000
"""No model thinks longer; a total that is farther off is just wrong."""

Fields = dict[str, object]


class Inflow(msgspec.Struct, frozen=True, kw_only=True):
    """What went in: all of it, and which parts of it are cached."""

    prompt: int
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    named: int
    """The count that the shape gives first, for telling a repetition from news."""
    has_parts: bool = False
    """Whether the report speaks of caches at all."""
    is_odd: bool = False
    """The report contradicts itself here."""


class Outflow(msgspec.Struct, frozen=True, kw_only=True):
    """What came out: all of it, and the reasoning in it."""

    completion: int
    reasoning: int = 0
    named: int
    has_parts: bool = False
    is_odd: bool = False


class Report(msgspec.Struct, frozen=True):
    """Both sides of one report, each as far as it says something."""

    went_in: Inflow | None
    came_out: Outflow | None


NOTHING: Final = Report(None, None)


def report_of(raw: bytes | msgspec.Raw) -> Report:
    """Read the JSON of a report; `NOTHING` for whatever is none. Never raises."""
    fields = _fields(raw)
    for belongs, read in _SHAPES:
        if belongs(fields):
            return read(fields)
    return NOTHING


def _fields(raw: bytes | msgspec.Raw) -> Fields:
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}


# --- the shapes ------------------------------------------------------------------------------------------------------


def _is_chat(fields: Fields) -> bool:
    names = ("prompt_tokens", "completion_tokens", "prompt_cache_miss_tokens")
    if all(_count(fields, name) is None for name in names):
        return False
    # Some proxies fill the names of both families, and one of them with zeros.
    return any(_count(fields, name) for name in names) or not (
        _count(fields, "input_tokens") or _count(fields, "output_tokens")
    )


def _chat(fields: Fields) -> Report:
    details, caches = _below(fields, "prompt_tokens_details"), _below(fields, "cache_creation")
    by_time = _below(details, "cache_creation_token_details")
    prompt = _count(fields, "prompt_tokens")
    if prompt is None:
        prompt = _sum(_count(fields, "prompt_cache_hit_tokens"), _count(fields, "prompt_cache_miss_tokens"))
    went_in = None if prompt is None else Inflow(
        prompt=prompt,
        # DeepSeek, Moonshot and litellm count cache hits beside the details.
        cache_read=_first(details, "cached_tokens")
        or _first(fields, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"),
        cache_write=_first(details, "cache_write_tokens", "cache_creation_tokens", "cached_creation_tokens")
        or _first(fields, "cache_creation_input_tokens"),
        cache_write_1h=_first(by_time, "ephemeral_1h_input_tokens")
        or _first(caches, "ephemeral_1h_input_tokens")
        or _first(fields, "claude_cache_creation_1_h_tokens"),
        named=prompt,
        has_parts=bool(details) or any("cache" in name for name in fields),
    )  # fmt: skip
    return _with_outflow(
        went_in,
        completion=_count(fields, "completion_tokens"),
        details=_below(fields, "completion_tokens_details"),
        beside=_first(fields, "reasoning_tokens"),
        total=_count(fields, "total_tokens"),
    )


def _is_responses(fields: Fields) -> bool:
    if "input_tokens_details" in fields:
        return _is_messages(fields)
    return _is_messages(fields) and "total_tokens" in fields and not _names_caches(fields)


def _responses(fields: Fields) -> Report:
    details, prompt = _below(fields, "input_tokens_details"), _count(fields, "input_tokens")
    went_in = None if prompt is None else Inflow(
        prompt=prompt,
        cache_read=_first(details, "cached_tokens"),
        cache_write=_first(details, "cache_write_tokens", "cache_creation_tokens"),
        named=prompt,
        has_parts=bool(details),
    )  # fmt: skip
    return _with_outflow(
        went_in,
        completion=_count(fields, "output_tokens"),
        details=_below(fields, "output_tokens_details"),
        total=_count(fields, "total_tokens"),
    )


def _is_messages(fields: Fields) -> bool:
    return any(_count(fields, name) is not None for name in ("input_tokens", "output_tokens"))


def _messages(fields: Fields) -> Report:
    came_out = _with_outflow(
        None, completion=_count(fields, "output_tokens"), details=_below(fields, "output_tokens_details")
    ).came_out
    own = _count(fields, "input_tokens")
    if own is None:
        return Report(None, came_out)
    by_time, read = _below(fields, "cache_creation"), _first(fields, "cache_read_input_tokens")
    for_minutes, for_an_hour = (_first(by_time, f"ephemeral_{time}_input_tokens") for time in ("5m", "1h"))
    parts = for_minutes + for_an_hour
    write = _first(fields, "cache_creation_input_tokens") or parts
    return Report(
        Inflow(
            prompt=sum(max(count, 0) for count in (own, read, write)),
            cache_read=max(read, 0),
            cache_write=max(write, 0),
            cache_write_1h=for_an_hour,
            named=own,
            has_parts=_names_caches(fields),
            is_odd=min(own, read, write) < 0 or parts not in (0, write),
        ),
        came_out,
    )


def _names_caches(fields: Fields) -> bool:
    return any(name in fields for name in ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"))


def _is_gemini(fields: Fields) -> bool:
    return _count(fields, "promptTokenCount") is not None


def _gemini(fields: Fields) -> Report:
    prompt = _first(fields, "promptTokenCount") + _first(fields, "toolUsePromptTokenCount")
    answer, thoughts = _count(fields, "candidatesTokenCount"), _count(fields, "thoughtsTokenCount")
    total = _count(fields, "totalTokenCount")
    went_in = Inflow(
        prompt=prompt,
        cache_read=_first(fields, "cachedContentTokenCount"),
        named=prompt,
        has_parts="cachedContentTokenCount" in fields,
    )
    if answer is None and thoughts is None:
        return _with_outflow(went_in, completion=None, details={}, total=total)
    whole = (answer or 0) + (thoughts or 0)
    is_odd = bool(total) and total != prompt + whole
    return Report(
        went_in, Outflow(completion=whole, reasoning=thoughts or 0, named=whole, has_parts=True, is_odd=is_odd)
    )


def _is_llama(fields: Fields) -> bool:
    return any(_count(fields, name) is not None for name in ("prompt_n", "predicted_n", "tokens_predicted"))


def _llama(fields: Fields) -> Report:
    computed, cached = _count(fields, "prompt_n"), _first(fields, "cache_n")
    # `tokens_cached` is how full the context is at the end, and nothing that was saved.
    prompt = _count(fields, "tokens_evaluated") if computed is None else computed + cached
    went_in = None if prompt is None else Inflow(
        prompt=prompt, cache_read=cached, named=prompt, has_parts="cache_n" in fields
    )  # fmt: skip
    answer = _count(fields, "predicted_n")
    return _with_outflow(
        went_in, completion=_count(fields, "tokens_predicted") if answer is None else answer, details={}
    )


_SHAPES: Final[tuple[tuple[Callable[[Fields], bool], Callable[[Fields], Report]], ...]] = (
    (_is_chat, _chat),
    (_is_responses, _responses),
    (_is_messages, _messages),
    (_is_gemini, _gemini),
    (_is_llama, _llama),
)
"""In this order: proxies that speak of several families mean the first."""


# --- what came out, and whether the total agrees ---------------------------------------------------------------------


def _with_outflow(
    went_in: Inflow | None, *, completion: int | None, details: Fields, beside: int = 0, total: int | None = None
) -> Report:
    reasoning = _first(details, "reasoning_tokens", "thinking_tokens") or beside
    prompt = went_in.prompt if went_in is not None else None
    if completion is None:
        # Embeddings have no answer to count.
        rest = total - prompt if total is not None and prompt is not None else -1
        return Report(went_in, Outflow(completion=rest, named=rest) if rest >= 0 else None)
    named, is_odd = completion, False
    if total and prompt is not None and went_in is not None:
        surplus = total - prompt - completion
        if reasoning > 0 and surplus == reasoning:
            completion += reasoning  # xAI: the reasoning stands beside the answer
        elif 0 < surplus <= LARGEST_SURPLUS and reasoning == 0 and surplus not in _caches(went_in):
            # Gemini's compatible endpoint leaves thoughts out of everything but the total.
            completion, reasoning, is_odd = max(completion, 0) + surplus, surplus, True
        else:
            is_odd = surplus != 0
    has_parts = bool(details) or reasoning != 0
    return Report(
        went_in, Outflow(completion=completion, reasoning=reasoning, named=named, has_parts=has_parts, is_odd=is_odd)
    )


def _caches(went_in: Inflow) -> tuple[int, int, int]:
    """Totals that count cached tokens a second time are beside the truth by one of these."""
    read, write = went_in.cache_read, went_in.cache_write
    return read, write, read + write


# --- counts ----------------------------------------------------------------------------------------------------------


def _count(fields: Fields, name: str) -> int | None:
    value = fields.get(name)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_COUNT:
        return None
    return value


def _first(fields: Fields, *names: str) -> int:
    """The first of the counts that is not 0."""
    return next((count for name in names if (count := _count(fields, name))), 0)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _below(fields: Fields, name: str) -> Fields:
    found = fields.get(name)
    return found if isinstance(found, dict) else {}
