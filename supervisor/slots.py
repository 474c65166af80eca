"""The broker as this process sees it: a slot is held inside a `with`, and given back however that ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from ..protocol.destination import provider_for
from ..protocol.errors import CoveyError, QueueFull, SlotRevoked, SlotTimeout
from ..protocol.messages.broker import Acquire, Granted, Policy, PolicyQuery, Refusal, Refused, Release, Unlimited
from .link import Link

STOP_COMES_S = 30.0


class Slots:
    """Implements `actors.ports.Slots`. Owned by the loop thread.

    `policy` says which destinations have a budget; the others pass without a round trip.
    """

    def __init__(self, link: Link, policy: Policy) -> None:
        self._link = link
        self._policy = policy

    @classmethod
    async def connect(cls, link: Link, *, timeout_s: float = 10.0) -> Slots:
        """Learn the policy and be ready."""
        return cls(link, cast(Policy, await link.ask(PolicyQuery(), timeout_s=timeout_s)))

    @property
    def policy(self) -> Policy:
        """What the broker told about budgets when we connected."""
        return self._policy

    @asynccontextmanager
    async def slot(self, request: Acquire) -> AsyncIterator[Granted | Unlimited]:
        """See `actors.ports.Slots.slot`."""
        granted = await self.acquire(request)
        try:
            yield granted
        except BaseException:
            self.release(request, granted, was_cut=True)
            raise
        self.release(request, granted)

    async def acquire(self, request: Acquire) -> Granted | Unlimited:
        """Wait for the slot; raises `SlotTimeout` or `QueueFull`. When cancelled, nothing is held or waited for."""
        if provider_for(request.destination, self._policy.limits) is None:
            return Unlimited(call=request.call)
        try:
            # The broker counts the timeout; a successor, which knows no waiters, counts it anew.
            reply = await self._link.ask(request, timeout_s=None)
        except (asyncio.CancelledError, CoveyError):
            # A grant may be on its way: giving the id back covers both cases.
            self._link.post(Release(call=request.call))
            raise
        if isinstance(reply, Refused):
            if reply.reason is Refusal.REVOKED:
                # The word to stop is on its way to the agent itself; it ends this wait, and the agent as stopped.
                await asyncio.sleep(STOP_COMES_S)
            raise refusal(reply)
        return cast("Granted | Unlimited", reply)

    def release(self, request: Acquire, granted: Granted | Unlimited, *, was_cut: bool = False) -> None:
        """Give the slot back: sent at once, repeated until the broker has it, never waited for.

        `was_cut`: the call was closed before its end, so the provider may count it for a moment longer.
        """
        if isinstance(granted, Granted):
            self._link.post(Release(call=request.call, was_cut=was_cut))


def refusal(refused: Refused) -> CoveyError:
    """The broker's refusal as the error its caller sees."""
    if refused.reason is Refusal.REVOKED:
        return SlotRevoked(refused.budget)
    if refused.reason is Refusal.QUEUE_FULL:
        return QueueFull(refused.budget, refused.queued)
    return SlotTimeout(refused.budget, refused.waited_s, refused.queued)
