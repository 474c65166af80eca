"""One provider call, from the wish to the outcome: slot, attempt, record, and again while that makes sense.

Each attempt is a call of its own: a new id, a new slot. Between attempts nothing is held, so a pause blocks nobody.
The only place that retries. Where the destination has a budget, the broker is told how each attempt ended, and what
is the account's trouble is its to time: the next attempt asks for its slot at once, and waits there.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx

from ...protocol.advice import advice
from ...protocol.destination import fingerprint
from ...protocol.dialects.base import Answer
from ...protocol.errors import CoveyError
from ...protocol.faults import Fault
from ...protocol.ids import BudgetKey, CallId
from ...protocol.messages.broker import Acquire, Destination, Granted, Outcome
from ...protocol.messages.fleet import AgentState
from ...protocol.usage import Usage
from ..ports import Slots
from .call_request import (
    DEFAULT_CLOCKS,
    CallAnswered,
    CallOutcome,
    CallRequest,
    CallUnanswered,
    Clocks,
    Record,
    estimated_cost_usd,
    estimated_tokens,
)
from .exchange import Exchange
from .patience import DEFAULT_PATIENCE, Patience, Strain, pause_s

NOTHING: Final = Usage(input=0, output=0)
"""What a refused call has used."""


class _NoSlot(Exception):
    """The broker's no, on its way out of `_attempt`."""

    def __init__(self, error: CoveyError) -> None:
        super().__init__(str(error))
        self.error = error


class _Cut(Exception):
    """The exchange ended without an answer of the provider: leaving the slot by this says that it was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What the calls of one agent go through; `client` and the rest stay the caller's own."""

    slots: Slots
    record: Record
    client: httpx.AsyncClient
    on_state: Callable[[AgentState], None] = lambda _: None
    """Told `waiting` and `calling`, in the loop turn in which it becomes so."""
    may_start: Callable[[], bool] = lambda: True
    """Asked last thing before a request goes out; False counts as a cancel."""
    on_quota_wanted: Callable[[BudgetKey], None] = lambda _: None
    """Told at the end of a call that the broker wishes for the account's quota; must not wait."""
    clocks: Clocks = DEFAULT_CLOCKS
    patience: Patience = DEFAULT_PATIENCE
    chance: Callable[[], float] = random.random


async def run_call(request: CallRequest, caller: Caller) -> CallOutcome:
    """Ask the model until it has answered, nobody can help, or patience ends.

    Every attempt that reached out is recorded once. Cancelled, it closes the connection, then gives the slot back. A
    local refusal (no slot in time, a full queue) ends the call: waiting in the queue was the patience.
    """
    if request.api_key and not (request.api_key.isascii() and request.api_key.isprintable()):
        return CallUnanswered(f"the key of provider {request.provider.name} holds characters that no key has")
    work, strain = f"work_{secrets.token_hex(8)}", Strain()
    while True:
        try:
            end = await _attempt(request, caller, work, strain.attempts + 1)
        except _NoSlot as refused:
            return CallUnanswered(str(refused), refusal=refused.error)
        if isinstance(end.what, Answer):
            return CallAnswered(end.what)
        strain = strain.after(end.what, end.took_s)
        pause = pause_s(end.what, strain, caller.patience, chance=caller.chance(), is_brokered=end.is_brokered)
        if pause is None:
            return CallUnanswered(_problem(end.what, request, strain), end.what)
        if pause > 0:
            caller.on_state(AgentState.WAITING)
            await asyncio.sleep(pause)
            strain = strain.paused(pause)


@dataclass(frozen=True, slots=True)
class _End:
    """How an attempt ended; `is_brokered`: the broker knows, and says when the account may be asked again."""

    what: Answer | Fault
    took_s: float
    is_brokered: bool


async def _attempt(request: CallRequest, caller: Caller, work: str, attempt: int) -> _End:
    """One exchange under a slot of its own; raises `_NoSlot`."""
    call = CallId(f"call_{secrets.token_hex(8)}")
    end: _End | None = None
    caller.on_state(AgentState.WAITING)
    try:
        async with caller.slots.slot(_acquire(call, request, caller.clocks, work, attempt)) as hold:
            if not caller.may_start():
                raise asyncio.CancelledError("stopped before the call began")
            caller.on_state(AgentState.CALLING)
            grant = hold.grant if isinstance(hold.grant, Granted) else None
            exchange = Exchange(
                call,
                request,
                client=caller.client,
                record=caller.record,
                clocks=caller.clocks,
                waited_s=grant.waited_s if grant else None,
                on_output=hold.on_answer,
            )
            what = await exchange.run()
            end = _End(what, exchange.took_s, is_brokered=grant is not None)
            if grant is not None and grant.wants_quota:
                caller.on_quota_wanted(grant.budget)
            hold.outcome = Outcome(
                fault=what if isinstance(what, Fault) else None,
                usage=NOTHING if exchange.was_refused else exchange.usage,
            )
            if isinstance(what, Fault) and what.status is None:
                raise _Cut
    except _Cut:
        assert end is not None, "it is raised after the end"
    except CoveyError as refused:
        if end is None:
            raise _NoSlot(refused) from refused
    assert end is not None, "an exchange ends with an answer or a fault"
    return end  # also when only giving the slot back failed: what was answered stands


def _acquire(call: CallId, request: CallRequest, clocks: Clocks, work: str, attempt: int) -> Acquire:
    return Acquire(
        call=call,
        work=work,
        attempt=attempt,
        waiting_above=request.waiting_above,
        estimated_tokens=estimated_tokens(request),
        estimated_cost_usd=estimated_cost_usd(request),
        cap=request.cap,
        destination=Destination(
            base_url=request.provider.base_url,
            credential=fingerprint(request.api_key),
            provider=request.provider.name,
        ),
        model=request.model,
        session=request.session,
        agent=request.agent,
        tree=request.tree,
        priority=request.priority,
        hold_s=clocks.hold_s,
    )


def _problem(fault: Fault, request: CallRequest, strain: Strain) -> str:
    tries = f" (after {strain.attempts} attempts)" if strain.attempts > 1 else ""
    hint = advice(fault, request.provider.base_url)
    return fault.summary + tries + (f"; {hint}" if hint else "")
