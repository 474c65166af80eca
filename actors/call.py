"""One provider call, from the wish to the outcome: slot, attempt, record, and again while that makes sense.

Each attempt is a call of its own: a new id, a new slot. Between attempts nothing is held, so a pause blocks nobody.
The only place that retries.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from ..protocol.destination import fingerprint
from ..protocol.dialects.base import Answer
from ..protocol.errors import CoveyError
from ..protocol.faults import Fault
from ..protocol.ids import CallId
from ..protocol.messages.broker import Acquire, Destination, Granted
from ..protocol.messages.fleet import AgentState
from .call_request import DEFAULT_CLOCKS, CallAnswered, CallOutcome, CallRequest, CallUnanswered, Clocks, Record
from .exchange import Exchange
from .patience import DEFAULT_PATIENCE, Patience, Strain, pause_s
from .ports import Slots


class _NoSlot(Exception):
    """The broker's no, on its way out of `_attempt`."""


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
    strain = Strain()
    while True:
        try:
            end, took_s = await _attempt(request, caller)
        except _NoSlot as refused:
            return CallUnanswered(str(refused))
        if isinstance(end, Answer):
            return CallAnswered(end)
        strain = strain.after(end, took_s)
        pause = pause_s(end, strain, caller.patience, chance=caller.chance())
        if pause is None:
            return CallUnanswered(_problem(end, strain), end)
        caller.on_state(AgentState.WAITING)
        await asyncio.sleep(pause)
        strain = strain.paused(pause)


async def _attempt(request: CallRequest, caller: Caller) -> tuple[Answer | Fault, float]:
    """One exchange under a slot of its own, and how long it took; raises `_NoSlot`."""
    call = CallId(f"call_{secrets.token_hex(8)}")
    end: tuple[Answer | Fault, float] | None = None
    caller.on_state(AgentState.WAITING)
    try:
        async with caller.slots.slot(_acquire(call, request, caller.clocks)) as grant:
            if not caller.may_start():
                raise asyncio.CancelledError("stopped before the call began")
            caller.on_state(AgentState.CALLING)
            exchange = Exchange(
                call,
                request,
                client=caller.client,
                record=caller.record,
                clocks=caller.clocks,
                waited_s=grant.waited_s if isinstance(grant, Granted) else None,
            )
            end = await exchange.run(), exchange.took_s
            if isinstance(end[0], Fault) and end[0].status is None:
                raise _Cut
    except _Cut:
        assert end is not None, "it is raised after the end"
    except CoveyError as refused:
        if end is None:
            raise _NoSlot(str(refused)) from refused
    assert end is not None, "an exchange ends with an answer or a fault"
    return end  # also when only giving the slot back failed: what was answered stands


def _acquire(call: CallId, request: CallRequest, clocks: Clocks) -> Acquire:
    return Acquire(
        call=call,
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


def _problem(fault: Fault, strain: Strain) -> str:
    tries = f" (after {strain.attempts} attempts)" if strain.attempts > 1 else ""
    return fault.summary + tries
