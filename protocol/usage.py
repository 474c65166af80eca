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
    reasoning: int = 0

    @property
    def prompt_tokens(self) -> int:
        """All tokens that went in, as chat completions count them."""
        return self.input + self.cache_read + self.cache_write

    @property
    def completion_tokens(self) -> int:
        """All tokens that came out, as chat completions count them."""
        return self.output + self.reasoning
