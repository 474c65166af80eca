"""What the broker told about budgets, kept fresh: a look costs no round trip, and has one made when it is old.

Whoever would pass without asking the broker waits for that one round trip: a limit may have been configured meanwhile.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, cast

from ..protocol.errors import CoveyError
from ..protocol.messages.broker import Policy, PolicyQuery
from .link import Link

FRESH_S: Final = 1.0
"""How long a policy is believed without asking: a limit that was new is held by everybody after it."""

ANSWER_S: Final = 5.0
"""A broker that is away for longer does not keep calls that nobody counts from going out."""


class KnownPolicy:
    """The latest policy. Owned by the loop thread; what is asked ends with the link."""

    def __init__(self, link: Link, policy: Policy, *, fresh_s: float = FRESH_S) -> None:
        self._link = link
        self._fresh_s = fresh_s
        self._loop = asyncio.get_running_loop()
        self._asking: asyncio.Task[None] | None = None
        self._policy = policy
        self._old_at = self._loop.time() + fresh_s

    @classmethod
    async def ask(cls, link: Link, *, timeout_s: float) -> KnownPolicy:
        """Learn it for the first time; raises what the link raises."""
        return cls(link, cast(Policy, await link.ask(PolicyQuery(), timeout_s=timeout_s)))

    @property
    def latest(self) -> Policy:
        """What is known, however old."""
        return self._policy

    def look(self) -> Policy:
        """Return what is known; if that is old, the next look may know more."""
        if self._loop.time() >= self._old_at and self._asking is None:
            self._asking = self._loop.create_task(self._ask_again())
        return self._policy

    async def fresh(self) -> Policy:
        """Return what is known, asked for anew if that is old and the broker answers."""
        self.look()
        if self._asking is not None:
            await asyncio.shield(self._asking)
        return self._policy

    async def _ask_again(self) -> None:
        try:
            with suppress(CoveyError):
                self._policy = cast(Policy, await self._link.ask(PolicyQuery(), timeout_s=ANSWER_S))
        finally:
            self._old_at = self._loop.time() + self._fresh_s
            self._asking = None
