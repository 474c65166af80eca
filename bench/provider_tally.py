"""Counts by account and model: what `GET /accounts` says, with keys that stay as they are.

Pure. Calls are counted, not held: the caller ends each one once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from .provider_calls import CallState, ProviderCall

MOST_NAMES: Final = 1000
"""Accounts, and models of one account, that are told apart; more of them are counted together under `OTHERS`."""

OTHERS: Final = "(others)"


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start or the last reset."""

    requests: int
    """Calls that came: taken on or refused."""
    answered: int
    aborted: int
    in_flight: int
    peak_in_flight: int
    refused: dict[str, int]
    """By code."""
    tokens_in: int
    """Prompts of the calls that were taken on."""
    tokens_out: int
    """Answers that went out whole, whether the client was told their tokens or not."""
    tokens_refused: int
    """Prompts of refused calls: what was sent for nothing."""
    peak_per_s: int
    """Most requests within one second of the provider's clock."""


class AccountTally(Tally, frozen=True, kw_only=True):
    """An account's counts, and of those each model's."""

    locked: bool
    """Whether it is locked with 1313."""
    models: dict[str, Tally]


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """All accounts; the name is the key's fingerprint, `none` for calls without a key."""

    limit: int
    """Calls in flight that one account may have now."""
    accounts: dict[str, AccountTally]


class _Count:
    def __init__(self) -> None:
        self.in_flight = 0
        self.clear()

    def clear(self) -> None:
        self.answered = self.aborted = self.tokens_in = self.tokens_out = self.tokens_refused = 0
        self.requests = self.peak = self.in_flight
        self.refused: Counter[str] = Counter()
        self.second, self.in_second, self.peak_per_s = -1, 0, 0

    def came(self, now: float) -> None:
        self.requests += 1
        if int(now) != self.second:
            self.second, self.in_second = int(now), 0
        self.in_second += 1
        self.peak_per_s = max(self.peak_per_s, self.in_second)

    def tally(self) -> Tally:
        return Tally(
            requests=self.requests,
            answered=self.answered,
            aborted=self.aborted,
            in_flight=self.in_flight,
            peak_in_flight=self.peak,
            refused=dict(self.refused),
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            tokens_refused=self.tokens_refused,
            peak_per_s=self.peak_per_s,
        )


class Tallies:
    """Counts for every account and model. Owned by the loop thread."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[_Count, dict[str, _Count]]] = {}

    def take(self, call: ProviderCall) -> None:
        """A call was taken on."""
        for count in self._of(call):
            count.came(call.started_s)
            count.in_flight += 1
            count.peak = max(count.peak, count.in_flight)
            count.tokens_in += call.prompt_tokens

    def refuse(self, call: ProviderCall, *, prompt_tokens: int) -> None:
        """A call was refused."""
        for count in self._of(call):
            count.came(call.started_s)
            count.refused[call.code or ""] += 1
            count.tokens_refused += prompt_tokens

    def end(self, call: ProviderCall) -> None:
        """A call that was taken on has ended."""
        for count in self._of(call):
            count.in_flight -= 1
            count.answered += call.status is CallState.COMPLETED
            count.aborted += call.status is CallState.ABORTED
            count.tokens_out += call.completion_tokens

    def reset(self) -> None:
        """Begin anew; calls in flight are counted as if they had just begun, without their prompts."""
        for account, models in self._counts.values():
            for count in (account, *models.values()):
                count.clear()

    def report(self, *, limit: int, is_locked: Callable[[str], bool]) -> Accounts:
        """Everything; accounts that did nothing since the reset are there with zeros."""
        return Accounts(
            limit=limit,
            accounts={
                name: AccountTally(
                    **msgspec.structs.asdict(account.tally()),
                    locked=is_locked(name),
                    models={model: count.tally() for model, count in models.items()},
                )
                for name, (account, models) in self._counts.items()
            },
        )

    def _of(self, call: ProviderCall) -> tuple[_Count, _Count]:
        name = call.account if call.account in self._counts or len(self._counts) < MOST_NAMES else OTHERS
        account, models = self._counts.setdefault(name, (_Count(), {}))
        model = call.model if call.model in models or len(models) < MOST_NAMES else OTHERS
        return account, models.setdefault(model, _Count())
