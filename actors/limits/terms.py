"""What is configured for the budgets of one provider. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ...protocol.destination import is_zai
from ...protocol.messages.broker import Priority
from ...protocol.prices import ceiling_usd, price_of
from ...protocol.settings import Price, ProviderSettings
from .caps import DEFAULT_TOKENS

NO_LIMIT: Final = 1_000_000
"""Stands for a number of slots that nobody reaches."""
QUOTA_POLL_S: Final = 300.0
"""How often a quota is read while calls run, where the provider is known to have one."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The limits, and how they are shared."""

    limit: int
    model_limits: Mapping[str, int] = {}
    weights: Mapping[Priority, int] = {}
    release_lag_ms: float = 0.0
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    quota_poll_s: float | None = None
    """None: nobody reads it."""
    prices: Mapping[str, Price] = {}

    def estimate_usd(self, model: str, tokens: int | None) -> float | None:
        """What a call of about so many tokens costs at the most; None where the model has no price."""
        return ceiling_usd(DEFAULT_TOKENS if tokens is None else tokens, price_of(self.prices, model))


def terms_of(provider: ProviderSettings) -> Terms | None:
    """Return the terms of a configured provider; None for one without any limit: it has no budget."""
    per_minute = (provider.max_requests_per_minute, provider.max_tokens_per_minute)
    if not (provider.max_concurrent or provider.model_limits or any(per_minute)):
        return None
    poll_s = provider.quota_poll_seconds
    if poll_s is None and is_zai(provider.base_url, provider.name):
        poll_s = QUOTA_POLL_S
    return Terms(
        limit=provider.max_concurrent or NO_LIMIT,
        model_limits=provider.model_limits,
        weights={Priority(name): weight for name, weight in provider.priority_weights.items()},
        release_lag_ms=provider.release_lag_ms,
        requests_per_minute=provider.max_requests_per_minute,
        tokens_per_minute=provider.max_tokens_per_minute,
        quota_poll_s=poll_s or None,
        prices=provider.prices,
    )
