"""One attempt of a call: one target, one key, one slot, one exchange. Before it and after it nothing is held."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from ...protocol.backend import Backend
from ...protocol.dialects.ask import Rendered, Traits
from ...protocol.dialects.base import Answer
from ...protocol.dialects.registry import wire_dialect
from ...protocol.errors import CoveyError
from ...protocol.faults import Fault
from ...protocol.ids import CallId
from ...protocol.mending import Mends
from ...protocol.messages.broker import Acquire, Destination, Granted
from ...protocol.messages.fleet import AgentState
from ..ports import Hold, Key
from .account import Account
from .call_request import CallRequest, estimated_cost_usd, estimated_tokens
from .caller import Caller
from .clocks import Clocks
from .exchange import Exchange
from .route import Target
from .terms import terms_of


class NoSlot(Exception):
    """The broker's no, on its way out of an attempt; `error` says why."""

    def __init__(self, error: CoveyError) -> None:
        super().__init__(str(error))
        self.error = error


class _Cut(Exception):
    """The exchange ended without an answer of the provider: leaving the slot by this says that it was cut."""


class _Unasked(Exception):
    """Stopped before the provider was asked: the slot goes back as it came, and only then is it a cancel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an attempt ended."""

    what: Answer | Fault
    took_s: float
    """Since the slot was there."""
    is_brokered: bool = False
    """The broker knows, and says when the account may be asked again."""
    max_tokens: int | None = None
    """The bound on the answer that was sent."""
    partial: str = ""
    has_output: bool = False
    """Whether it had begun to say something."""
    was_cut: bool = False
    """The provider was asked, and gave no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Everything that is of this attempt alone; the request is rendered for its target once the slot is there."""

    request: CallRequest
    target: Target
    key: Key
    backend: Backend
    """Target and key, as faults tell them apart."""
    mends: Mends
    work: str
    number: int
    left_s: float
    """What the call has left for it."""
    park_s: float | None
    """How long a parked account is worth waiting for; None: as long as the provider's settings say."""

    async def run(self, caller: Caller) -> Ended:
        """Raises `NoSlot`; the provider was not asked then. Cancelled, it closes the connection, then gives the slot
        back."""
        call = CallId(f"call_{secrets.token_hex(8)}")
        terms = terms_of(self.target, caller.calls, self.request.effort)
        clocks = terms.clocks.within(self.left_s)
        ended: Ended | None = None
        unasked: _Unasked | None = None
        caller.on_state(AgentState.WAITING, self.target.provider.name)
        try:
            async with caller.slots.slot(self._acquire(call, clocks)) as hold:
                try:
                    ended = await self._held(call, hold, terms.traits, clocks, caller)
                except _Unasked as stopped:
                    unasked = stopped
                if ended is not None and ended.was_cut:
                    raise _Cut
        except _Cut:
            pass
        except CoveyError as refused:
            if ended is None and unasked is None:
                raise NoSlot(refused) from refused
        if unasked is not None:
            raise asyncio.CancelledError(*unasked.args) from unasked
        assert ended is not None, "an attempt ends with an answer or a fault"
        return ended  # also when only giving the slot back failed: what was answered stands

    async def _held(self, call: CallId, hold: Hold, traits: Traits, clocks: Clocks, caller: Caller) -> Ended:
        if not caller.may_start():
            raise _Unasked("stopped before the call began")
        now = asyncio.get_running_loop().time
        entry = caller.benches.enter(self.backend, now())
        if isinstance(entry, Fault):
            return Ended(what=entry, took_s=0.0)
        ended: Ended | None = None
        try:
            ended = await self._exchanged(call, hold, traits, clocks, caller)
        finally:
            fault = ended.what if ended is not None and isinstance(ended.what, Fault) else None
            caller.benches.left(entry, fault, now())
        return ended

    async def _exchanged(self, call: CallId, hold: Hold, traits: Traits, clocks: Clocks, caller: Caller) -> Ended:
        grant = hold.grant if isinstance(hold.grant, Granted) else None
        account = Account(
            call,
            self.request,
            self.target,
            record=caller.record,
            waited_s=grant.waited_s if grant is not None else None,
        )
        caller.on_state(AgentState.CALLING, self.target.provider.name)
        rendered = self._rendered(traits)
        exchange = self._exchange(account, rendered, hold, clocks, caller)
        try:
            what = await exchange.run()
        except asyncio.CancelledError as cancelled:
            if not account.is_sent:
                raise _Unasked(*cancelled.args) from cancelled
            if exchange.partial:
                caller.on_partial(exchange.partial)
            raise
        finally:
            hold.outcome = account.outcome
        if grant is not None and grant.wants_quota:
            caller.on_quota_wanted(grant.budget, self.target.provider, self.key.secret)
        return Ended(
            what=what,
            took_s=account.took_s,
            is_brokered=grant is not None,
            max_tokens=rendered.max_tokens,
            partial=exchange.partial,
            has_output=exchange.has_output,
            was_cut=account.was_cut,
        )

    def _exchange(self, account: Account, rendered: Rendered, hold: Hold, clocks: Clocks, caller: Caller) -> Exchange:
        def answers() -> None:
            caller.benches.heard(self.backend)
            hold.on_answer()

        return Exchange(
            account,
            self.target,
            rendered,
            secret=self.key.secret,
            clients=caller.clients,
            clocks=clocks,
            on_output=answers,
            on_event=caller.on_event,
        )

    def _rendered(self, traits: Traits) -> Rendered:
        provider = self.target.provider
        return wire_dialect(provider.dialect).render(
            self.request.ask(self.target.model),
            traits,
            base_url=provider.base_url,
            api_key=self.key.secret,
            mends=self.mends,
        )

    def _acquire(self, call: CallId, clocks: Clocks) -> Acquire:
        request, provider = self.request, self.target.provider
        tokens = estimated_tokens(request)
        return Acquire(
            call=call,
            work=self.work,
            attempt=self.number,
            waiting_above=request.waiting_above,
            estimated_tokens=tokens,
            estimated_cost_usd=estimated_cost_usd(request, self.target, tokens),
            cap=request.cap,
            destination=Destination(
                base_url=provider.base_url, credential=self.key.fingerprint, provider=provider.name
            ),
            model=self.target.model,
            session=request.session,
            agent=request.agent,
            tree=request.tree,
            priority=request.priority,
            park_s=self.park_s,
            hold_s=clocks.hold_s,
        )
