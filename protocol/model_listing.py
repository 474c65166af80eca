"""What a provider's own list of models says: `/models` in the shapes that are around, read generously. Pure.

OpenAI's shape has names alone; OpenRouter, vLLM, Groq, Moonshot, Mistral, LM Studio, llama.cpp and Anthropic add
windows, caps, abilities and prices, each under words of its own. What is not there, or is out of all reason, is None;
no answer raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from .settings import ModelOverride, Price

FEWEST_TOKENS: Final = 1_024
MOST_TOKENS: Final = 10_000_000
"""A window outside of these is a mistake of whoever wrote it down."""

MOST_MODELS: Final = 5_000
"""More of a list is not read: the largest known one has about 500."""

MOST_USD: Final = 100_000.0

_NAME_CHARS: Final = 200
_PER_MILLION: Final = 1_000_000

Item: TypeAlias = Mapping[str, object]

_WINDOWS: Final = (
    ("loaded_context_length",),
    ("top_provider", "context_length"),
    ("context_length",),
    ("max_model_len",),
    ("context_window",),
    ("max_context_length",),
    ("max_input_tokens",),
    ("inputTokenLimit",),
    ("meta", "n_ctx"),
    ("meta", "n_ctx_train"),
)
"""Where a window may stand: what is served before what the model could do."""

_CAPS: Final = (
    ("top_provider", "max_completion_tokens"),
    ("max_completion_tokens",),
    ("max_output_tokens",),
    ("outputTokenLimit",),
)


class Listed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model as its provider lists it."""

    name: str
    facts: ModelOverride = ModelOverride()
    price: Price | None = None


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A list of models. `server` is the program that wrote it, where it says so."""

    models: tuple[Listed, ...]
    server: str | None = None


class Unlisted(msgspec.Struct, frozen=True, kw_only=True):
    """There is no list, and why."""

    problem: str


def read_listing(body: bytes) -> Listing | Unlisted:
    """Read an answer of `/models`. Of two entries with one name the first counts."""
    answer = _decoded(body)
    entries = _entries(answer)
    if entries is None:
        return Unlisted(problem="the answer is no list of models")
    items = [entry for entry in entries[:MOST_MODELS] if isinstance(entry, dict)]
    named: dict[str, Item] = {}
    for item in items:
        if (name := _name(item)) is not None:
            named.setdefault(name, item)
    servers = {owner for item in items if isinstance(owner := item.get("owned_by"), str)}
    return Listing(
        models=tuple(_listed(*one) for one in named.items()), server=servers.pop() if len(servers) == 1 else None
    )


def read_props(body: bytes) -> int | None:
    """What llama.cpp's `/props` says of the window that each call has; None if it does not. Not checked for sense."""
    answer = _decoded(body)
    if not isinstance(answer, dict):
        return None
    return _whole(_at(answer, ("default_generation_settings", "n_ctx")))


def window_of(value: object) -> int | None:
    """`value` as a number of tokens that a window can have."""
    size = _whole(value)
    return size if size is not None and FEWEST_TOKENS <= size <= MOST_TOKENS else None


def _decoded(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _entries(answer: object) -> list[object] | None:
    """The list itself: bare, under `data`, or under `models` (LM Studio, Gemini)."""
    if isinstance(answer, list):
        return answer
    if isinstance(answer, dict):
        return next((found for key in ("data", "models") if isinstance(found := answer.get(key), list)), None)
    return None


def _name(item: Item) -> str | None:
    name = next((found for key in ("id", "key", "name") if isinstance(found := item.get(key), str)), "").strip()
    return name if 0 < len(name) <= _NAME_CHARS and name.isprintable() else None


def _listed(name: str, item: Item) -> Listed:
    facts = ModelOverride(
        context_window=_window(item),
        max_output_tokens=_cap(item),
        has_tools=_has_tools(item),
        has_images=_has_images(item),
        has_reasoning=_has_reasoning(item),
    )
    return Listed(name=name, facts=facts, price=_price(item.get("pricing")))


# --- tokens ----------------------------------------------------------------------------------------------------------


def _window(item: Item) -> int | None:
    if item.get("state") == "not-loaded":
        return None  # LM Studio will load it with a window that nobody has chosen yet
    return next((size for path in _WINDOWS if (size := window_of(_at(item, path))) is not None), None)


def _cap(item: Item) -> int | None:
    # Anthropic's name for it means other things elsewhere.
    paths = (*_CAPS, ("max_tokens",)) if "max_input_tokens" in item else _CAPS
    sizes = (_whole(_at(item, path)) for path in paths)
    return next((size for size in sizes if size is not None and 0 < size <= MOST_TOKENS), None)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# --- abilities -------------------------------------------------------------------------------------------------------


def _has_tools(item: Item) -> bool | None:
    can = item.get("capabilities")
    if isinstance(can, list):
        return "tool_use" in can
    return _first(_in(item.get("supported_parameters"), "tools"), _said(can, "function_calling"), _said(can, "tools"))


def _has_images(item: Item) -> bool | None:
    can = item.get("capabilities")
    return _first(
        _in(_at(item, ("architecture", "input_modalities")), "image"),
        _said(can, "image_input"),
        _said(can, "vision"),
        _said(item, "supports_image_in"),
        item["type"] == "vlm" if item.get("type") in ("vlm", "llm") else None,
    )


def _has_reasoning(item: Item) -> bool | None:
    can = item.get("capabilities")
    return _first(
        _in(item.get("supported_parameters"), "reasoning"),
        _said(can, "thinking"),
        _said(can, "reasoning"),
        _said(item, "supports_reasoning"),
    )


def _first(*said: bool | None) -> bool | None:
    return next((one for one in said if one is not None), None)


def _in(words: object, word: str) -> bool | None:
    return word in words if isinstance(words, list) and words else None


def _said(where: object, word: str) -> bool | None:
    """Whether it says yes or no to `word`: `true`, or `{"supported": true}`."""
    found = where.get(word) if isinstance(where, dict) else None
    if isinstance(found, dict):
        found = found.get("supported")
    return found if isinstance(found, bool) else None


# --- prices ----------------------------------------------------------------------------------------------------------


def _price(pricing: object) -> Price | None:
    """OpenRouter's: dollars a token, as text. A router that chooses for itself says -1."""
    if not isinstance(pricing, dict):
        return None
    prompt, completion = _usd(pricing.get("prompt")), _usd(pricing.get("completion"))
    if prompt is None or completion is None:
        return None
    read, write = _usd(pricing.get("input_cache_read")), _usd(pricing.get("input_cache_write"))
    return Price(input=prompt, output=completion, cache_read=read, cache_write=write)


def _usd(text: object) -> float | None:
    """Dollars for a million of what costs `text` each."""
    if not isinstance(text, str) or len(text) > _NAME_CHARS:
        return None
    try:
        price = float(text) * _PER_MILLION
    except ValueError:
        return None
    return round(price, 6) if 0 <= price <= MOST_USD else None


def _at(item: Item, path: tuple[str, ...]) -> object:
    found: object = item
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found
