"""What a program holds: a slot for one provider call, an agent it spawned. Both work in `with` and `async with` style.

A handle belongs to the fleet object it came from. On a blocking fleet (`Fleet`) the work runs on the fleet's own loop
thread, and the handle's blocking methods wait for it; interrupting such a wait gives up what was waited for.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from ..protocol.destination import provider_of
from ..protocol.errors import SlotReused
from ..protocol.fault_kinds import Fault, FaultKind
from ..protocol.faults import without_key
from ..protocol.ids import AgentId, BudgetKey, CallId, SessionId
from ..protocol.messages.broker import Acquire, Granted, Outcome, Unlimited
from ..protocol.messages.fleet import AgentResult, AgentSpec, AwaitAgent, Finished, StopAgents
from ..protocol.messages.ledger import CallRecorded, CallStatus
from ..protocol.usage import Usage
from .interrupts import Interrupt, check, until_interrupted
from .outcomes import Report, ending_of, fault_of_error
from .reports import usage_from

if TYPE_CHECKING:
    from .client import AsyncFleet
    from .portal import Portal


@dataclass(frozen=True, slots=True)
class Seat:
    """A program's place in a fleet: one life of one process. `portal` is None where the program's own loop serves."""

    fleet: AsyncFleet
    portal: Portal | None
    pid: int = field(default_factory=os.getpid)


class Slot:
    """One slot for one provider call: taken on entry, given back on exit, used once.

    Send `call` to the provider as `X-Client-Request-Id`, so that its books and ours can be compared. A call whose usage
    was not recorded by the end of the `with` is kept as one with unknown usage. A child that was forked inside the
    `with` does not have the slot, and its leaving changes nothing.
    """

    def __init__(
        self,
        seat: Callable[[], Seat],
        request: Acquire,
        *,
        interrupt: Interrupt | None = None,
        key: str | None = None,
    ) -> None:
        """`seat` is asked on entry; `key` is only looked for in what the provider says, to keep it out of our rows."""
        self._find_seat = seat
        self._seat: Seat | None = None
        self._request = request
        self._interrupt = interrupt
        self._key = key
        self._granted: Granted | Unlimited | None = None
        self._is_abandoned = False
        self._usage: Usage | None = None
        self._fault: Fault | None = None
        self._is_answered = False
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
        self._is_answered = self._is_answered or self._usage is not None
        self._model_answered = model or self._model_answered
        self._response_id = response_id or self._response_id

    def report(self, outcome: Report) -> None:
        """Say how the call ended, so that the fleet can act on it: a park, a pause, a limit that was learned.

        A response (its body counts if it was read), a status with a body, an exception, a `Fault`, or the usage of an
        answer. An exception that is not the provider's doing says nothing. What is said later stands; the budget is
        told when the slot is left. Without a fault, an exception that leaves the `with` is looked at by itself.
        """
        ending = ending_of(outcome)
        if not ending.is_known:
            return
        self._fault = without_key(ending.fault, self._key) if ending.fault is not None else None
        self._is_answered = ending.fault is None
        if ending.usage is not None or ending.model is not None:
            self.record_usage(ending.usage or self._usage, model=ending.model, response_id=ending.response_id)

    async def __aenter__(self) -> Self:
        seat = self._claim()
        check(self._interrupt, waiting_for=self._purpose)
        try:
            entering = self._enter(seat) if seat.portal is None else seat.portal.awaiting(self._enter(seat))
            await until_interrupted(entering, self._interrupt, waiting_for=self._purpose)
        except BaseException:
            self._soon(seat, self._abandon)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave(error)

    def __enter__(self) -> Self:
        seat = self._claim(blocking=True)
        assert seat.portal is not None, "an async fleet was told apart"
        check(self._interrupt, waiting_for=self._purpose)
        try:
            seat.portal.call_until(self._interrupt, self._enter(seat), waiting_for=self._purpose)
        except BaseException:
            self._soon(seat, self._abandon)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave(error)

    def answers(self) -> None:
        """Say that the provider has begun to answer: whoever waits behind this call as the one that tries whether the
        account is well need not wait for its end."""
        granted = self._granted
        if self._seat is not None and isinstance(granted, Granted) and granted.is_probe:
            self._soon(self._seat, self._seat.fleet.slots.answers, self._request, granted)

    def leave(self, error: BaseException | None = None) -> None:
        """Give the slot back, as the end of the `with` does; waits for nothing, from any thread. Once per entry."""
        assert self._seat is not None, "left before it was entered"
        if self._seat.pid == os.getpid():
            self._soon(self._seat, self._leave, error)

    # --- inside --------------------------------------------------------------------------------------------------

    @property
    def _purpose(self) -> str:
        return f"a slot for a call to {self._request.destination.base_url}"

    def _claim(self, *, blocking: bool = False) -> Seat:
        if self._seat is not None:
            raise SlotReused(f"slot {self.call} was used already; ask the fleet for another one")
        seat = self._find_seat()
        if blocking and seat.portal is None:
            raise TypeError("this slot is from an async fleet: use `async with`")
        self._seat = seat
        return seat

    def _soon(self, seat: Seat, function: Callable[..., None], *args: Any) -> None:
        if seat.portal is None:
            function(*args)
        else:
            seat.portal.soon(function, *args)

    async def _enter(self, seat: Seat) -> None:
        granted = await seat.fleet.slots.acquire(self._request)
        if self._is_abandoned:
            # An interrupt that hit between two lines of the waiting thread: it could not take this wait back any more.
            seat.fleet.slots.release(self._request, granted)
            return
        self._granted = granted
        self._entered_at = time.monotonic()
        self._started_ms = int(time.time() * 1000)

    def _abandon(self) -> None:
        """The wait was interrupted in the very moment of the grant: nobody will leave this slot, so it goes back."""
        self._is_abandoned = True
        granted, self._granted = self._granted, None
        if granted is not None and self._seat is not None:
            self._seat.fleet.slots.release(self._request, granted)

    def _leave(self, error: BaseException | None) -> None:
        assert self._granted is not None, "left before it was entered"
        assert self._seat is not None, "left before it was entered"
        fleet = self._seat.fleet
        if error is not None and self._fault is None and (fault := fault_of_error(error)) is not None:
            self._fault = without_key(fault, self._key)
        # A call that the provider has answered, be it with an error, is over there as well.
        was_cut = error is not None and (self._fault is None or self._fault.status is None)
        # The account first: between the two, a kill would lose the call, for the broker reports held slots only.
        try:
            if self._request.accounted:
                fleet.records.record(self._account(error))
        finally:
            fleet.slots.release(self._request, self._granted, was_cut=was_cut, outcome=self._outcome(was_cut))

    def _outcome(self, was_cut: bool) -> Outcome | None:
        is_known = self._fault is not None or self._is_answered
        if was_cut and not is_known:
            return None
        return Outcome(fault=self._fault, usage=self._usage, is_known=is_known)

    def _account(self, error: BaseException | None) -> CallRecorded:
        destination = self._request.destination
        return CallRecorded(
            call=self.call,
            provider=destination.provider or (provider_of(self.budget) if self.budget is not None else ""),
            base_url=destination.base_url,
            model=self._request.model,
            status=_status(error, self._fault),
            started_at_ms=self._started_ms,
            usage=self._usage,
            session=self._request.session,
            model_answered=self._model_answered,
            response_id=self._response_id,
            waited_ms=round(self.waited_s * 1000, 3),
            duration_ms=round((time.monotonic() - self._entered_at) * 1000, 3),
            fault=self._fault.summary
            if self._fault is not None
            else type(error).__name__
            if error is not None
            else None,
            fault_code=self._fault.code if self._fault is not None else None,
        )


def _status(error: BaseException | None, fault: Fault | None) -> CallStatus:
    if fault is not None and fault.kind is FaultKind.TRUNCATED:
        return CallStatus.TRUNCATED
    if fault is not None:
        return CallStatus.REFUSED if fault.status is not None else CallStatus.FAILED
    if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)):
        return CallStatus.CANCELLED
    return CallStatus.FAILED if error is not None else CallStatus.COMPLETED


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
