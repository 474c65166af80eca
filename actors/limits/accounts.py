"""Which account a destination draws on, and what is configured for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...protocol.destination import budget_key, provider_for
from ...protocol.ids import BudgetKey
from ...protocol.messages.broker import Destination, ProviderLimit
from ...protocol.settings import ProviderSettings
from .terms import terms_of

_REMEMBERED: Final = 1024


class Accounts:
    """The configured providers, as the broker needs them. One without any limit has no budget."""

    def __init__(self, providers: Iterable[ProviderSettings]) -> None:
        limited = [(one, terms) for one in providers if (terms := terms_of(one)) is not None]
        self.policy = tuple(
            ProviderLimit(provider=one.name, base_url=one.base_url, max_concurrent=terms.limit)
            for one, terms in limited
        )
        self.terms = {one.name: terms for one, terms in limited}
        self._timeouts = {one.name: one.acquire_timeout_seconds or None for one, _ in limited}
        self._found: dict[Destination, str | None] = {}

    def provider_of(self, destination: Destination) -> str | None:
        """Name the provider whose limit counts for this destination; None when nobody counts."""
        if destination not in self._found:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[destination] = provider_for(destination, self.policy)
        return self._found[destination]

    def timeout_s(self, provider: str) -> float | None:
        """Return the provider's longest wait; None for one without end, or where nobody configured any."""
        return self._timeouts.get(provider)

    def estimate_usd(self, provider: str, model: str, tokens: int | None) -> float | None:
        """What a call of about so many tokens costs at the most; None where nobody configured a price."""
        terms = self.terms.get(provider)
        return terms.estimate_usd(model, tokens) if terms is not None else None

    def unseen(self, seen: Iterable[str]) -> tuple[tuple[BudgetKey, ProviderLimit], ...]:
        """Return the providers nobody asked for yet, under the key they have without a credential."""
        known = set(seen)
        return tuple((budget_key(one.provider, None), one) for one in self.policy if one.provider not in known)
