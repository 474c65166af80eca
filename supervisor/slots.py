"""The broker as this process sees it: a slot is held inside a `with`, and given back however that ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from ..actors.ports import Hold
from ..protocol.destination import budget_key, provider_for
from ..protocol.errors import AskTimeout, BrokerSilent, CoveyError, RemoteError, UsageError
from ..protocol.messages.broker import (
    Acquire,
    Answering,
    Budgets,
    BudgetsQuery,
    CapView,
    DeclareCap,
    Destination,
    Granted,
    Outcome,
    Policy,
    Refusal,
    Refused,
    Release,
    Unlimited,
)
from .known_policy import KnownPolicy
from .link import Link
from .refusals import refusal

STOP_COMES_S = 30.0

DECLARE_S = 10.0

REMEMBERED = 256
"""Destinations whose budget is not worked out again at every call."""

BROKER_GRACE_S = 1.0
"""How much longer than its timeout a call waits for the broker's word that it is over."""


class Slots:
    """Implements `actors.ports.Slots`. Owned by the loop thread.

    `policy` says which destinations have a budget; the others pass without a round trip, unless a cap is to be kept.
    """

    def __init__(self, link: Link, policy: KnownPolicy) -> None:
        self._link = link
        self._policy = policy
        # Reading URLs takes longer than all else that is done here for a call.
        self._found: dict[Destination, str | None] = {}
        self._found_in = policy.latest

    @classmethod
    async def connect(cls, link: Link, *, timeout_s: float = 10.0) -> Slots:
        """Learn the policy and be ready."""
        return cls(link, await KnownPolicy.ask(link, timeout_s=timeout_s))

    @property
    def policy(self) -> Policy:
        """What the broker told about budgets last."""
        return self._policy.latest

    @asynccontextmanager
    async def slot(self, request: Acquire) -> AsyncIterator[Hold]:
        """See `actors.ports.Slots.slot`."""
        granted = await self.acquire(request)
        hold = Hold(granted, on_answer=lambda: self.answers(request, granted))
        try:
            yield hold
        except BaseException:
            self.release(request, hold.grant, was_cut=True, outcome=hold.outcome)
            raise
        self.release(request, hold.grant, outcome=hold.outcome)

    async def acquire(self, request: Acquire) -> Granted | Unlimited:
        """Wait for the slot; raises a `LimitError`. When cancelled, nothing is held or waited for.

        A broker that does not answer is waited for; with a timeout, that ends in `BrokerSilent` a moment after it.
        """
        policy = self._policy.look()
        provider = self._provider(request.destination, policy)
        if provider is None and request.cap is None and not policy.counts_all:
            policy = await self._policy.fresh()
            provider = self._provider(request.destination, policy)
            if provider is None and not policy.counts_all:
                return Unlimited(call=request.call)
        try:
            # The broker counts the timeout; a successor, which knows no waiters, counts it anew. One that is not there
            # counts nothing.
            reply = await self._link.ask(request, timeout_s=_patience_s(request))
        except (asyncio.CancelledError, CoveyError) as error:
            # A grant may be on its way: giving the id back covers both cases.
            self._link.post(Release(call=request.call))
            if isinstance(error, AskTimeout):
                name = provider or request.destination.provider or request.destination.base_url
                raise BrokerSilent(budget_key(name, request.destination.credential), error.deadline_s) from None
            raise
        if isinstance(reply, Refused):
            if reply.reason is Refusal.REVOKED:
                # The word to stop is on its way to the agent itself; it ends this wait, and the agent as stopped.
                await asyncio.sleep(STOP_COMES_S)
            raise refusal(reply)
        return cast("Granted | Unlimited", reply)

    async def declare(self, cap: DeclareCap) -> None:
        """Let calls that name this cap spend so much; raises `UsageError` for what cannot be meant."""
        try:
            await self._link.ask(cap, timeout_s=DECLARE_S)
        except RemoteError as error:
            raise UsageError(error.message) from None

    async def caps(self) -> tuple[CapView, ...]:
        """Return every cap as it stands."""
        return cast(Budgets, await self._link.ask(BudgetsQuery(), timeout_s=DECLARE_S)).caps

    def answers(self, request: Acquire, granted: Granted | Unlimited) -> None:
        """The provider has begun to answer: if this call is out to try its account, the others need not wait longer."""
        if isinstance(granted, Granted) and granted.is_probe:
            self._link.post(Answering(call=request.call))

    def release(
        self,
        request: Acquire,
        granted: Granted | Unlimited,
        *,
        was_cut: bool = False,
        outcome: Outcome | None = None,
    ) -> None:
        """Give the slot back: sent at once, repeated until the broker has it, never waited for.

        `was_cut`: the call was closed before its end, so the provider may count it for a moment longer.
        """
        if isinstance(granted, Granted):
            self._link.post(Release(call=request.call, was_cut=was_cut, outcome=outcome))

    def _provider(self, destination: Destination, policy: Policy) -> str | None:
        if policy is not self._found_in or len(self._found) >= REMEMBERED:
            self._found, self._found_in = {}, policy
        if destination not in self._found:
            self._found[destination] = provider_for(destination, policy.limits)
        return self._found[destination]


def _patience_s(request: Acquire) -> float | None:
    return None if request.timeout_s is None else request.timeout_s + BROKER_GRACE_S
