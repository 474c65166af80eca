"""Requests that this provider does not take as they are: each refusal says what to change.

Pure. The texts are those that clients have to read a number or a name out of.
"""

from __future__ import annotations

from typing import Final

from .provider_errors import Refusal, refusal
from .provider_knobs import Knobs
from .provider_moods import Moods

LONGEST: Final = 65_536
"""Tokens that an answer without a bound is taken for."""


def unfit(*, moods: Moods, knobs: Knobs, prompt_tokens: int) -> Refusal | None:
    """What has to be changed before the request can be taken; None if nothing."""
    if moods.context_window is not None and prompt_tokens > moods.context_window:
        return refusal("1261", f"The prompt is too long: {prompt_tokens} tokens > {moods.context_window} maximum")
    for name in moods.refused_fields:
        if name in knobs.fields:
            text = f"Unsupported parameter: '{name}' is not supported with this model."
            return refusal("unsupported_parameter", text, status=400)
    if moods.is_reasoning_mandatory and knobs.is_without_reasoning:
        text = "Reasoning is mandatory for this endpoint and cannot be disabled."
        return refusal("400", text, status=400)
    asked = knobs.max_tokens
    if moods.longest_answer is not None and asked is not None and asked > moods.longest_answer:
        text = f"max_tokens is too large: {asked}. This model supports at most {moods.longest_answer} completion tokens"
        return refusal("invalid_value", text, status=400)
    wanted = LONGEST if asked is None else asked
    if moods.affordable_tokens is not None and wanted > moods.affordable_tokens:
        text = (
            "This request requires more credits, or fewer max_tokens. "
            f"You requested up to {wanted} tokens, but can only afford {moods.affordable_tokens}."
        )
        return refusal("402", text, status=402)
    return None
