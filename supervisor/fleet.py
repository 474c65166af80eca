"""`Fleet`: the client library for programs without a loop, and the ways in for those with one.

with Fleet.connect() as fleet:
    with fleet.slot("https://api.z.ai/api/coding/paas/v4", model="glm-5", api_key=key) as slot:
        ...                                   # one provider call
        slot.record_usage(answer["usage"])

A forked child may go on using the `Fleet` it was born with: at the first use there it joins under a name of its own.
What the parent holds stays the parent's, and the parent's thread, sockets and loop are not touched.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..protocol.errors import UsageError
from ..protocol.ids import CallId
from ..protocol.messages.broker import CapView, Priority
from ..protocol.messages.fleet import AgentView, Status
from ..protocol.messages.ledger import CallRow, Totals
from ..protocol.usage import Usage
from .client import AsyncFleet
from .handles import Agent, Seat, Slot
from .home import Home
from .interrupts import Interrupt
from .portal import Portal
from .running import running_root

T = TypeVar("T")

_fleets: weakref.WeakSet[Fleet] = weakref.WeakSet()
_inherited: list[Seat] = []
"""What a forked child must not touch, not even by freeing it: its loop and sockets are shared with the parent."""


class Fleet:
    """The running fleet of a home, for programs without a loop. Its methods may be called from any thread."""

    def __init__(self, join: Callable[[], Coroutine[Any, Any, AsyncFleet]]) -> None:
        """`join` is called on the loop thread, once per process that uses this object."""
        self._join = join
        self._seat: Seat | None = None
        self._is_left = False
        # Held while joining, because every other thread would have to wait for that anyway.
        self._joining = threading.Lock()
        _fleets.add(self)

    @classmethod
    @contextmanager
    def connect(
        cls, home: str | Path | None = None, *, start: bool = True, name: str = "client", timeout: float = 15.0
    ) -> Iterator[Fleet]:
        """Join the fleet of `home` (default: `$COVEY_HOME` or `~/.covey`).

        Without one, bring it up in the background (it stays), or raise `NoFleet` if `start` is false.
        """
        with cls._joined(lambda: _join(home, start=start, name=name, timeout_s=timeout)) as fleet:
            yield fleet

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

        def reach() -> Coroutine[Any, Any, AsyncFleet]:
            return AsyncFleet.reach(
                address, server_key=server_key, key_file=key_file, spool=spool, name=name, timeout_s=timeout
            )

        with cls._joined(reach) as fleet:
            yield fleet

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
        interrupt: Interrupt | None = None,
    ) -> Slot:
        """A slot for one call; see `AsyncFleet.slot`. `interrupt` is asked in the thread that waits."""
        return self._here.fleet.slot(
            base_url,
            model=model,
            api_key=api_key,
            session=session,
            timeout=timeout,
            provider=provider,
            priority=priority,
            accounted=accounted,
            interrupt=interrupt,
            seat=lambda: self._here,
        )

    def record_usage(self, usage: Usage | Mapping[str, Any] | None, **where: Any) -> CallId:
        """Keep the account of a call made without a slot; see `AsyncFleet.record_usage`."""

        async def record(fleet: AsyncFleet) -> CallId:
            return fleet.record_usage(usage, **where)

        return self._call(record)

    def flush(self, *, timeout: float = 10.0) -> None:
        """Return once everything recorded so far is in state.db."""
        self._call(lambda fleet: fleet.flush(timeout_s=timeout))

    def spawn(self, goal: str, **how: Any) -> Agent:
        """Run an agent in the fleet; see `AsyncFleet.spawn`."""
        return Agent(self._call(lambda fleet: fleet.spawn(goal, **how)), self._portal)

    def declare_cap(self, name: str, *, max_tokens: int | None = None, max_cost_usd: float | None = None) -> None:
        """Let calls that name this cap spend so much and no more; see `AsyncFleet.declare_cap`."""
        self._call(lambda fleet: fleet.declare_cap(name, max_tokens=max_tokens, max_cost_usd=max_cost_usd))

    def caps(self) -> tuple[CapView, ...]:
        """What every cap may spend and has spent; see `AsyncFleet.caps`."""
        return self._call(lambda fleet: fleet.caps())

    def totals(self, *, session: str | None = None) -> Totals:
        """Sums of what providers reported; see `AsyncFleet.totals`."""
        return self._call(lambda fleet: fleet.totals(session=session))

    def calls(self, *, after: int = 0, limit: int = 1000) -> tuple[CallRow, ...]:
        """Stored calls in order; see `AsyncFleet.calls`."""
        return self._call(lambda fleet: fleet.calls(after=after, limit=limit))

    def agents(self) -> tuple[AgentView, ...]:
        """All agents the fleet remembers, and what they do."""
        return self._call(lambda fleet: fleet.agents())

    def status(self, *, deadline_s: float = 1.0) -> Status:
        """Processes, budgets, agents and the ledger, as they are now."""
        return self._call(lambda fleet: fleet.status(deadline_s=deadline_s))

    # --- inside --------------------------------------------------------------------------------------------------

    @classmethod
    @contextmanager
    def _joined(cls, join: Callable[[], Coroutine[Any, Any, AsyncFleet]]) -> Iterator[Fleet]:
        fleet = cls(join)
        try:
            assert fleet._here.pid == os.getpid(), "joined in this process"
            yield fleet
        finally:
            fleet._leave()

    @property
    def _here(self) -> Seat:
        """Our place in this process; joins where there is none yet."""
        seat = self._seat
        if seat is not None:
            return seat
        with self._joining:
            if self._is_left:
                raise UsageError("this Fleet was left: use it inside of its `with`")
            if self._seat is None:
                self._seat = _sit_down(self._join)
            return self._seat

    @property
    def _portal(self) -> Portal:
        portal = self._here.portal
        assert portal is not None, "a blocking fleet has one"
        return portal

    def _call(self, work: Callable[[AsyncFleet], Coroutine[Any, Any, T]]) -> T:
        portal = self._portal
        return portal.call(work(self._here.fleet))

    def _leave(self) -> None:
        with self._joining:
            self._is_left = True
            seat, self._seat = self._seat, None
        if seat is None or seat.portal is None:
            return
        try:
            seat.portal.call(seat.fleet.close())
        finally:
            seat.portal.close()

    def _forget_parent(self) -> None:
        """We are a child that was just forked: the thread that served this object is not here."""
        if self._seat is not None:
            _inherited.append(self._seat)
        self._seat = None
        self._joining = threading.Lock()


def _sit_down(join: Callable[[], Coroutine[Any, Any, AsyncFleet]]) -> Seat:
    portal = Portal()
    try:
        return Seat(portal.call(join()), portal)
    except BaseException:
        portal.close()
        raise


def _forget_parents() -> None:
    for fleet in list(_fleets):
        fleet._forget_parent()


os.register_at_fork(after_in_child=_forget_parents)


async def _join(home: str | Path | None, *, start: bool, name: str, timeout_s: float) -> AsyncFleet:
    where = Home.locate(home)
    if running_root(where) is None and start:
        from .launch import launch
        from .one_off import in_thread

        await in_thread(launch, where, timeout_s=timeout_s)
    return await AsyncFleet.join(where, name=name, timeout_s=timeout_s)
