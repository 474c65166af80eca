"""What a program holds: a slot for one provider call, an agent it spawned. Both work in `with` and `async with` style.

A handle belongs to the fleet object it came from. On a blocking fleet (`Fleet`) the work runs on the fleet's own loop
thread, and the handle's blocking methods wait for it; interrupting such a wait gives up what was waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from ..protocol.errors import SlotReused
from ..protocol.ids import AgentId, BudgetKey, CallId, SessionId
from ..protocol.messages.broker import Acquire, Granted, Unlimited
from ..protocol.messages.fleet import AgentResult, AgentSpec, AwaitAgent, Finished, StopAgents
from ..protocol.messages.ledger import CallRecorded, CallStatus
from ..protocol.usage import Usage
from .reports import usage_from

if TYPE_CHECKING:
    from .client import AsyncFleet
    from .portal import Portal


class Slot:
    """One slot for one provider call: taken on entry, given back on exit, used once.

    Send `call` to the provider as `X-Client-Request-Id`, so that its books and ours can be compared. A call whose usage
    was not recorded by the end of the `with` is kept as one with unknown usage.
    """

    def __init__(self, fleet: AsyncFleet, portal: Portal | None, request: Acquire) -> None:
        self._fleet = fleet
        self._portal = portal
        self._request = request
        self._granted: Granted | Unlimited | None = None
        self._entered = False
        self._usage: Usage | None = None
        self._model_answered: str | None = None
        self._response_id: str | None = None
        self._entered_at = 0.0
        self._started_ms = 0

    @property
    def call(self) -> CallId:
        """The id of this call, here and in state.db."""
        return self._request.call

    @property
    def budget(self) -> BudgetKey | None:
        """The budget the slot belongs to; None where nobody counts, and before entry."""
        return self._granted.budget if isinstance(self._granted, Granted) else None

    @property
    def waited_s(self) -> float:
        """How long the broker let this call wait."""
        return self._granted.waited_s if isinstance(self._granted, Granted) else 0.0

    def record_usage(
        self, usage: Usage | Mapping[str, Any] | None, *, model: str | None = None, response_id: str | None = None
    ) -> None:
        """Say what the provider reported: a `Usage`, or the `usage` object of its answer as it came.

        `model` is the one that answered, if it says so. The last report counts; it is stored when the slot is left.
        """
        self._usage = usage_from(usage)
        self._model_answered = model or self._model_answered
        self._response_id = response_id or self._response_id

    async def __aenter__(self) -> Self:
        self._claim()
        if self._portal is None:
            await self._enter()
            return self
        try:
            await self._portal.awaiting(self._enter())
        except BaseException:
            self._portal.soon(self._abandon)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._portal is None:
            self._leave(error)
        else:
            self._portal.soon(self._leave, error)

    def __enter__(self) -> Self:
        if self._portal is None:
            raise TypeError("this slot is from an async fleet: use `async with`")
        self._claim()
        try:
            self._portal.call(self._enter())
        except BaseException:
            self._portal.soon(self._abandon)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._portal is not None, "entered without a portal"
        self._portal.soon(self._leave, error)

    def _claim(self) -> None:
        if self._entered:
            raise SlotReused(f"slot {self.call} was used already; ask the fleet for another one")
        self._entered = True

    async def _enter(self) -> None:
        self._granted = await self._fleet.slots.acquire(self._request)
        self._entered_at = time.monotonic()
        self._started_ms = int(time.time() * 1000)

    def _abandon(self) -> None:
        """The wait was interrupted in the very moment of the grant: nobody will leave this slot, so it goes back."""
        granted, self._granted = self._granted, None
        if granted is not None:
            self._fleet.slots.release(self._request, granted)

    def _leave(self, error: BaseException | None) -> None:
        assert self._granted is not None, "left before it was entered"
        # The account first: between the two, a kill would lose the call, for the broker reports held slots only.
        try:
            if self._request.accounted:
                self._fleet.records.record(self._account(error))
        finally:
            self._fleet.slots.release(self._request, self._granted, was_cut=error is not None)

    def _account(self, error: BaseException | None) -> CallRecorded:
        status = CallStatus.COMPLETED
        if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)):
            status = CallStatus.CANCELLED
        elif error is not None:
            status = CallStatus.FAILED
        destination = self._request.destination
        return CallRecorded(
            call=self.call,
            provider=destination.provider or "",
            base_url=destination.base_url,
            model=self._request.model,
            status=status,
            started_at_ms=self._started_ms,
            usage=self._usage,
            session=self._request.session,
            model_answered=self._model_answered,
            response_id=self._response_id,
            waited_ms=round(self.waited_s * 1000, 3),
            duration_ms=round((time.monotonic() - self._entered_at) * 1000, 3),
            fault=type(error).__name__ if error is not None else None,
        )


class AsyncAgent:
    """An agent that was spawned in the fleet."""

    def __init__(self, fleet: AsyncFleet, spec: AgentSpec) -> None:
        self._fleet = fleet
        self._spec = spec

    @property
    def id(self) -> AgentId:
        """The agent's id, as `covey status` shows it."""
        return self._spec.agent

    @property
    def session(self) -> SessionId:
        """The session its transcript is kept under."""
        return self._spec.session

    async def result(self, *, timeout: float | None = None) -> AgentResult:
        """How it ended: waits for the end, however many workers it takes. Raises `AskTimeout`."""
        reply = await self._fleet.root.ask(AwaitAgent(agent=self.id), timeout_s=timeout)
        return cast(Finished, reply).result

    async def stop(self) -> None:
        """Stop it and all below it; afterwards no call of theirs can start."""
        await self._fleet.root.ask(StopAgents(agents=(self.id,)), timeout_s=30.0)


class Agent:
    """The same for blocking callers."""

    def __init__(self, agent: AsyncAgent, portal: Portal) -> None:
        self._agent = agent
        self._portal = portal

    @property
    def id(self) -> AgentId:
        """The agent's id, as `covey status` shows it."""
        return self._agent.id

    @property
    def session(self) -> SessionId:
        """The session its transcript is kept under."""
        return self._agent.session

    def result(self, *, timeout: float | None = None) -> AgentResult:
        """How it ended: waits for the end. Raises `AskTimeout`."""
        return self._portal.call(self._agent.result(timeout=timeout))

    def stop(self) -> None:
        """Stop it and all below it; afterwards no call of theirs can start."""
        self._portal.call(self._agent.stop())
