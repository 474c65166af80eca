"""What asyncio programs embed: `AsyncFleet`. Everything `Fleet` (`fleet.py`) does for others goes through it.

A fleet object belongs to the process that made it, an `AsyncFleet` also to its loop. When the fleet itself ends, every
open wait ends with `FleetLost`. A program that dies loses its slots at once; what it had recorded is adopted.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from ..protocol.destination import fingerprint
from ..protocol.errors import AskTimeout, FleetLost, FleetUnreachable, NoFleet, RemoteError, UsageError
from ..protocol.ids import AgentId, CallId, Incarnation, SessionId
from ..protocol.messages.broker import Acquire, BrokerReply, CapView, DeclareCap, Destination, Priority
from ..protocol.messages.fleet import (
    Agents,
    AgentSpec,
    AgentsQuery,
    AgentView,
    RootReply,
    Shutdown,
    ShuttingDown,
    Spawn,
    Status,
    StatusQuery,
)
from ..protocol.messages.ledger import (
    CallRecorded,
    CallRow,
    Calls,
    CallsQuery,
    CallStatus,
    LedgerReply,
    Totals,
    TotalsQuery,
)
from ..protocol.peer import Peer
from ..protocol.settings import ModelSettings
from ..protocol.usage import Usage
from ..storage.outbox import Outbox
from ..storage.owners import me
from .doors import Door, HomeDoor, network_door
from .handles import AsyncAgent, Seat, Slot
from .home import Home
from .interrupts import Interrupt
from .link import Link
from .records import Records
from .reports import usage_from
from .running import running_root
from .slots import Slots
from .sockets import make_context

DEFAULT_TOOLS = ("read_file", "write_file", "list_files", "terminal", "delegate_task")


def new_agent_id() -> AgentId:
    """A fresh name for an agent."""
    return AgentId(f"ag_{secrets.token_hex(6)}")


def new_session_id() -> SessionId:
    """A fresh name for a session."""
    return SessionId(f"ses_{secrets.token_hex(6)}")


def new_call_id() -> CallId:
    """A fresh name for a call."""
    return CallId(f"call_{secrets.token_hex(8)}")


class AsyncFleet:
    """The running fleet of a home, for use in one asyncio loop."""

    def __init__(self, door: Door, *, name: str) -> None:
        self._door = door
        self._pid = os.getpid()
        incarnation = Incarnation(f"{self._pid}-{secrets.token_hex(6)}")
        self.me = Peer(role="client", name=name, incarnation=incarnation, owner=me())
        self._loop = asyncio.get_running_loop()
        self._context = make_context()
        self._links: list[Link] = []
        self._loss: FleetLost | None = None
        self._records: Records | None = None
        self._slots: Slots | None = None
        self.root = self._link("root", RootReply)
        self._ledger: Link | None = None
        self._closed = False
        door.watch(self._lost)

    @classmethod
    async def join(cls, home: Home, *, name: str = "client", timeout_s: float = 10.0) -> AsyncFleet:
        """The fleet that runs in `home`; raises `NoFleet`, or `AskTimeout` for one that does not answer."""
        info = running_root(home)
        if info is None:
            raise NoFleet(str(home.path))
        return await cls._enter(HomeDoor(home, info), name=name, timeout_s=timeout_s)

    @classmethod
    async def reach(
        cls,
        address: str,
        *,
        server_key: str | Path,
        key_file: str | Path,
        spool: str | Path | None = None,
        name: str = "client",
        timeout_s: float = 10.0,
    ) -> AsyncFleet:
        """The fleet at `address` on another host; see `Fleet.remote`.

        Raises `KeyRefused`, `FleetUnreachable`, and what is wrong with the arguments.
        """
        door = network_door(address, server_key=server_key, key_file=key_file, spool=spool)
        try:
            return await cls._enter(door, name=name, timeout_s=timeout_s)
        except AskTimeout:
            raise FleetUnreachable(address, timeout_s) from None

    @classmethod
    async def _enter(cls, door: Door, *, name: str, timeout_s: float) -> AsyncFleet:
        fleet = cls(door, name=name)
        try:
            await fleet.root.opened(timeout_s=timeout_s)
            broker = fleet._link("broker", BrokerReply)
            fleet._slots = await Slots.connect(broker, timeout_s=timeout_s)
            ttl_s = fleet._slots.policy.remote_ttl_s
            await door.settle_in(fleet._context, broker, me=fleet.me, ttl_s=ttl_s)
        except BaseException:
            await fleet.close()
            raise
        return fleet

    @property
    def home(self) -> Home:
        """The fleet's home; only for a fleet of this host."""
        if not isinstance(self._door, HomeDoor):
            raise UsageError(f"the home of the fleet at {self._door.where} is on another host")
        return self._door.home

    @property
    def slots(self) -> Slots:
        """The broker's door."""
        if os.getpid() != self._pid:
            raise UsageError("an AsyncFleet belongs to the process that joined: after a fork, join again in the child")
        assert self._slots is not None, "the fleet was not joined"
        return self._slots

    @property
    def records(self) -> Records:
        """The ledger's door; opened when it is first used."""
        if self._records is None:
            outbox = Outbox(self._door.outbox(), role=self.me.role, incarnation=self.me.incarnation)
            self._records = Records(self._link("ledger", LedgerReply), outbox)
        return self._records

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
        seat: Callable[[], Seat] | None = None,
    ) -> Slot:
        """A slot for one call to `base_url`; nothing is taken before it is entered.

        `api_key` only tells accounts apart: it is hashed here and never leaves this process. `timeout` bounds the wait
        in seconds (None: the provider's configured one). Entering raises a `LimitError` (`SlotTimeout`, `BudgetParked`,
        …), or `InterruptedError` once `interrupt` is set or answers True; the provider was not contacted then.
        `accounted=False` for a call that somebody else records. `seat` is for fleets that wrap this one.
        """
        destination = Destination(base_url=base_url, credential=fingerprint(api_key), provider=provider)
        request = Acquire(
            call=new_call_id(),
            destination=destination,
            model=model,
            session=SessionId(session) if session is not None else None,
            tree=session or self.me.incarnation,
            priority=priority,
            timeout_s=timeout,
            accounted=accounted,
        )
        return Slot(seat or self._seat, request, interrupt=interrupt, key=(api_key or "").strip() or None)

    def record_usage(
        self,
        usage: Usage | Mapping[str, Any] | None,
        *,
        base_url: str,
        model: str,
        provider: str = "",
        session: str | None = None,
        call: str | None = None,
        status: CallStatus = CallStatus.COMPLETED,
    ) -> CallId:
        """Keep the account of a call that was made without a slot (inside one, use `slot.record_usage`).

        The same `call` again changes a row only where it knows more. Returns the call's id.
        """
        call_id = CallId(call) if call is not None else new_call_id()
        known = usage_from(usage)
        self.records.record(
            CallRecorded(
                call=call_id,
                provider=provider,
                base_url=base_url,
                model=model,
                status=status,
                started_at_ms=int(time.time() * 1000),
                usage=known,
                session=SessionId(session) if session is not None else None,
            )
        )
        return call_id

    async def spawn(
        self,
        goal: str,
        *,
        context: str | None = None,
        model: str | None = None,
        workspace: str | Path | None = None,
        tools: tuple[str, ...] = DEFAULT_TOOLS,
        max_turns: int | None = None,
        max_answer_tokens: int | None = None,
        source: str = "client",
        conversation: str | None = None,
        priority: Priority = Priority.AGENT,
        cap: str | None = None,
    ) -> AsyncAgent:
        """Run an agent in the fleet. `model` is a name at the default provider, or `provider/name`.

        The provider is asked to cut each answer at `max_answer_tokens`; an answer that is cut says so at its end.
        `conversation` names what it goes on with at `source`: providers keep it warm, and see only its hash.
        `cap` names what its calls and its children's may spend (`declare_cap`).
        Raises `UsageError` for a model nobody configured, `RemoteError` if the fleet refuses the agent.
        """
        agent = new_agent_id()
        spec = AgentSpec(
            agent=agent,
            session=new_session_id(),
            goal=goal,
            context=context,
            model=ModelSettings(provider="", name=model) if model else None,
            workspace=self._door.workspace(workspace),
            tools=tools,
            tree=agent,
            max_turns=max_turns or 0,
            max_answer_tokens=max_answer_tokens,
            source=source,
            conversation=conversation,
            priority=priority,
            cap=cap,
        )
        try:
            await self.root.ask(Spawn(spec=spec), timeout_s=30.0)
        except RemoteError as error:
            if error.kind == "UsageError":
                raise UsageError(error.message) from None
            raise
        return AsyncAgent(self, spec)

    async def declare_cap(self, name: str, *, max_tokens: int | None = None, max_cost_usd: float | None = None) -> None:
        """Let calls that name this cap spend so much and no more, all together; None is no limit.

        Declared again, its limits are changed; what was spent stays spent. An agent that meets it ends as
        `cap_reached`. Raises `UsageError` for what cannot be meant.
        """
        await self.slots.declare(DeclareCap(name=name, max_tokens=max_tokens, max_cost_usd=max_cost_usd))

    async def caps(self) -> tuple[CapView, ...]:
        """What every cap may spend, has spent, and has reserved for calls that run."""
        return await self.slots.caps()

    async def flush(self, *, timeout_s: float = 10.0) -> None:
        """Return once everything recorded so far is in state.db; raises `AskTimeout`."""
        await self.records.flush(timeout_s=timeout_s)

    async def totals(self, *, session: str | None = None) -> Totals:
        """Sums of what providers reported, over all calls or one session; what we recorded before is in them."""
        query = TotalsQuery(session=SessionId(session) if session is not None else None)
        return cast(Totals, await self.records.query(query))

    async def calls(self, *, after: int = 0, limit: int = 1000) -> tuple[CallRow, ...]:
        """Stored calls in the order they were first recorded, behind row `after`; none mean that there are no more."""
        return cast(Calls, await self.records.query(CallsQuery(after=after, limit=limit))).rows

    async def agents(self) -> tuple[AgentView, ...]:
        """All agents the fleet remembers, and what they do."""
        return cast(Agents, await self.root.ask(AgentsQuery(), timeout_s=10.0)).agents

    async def status(self, *, deadline_s: float = 1.0) -> Status:
        """Processes, budgets, agents and the ledger, as they are now."""
        return cast(Status, await self.root.ask(StatusQuery(deadline_s=deadline_s), timeout_s=deadline_s + 5.0))

    async def shut_down(self, reason: str) -> ShuttingDown:
        """Ask the root to stop the tree; returns when it has begun."""
        return cast(ShuttingDown, await self.root.ask(Shutdown(reason=reason), timeout_s=10.0))

    async def close(self, *, timeout_s: float = 5.0) -> None:
        """Leave the fleet: records are flushed, slots given back. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._records is not None:
            await self._records.close(timeout_s=timeout_s)
        await self._door.close()
        for link in self._links:
            await link.settle(timeout_s=1.0)
            link.close()
        self._context.term()

    def _seat(self) -> Seat:
        return Seat(self, None)

    def _link(self, service: str, replies: Any) -> Link:
        link = self._door.link(self._context, service, me=self.me, replies=replies)
        self._links.append(link)
        if self._loss is not None:
            # The ledger's link is made when it is first needed, and the end of the fleet is told once.
            link.fail(self._loss)
        return link

    def _lost(self) -> None:
        self._loss = FleetLost(self._door.where, "a request")
        for link in self._links:
            link.fail(self._loss)
