"""`Fleet`: the client library for programs without a loop, and the ways in for those with one.

with Fleet.connect() as fleet:
    with fleet.slot("https://api.z.ai/api/coding/paas/v4", model="glm-5", api_key=key) as slot:
        ...                                   # one provider call
        slot.record_usage(answer["usage"])
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from ..protocol.ids import CallId
from ..protocol.messages.broker import Priority
from ..protocol.messages.fleet import AgentView, Status
from ..protocol.messages.ledger import CallRow, Totals
from ..protocol.usage import Usage
from .client import AsyncFleet
from .handles import Agent, Slot
from .home import Home
from .portal import Portal
from .running import running_root


class Fleet:
    """The running fleet of a home, for programs without a loop. Its methods may be called from any thread."""

    def __init__(self, fleet: AsyncFleet, portal: Portal) -> None:
        self._fleet = fleet
        self._portal = portal

    @classmethod
    @contextmanager
    def connect(
        cls, home: str | Path | None = None, *, start: bool = True, name: str = "client", timeout: float = 15.0
    ) -> Iterator[Fleet]:
        """Join the fleet of `home` (default: `$COVEY_HOME` or `~/.covey`).

        Without one, bring it up in the background (it stays), or raise `NoFleet` if `start` is false.
        """
        portal = Portal()
        try:
            fleet = portal.call(_join(home, start=start, name=name, timeout_s=timeout))
            try:
                yield cls(fleet, portal)
            finally:
                portal.call(fleet.close())
        finally:
            portal.close()

    @classmethod
    @asynccontextmanager
    async def aconnect(
        cls, home: str | Path | None = None, *, start: bool = True, name: str = "client", timeout: float = 15.0
    ) -> AsyncIterator[AsyncFleet]:
        """The same for asyncio programs."""
        fleet = await _join(home, start=start, name=name, timeout_s=timeout)
        try:
            yield fleet
        finally:
            await fleet.close()

    @classmethod
    @contextmanager
    def remote(
        cls,
        address: str,
        *,
        server_key: str | Path,
        key_file: str | Path,
        spool: str | Path | None = None,
        name: str = "client",
        timeout: float = 15.0,
    ) -> Iterator[Fleet]:
        """Join a fleet on another host (`fleet.listen` of its configuration); docs/remote.md.

        `server_key` is its public key, or a file with it; `key_file` holds our own secret. What we record waits in
        `spool` (default: `remote` in our home) while the fleet cannot be reached, also for a later run.
        """
        portal = Portal()
        try:
            fleet = portal.call(
                AsyncFleet.reach(
                    address, server_key=server_key, key_file=key_file, spool=spool, name=name, timeout_s=timeout
                )
            )
            try:
                yield cls(fleet, portal)
            finally:
                portal.call(fleet.close())
        finally:
            portal.close()

    @classmethod
    @asynccontextmanager
    async def aremote(
        cls,
        address: str,
        *,
        server_key: str | Path,
        key_file: str | Path,
        spool: str | Path | None = None,
        name: str = "client",
        timeout: float = 15.0,
    ) -> AsyncIterator[AsyncFleet]:
        """The same for asyncio programs. A loop that stands still for the TTL loses its slots."""
        fleet = await AsyncFleet.reach(
            address, server_key=server_key, key_file=key_file, spool=spool, name=name, timeout_s=timeout
        )
        try:
            yield fleet
        finally:
            await fleet.close()

    def slot(
        self,
        base_url: str,
        *,
        model: str,
        api_key: str | None = None,
        session: str | None = None,
        timeout: float | None = None,
        provider: str | None = None,
        priority: Priority = Priority.AGENT,
        accounted: bool = True,
    ) -> Slot:
        """A slot for one call; see `AsyncFleet.slot`."""
        return self._fleet.slot(
            base_url,
            model=model,
            api_key=api_key,
            session=session,
            timeout=timeout,
            provider=provider,
            priority=priority,
            accounted=accounted,
            portal=self._portal,
        )

    def record_usage(self, usage: Usage | Mapping[str, Any] | None, **where: Any) -> CallId:
        """Keep the account of a call made without a slot; see `AsyncFleet.record_usage`."""

        async def record() -> CallId:
            return self._fleet.record_usage(usage, **where)

        return self._portal.call(record())

    def flush(self, *, timeout: float = 10.0) -> None:
        """Return once everything recorded so far is in state.db."""
        self._portal.call(self._fleet.flush(timeout_s=timeout))

    def spawn(self, goal: str, **how: Any) -> Agent:
        """Run an agent in the fleet; see `AsyncFleet.spawn`."""
        return Agent(self._portal.call(self._fleet.spawn(goal, **how)), self._portal)

    def totals(self, *, session: str | None = None) -> Totals:
        """Sums of what providers reported; see `AsyncFleet.totals`."""
        return self._portal.call(self._fleet.totals(session=session))

    def calls(self, *, after: int = 0, limit: int = 1000) -> tuple[CallRow, ...]:
        """Stored calls in order; see `AsyncFleet.calls`."""
        return self._portal.call(self._fleet.calls(after=after, limit=limit))

    def agents(self) -> tuple[AgentView, ...]:
        """All agents the fleet remembers, and what they do."""
        return self._portal.call(self._fleet.agents())

    def status(self, *, deadline_s: float = 1.0) -> Status:
        """Processes, budgets, agents and the ledger, as they are now."""
        return self._portal.call(self._fleet.status(deadline_s=deadline_s))


async def _join(home: str | Path | None, *, start: bool, name: str, timeout_s: float) -> AsyncFleet:
    where = Home.locate(home)
    if running_root(where) is None and start:
        from .launch import launch

        await asyncio.to_thread(launch, where, timeout_s=timeout_s)
    return await AsyncFleet.join(where, name=name, timeout_s=timeout_s)
