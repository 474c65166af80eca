"""Tokens of one call, in disjoint buckets.

Providers disagree on what contains what: chat completions count cached tokens inside the prompt and reasoning
inside the completion. Here every token is in exactly one bucket, so sums are sums. A call without a report has
no `Usage` at all (None): unknown is a value and never 0.
"""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a provider reported for one call; all counts are tokens and not negative."""

    input: int
    """Prompt tokens that came from no cache."""
    output: int
    """Tokens of the answer, without reasoning."""
    cache_read: int = 0
    cache_write: int = 0
    """Tokens put into a cache, for whatever time."""
    cache_write_1h: int = 0
    """Those of `cache_write` that are kept for an hour; the others are for the usual five minutes."""
    reasoning: int = 0
    is_adjusted: bool = False
    """The report contradicted itself (a negative count, a part larger than its whole) and was bounded."""
    raw: str | None = None
    """The report as it came, shortened, where it was adjusted."""

    @property
    def cache_write_5m(self) -> int:
        """Tokens put into a cache for the usual time."""
        return self.cache_write - self.cache_write_1h

    @property
    def prompt_tokens(self) -> int:
        """All tokens that went in, as chat completions count them."""
        return self.input + self.cache_read + self.cache_write

    @property
    def completion_tokens(self) -> int:
        """All tokens that came out, as chat completions count them."""
        return self.output + self.reasoning

    @property
    def total_tokens(self) -> int:
        """All tokens, in and out."""
        return self.prompt_tokens + self.completion_tokens


def disjoint(
    *,
    prompt: int,
    completion: int,
    cache_read: int = 0,
    cache_write: int = 0,
    cache_write_1h: int = 0,
    reasoning: int = 0,
    total: int | None = None,
) -> Usage:
    """Split a report whose prompt contains the cached tokens and whose completion contains the reasoning.

    The whole is believed before its parts, so `prompt_tokens` and `completion_tokens` are what was reported. Only a
    `total` that counts reasoning a second time shows that it stands beside the completion (xAI reports it so).
    """
    if reasoning > 0 and total == prompt + completion + reasoning:
        completion += reasoning
    whole_prompt, whole_completion = max(prompt, 0), max(completion, 0)
    read = _between(cache_read, whole_prompt)
    write = _between(cache_write, whole_prompt - read)
    for_an_hour = _between(cache_write_1h, write)
    thought = _between(reasoning, whole_completion)
    bounded = (whole_prompt, whole_completion, read, write, for_an_hour, thought)
    return Usage(
        input=whole_prompt - read - write,
        output=whole_completion - thought,
        cache_read=read,
        cache_write=write,
        cache_write_1h=for_an_hour,
        reasoning=thought,
        is_adjusted=bounded != (prompt, completion, cache_read, cache_write, cache_write_1h, reasoning),
    )


def _between(count: int, whole: int) -> int:
    return min(max(count, 0), whole)
