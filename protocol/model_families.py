"""Families of models: names that begin alike, and how long such models may think before they say anything. Pure.

A name is read without the vendor before it (`deepseek/deepseek-r1:free`, `us.anthropic.claude-opus-4-5-v1:0`), in lower
case, and a dot between digits is a dash (Anthropic writes `claude-opus-4-5`, routers `claude-opus-4.5`). A family is
the beginning of a name up to where a word ends, so `o1` covers `o1-pro` and `o1:free`, and not `o100`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

FLOORS_S: Final[Mapping[str, float]] = {
    # Minutes of thinking at full effort are usual, and most of these do not stream any of it.
    "claude-fable": 600.0,
    "deepseek-r1": 600.0,
    "deepseek-reasoner": 600.0,
    "deepseek-v4": 600.0,
    "gpt-5-pro": 600.0,
    "gpt-5.2-pro": 600.0,
    "gpt-5.4-pro": 600.0,
    "nemotron-3-super": 600.0,
    "nemotron-3-ultra": 600.0,
    "o1": 600.0,
    "o3": 600.0,
    # GLM and Kimi stream their thinking, but a gateway in between may hold it back, and a full coding context is read
    # for a minute or two before the first token.
    "glm-4.7": 300.0,
    "glm-5": 300.0,
    "kimi-k2-thinking": 300.0,
    "kimi-k2.5": 300.0,
    "kimi-k2.6": 300.0,
    "kimi-k3": 300.0,
    "kimi-thinking": 300.0,
    # Thinks unseen unless told not to.
    "gemini-2.5-pro": 300.0,
    "gemini-3": 300.0,
    "gpt-5": 300.0,
    "grok-4": 300.0,
    "inkling": 300.0,
    "nemotron-3-nano": 300.0,
    "o3-mini": 300.0,
    "o4-mini": 300.0,
    "ox-alpha": 300.0,
    "qwq": 300.0,
    "claude-opus-4": 240.0,
    "claude-opus-5": 240.0,
    "claude-sonnet-4.5": 180.0,
    "claude-sonnet-4.6": 180.0,
    "claude-sonnet-5": 180.0,
    "glm-4.5": 180.0,
    "glm-4.6": 180.0,
    "glm-5-turbo": 180.0,
    "glm-5v-turbo": 180.0,
    "grok-4-fast-non-reasoning": 180.0,
    "grok-4.1-fast-non-reasoning": 180.0,
    "kimi": 180.0,
    "minimax-m2": 180.0,
    "minimax-m3": 180.0,
    "qwen3": 180.0,
}
"""Seconds of silence that a family's thinking may take, at the least."""

_VENDOR: Final = re.compile(r"^(?:[a-z]+\.)+")
_DOT_BETWEEN_DIGITS: Final = re.compile(r"(?<=[0-9])\.(?=[0-9])")


def family_floor_s(model: str, own: Mapping[str, float]) -> float:
    """The seconds of silence that `model`'s family may take at the least; 0 where none is known.

    `own` (`calls.family_floor_seconds`) comes first: what it says of a name holds, also where it is less.
    """
    found = family_of(model, own)
    if found is not None:
        return own[found]
    builtin = family_of(model, FLOORS_S)
    return FLOORS_S[builtin] if builtin is not None else 0.0


def family_of(model: str, families: Iterable[str]) -> str | None:
    """The longest of `families` that `model` belongs to; a family may name its vendor too (`z-ai/glm-5`)."""
    whole, bare = plain_name(model), bare_name(model)
    return max(
        (family for family in families if _begins(bare, plain_name(family)) or _begins(whole, plain_name(family))),
        key=len,
        default=None,
    )


@lru_cache(maxsize=1024)
def bare_name(model: str) -> str:
    """`model` without its vendor, as families are compared."""
    return _VENDOR.sub("", plain_name(model).rpartition("/")[2])


@lru_cache(maxsize=1024)
def plain_name(model: str) -> str:
    """`model` in the one spelling that names are compared in, its vendor kept."""
    return _DOT_BETWEEN_DIGITS.sub("-", model.strip().lower())


def _begins(name: str, family: str) -> bool:
    return bool(family) and name.startswith(family) and not name[len(family) : len(family) + 1].isalnum()
