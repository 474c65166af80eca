"""The broker's book: every budget, every lease, every waiter, and what follows from an event.

Pure: `decide(event, now)` changes the book and returns what is to be done about it, in order. `now` never runs
backwards. Deadlines are looked at before each event, so what is late is never served.

Processes of this host are watched by the kernel. One of another host is taken for dead `REMOTE_TTL_S` after it was
heard last, and a broker that takes over believes in all of them for that long.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from ...protocol.ids import AgentId, BudgetKey, CallId
from ...protocol.messages.broker import Refusal
from ...protocol.peer import Owner
from ...storage.leases import Lease, Outstanding
from .actions import (
    Action,
    Asked,
    Died,
    End,
    Event,
    GivenBack,
    Grant,
    Left,
    Limited,
    Lose,
    Overdue,
    Pass,
    Refuse,
    Reject,
    Renewed,
    Revoked,
    Ticked,
    Unwatch,
    Watch,
)
from .budget import Budget
from .claim import Claim, Waiter
from .deadlines import Deadlines
from .distant import Distant
from .whereabouts import Whereabouts

QUEUE_BOUND: Final = 10_000
CUT_LINGER_S: Final = 0.05
"""A provider notices a closed connection a few turns of its loop later than the kernel tells us that a process died:
a call that takes the slot within a millisecond arrives before that, and is refused (seen with the simulated one)."""
REMOTE_TTL_S: Final = 30.0
_SPENT_KEPT: Final = 4096
_REVOKED_KEPT: Final = 65_536


class Book:
    """Owned by the broker. `limits` are by provider's name; `queue_bound` counts waiters of all budgets together."""

    def __init__(
        self, limits: Mapping[str, int], *, queue_bound: int = QUEUE_BOUND, remote_ttl_s: float = REMOTE_TTL_S
    ) -> None:
        self.budgets: dict[BudgetKey, Budget] = {}
        self._limits = dict(limits)
        self._queue_bound = queue_bound
        self._where = Whereabouts()
        self._deadlines = Deadlines()
        self._watched: set[Owner] = set()
        self._distant = Distant(ttl_s=remote_ttl_s)
        self._spent: OrderedDict[CallId, None] = OrderedDict()
        self._lingering: dict[CallId, Budget] = {}
        self._revoked: OrderedDict[AgentId, None] = OrderedDict()

    @property
    def limits(self) -> Mapping[str, int]:
        """The configured limits by provider's name."""
        return self._limits

    @property
    def queued(self) -> int:
        """Waiters of all budgets."""
        return sum(len(budget.queue) for budget in self.budgets.values())

    def next_deadline(self) -> float | None:
        """When `decide` wants to hear `Ticked` if nothing else happens before."""
        return min((at for at in (self._deadlines.next_at(), self._distant.next_at()) if at is not None), default=None)

    def restore(self, outstanding: Outstanding, now: float) -> list[Action]:
        """Take over at `now` what an earlier broker left. To be called once, before any event."""
        for totals in outstanding.totals.values():
            budget = self._budget(totals.budget, totals.provider)
            budget.granted, budget.peak_in_flight = totals.granted, totals.peak_in_flight
        actions: list[Action] = []
        for lease in outstanding.leases.values():
            self._budget(lease.budget, lease.provider).keep(lease)
            self._where.add(lease.call, lease.budget, lease.holder)
            self._deadlines.set(lease.call, lease.expires_at)
            self._watch(lease.holder.owner, now, actions)
        return actions

    def decide(self, event: Event, now: float) -> list[Action]:
        """Let `event` happen at `now`; return what to do."""
        actions: list[Action] = []
        self._expire(now, actions)
        match event:
            case Asked(claim=claim):
                self._ask(claim, now, actions)
            case GivenBack(call=call, was_cut=was_cut):
                self._give_back((call,), now, actions, lingers=was_cut)
            case Revoked(agents=agents):
                self._revoke(agents, now, actions)
            case Renewed(owner=owner):
                if owner in self._distant:
                    self._distant.hear(owner, now)
            case Left(peer=peer):
                self._give_back(self._where.of_incarnation(peer.incarnation), now, actions, lingers=True)
                self._unwatch(peer.owner, actions)
            case Died(owner=owner):
                self._bury(owner, now, actions)
            case Limited(limits=limits):
                self._limit(limits, now, actions)
            case Ticked():
                pass
            case _:
                assert_never(event)
        return actions

    # --- events ------------------------------------------------------------------------------------------------------

    def _ask(self, claim: Claim, now: float, actions: list[Action]) -> None:
        found = self._where.find(claim.call)
        if found is not None:
            self._ask_again(claim, found[0], found[1].incarnation == claim.holder.incarnation, actions)
            return
        if claim.provider not in self._limits:
            actions.append(Pass(claim.call, claim.holder.incarnation))
            return
        budget = self._budget(claim.budget, claim.provider)
        if claim.agent in self._revoked:
            actions.append(_refusal(budget, claim, Refusal.REVOKED, 0.0))
            return
        if claim.call in self._spent:
            # A copy of an ask that comes after its release: nobody would ever give that slot back.
            actions.append(_refusal(budget, claim, Refusal.WITHDRAWN, 0.0))
            return
        if not budget.has_room and self.queued >= self._queue_bound:
            actions.append(_refusal(budget, claim, Refusal.QUEUE_FULL, 0.0))
            return
        self._enqueue(budget, claim, now, actions)

    def _ask_again(self, claim: Claim, key: BudgetKey, is_holder: bool, actions: list[Action]) -> None:
        budget = self.budgets[key]
        if not is_holder:
            actions.append(Reject(claim.call, claim.holder.incarnation))
        elif (lease := budget.leases.get(claim.call)) is not None:
            actions.append(Grant(lease, budget.limit, budget.in_flight, is_new=False))

    def _enqueue(self, budget: Budget, claim: Claim, now: float, actions: list[Action]) -> None:
        budget.queue.push(Waiter(claim=claim, since=now))
        self._where.add(claim.call, budget.key, claim.holder)
        self._watch(claim.holder.owner, now, actions)
        self._admit(budget, now, actions)
        if claim.call not in budget.queue or claim.timeout_s is None:
            return
        if claim.timeout_s > 0:
            self._deadlines.set(claim.call, now + claim.timeout_s)
        else:
            self._drop(claim.call)
            actions.append(_refusal(budget, claim, Refusal.TIMEOUT, 0.0))

    def _give_back(self, calls: Iterable[CallId], now: float, actions: list[Action], *, lingers: bool) -> None:
        touched: dict[BudgetKey, Budget] = {}
        for call in calls:
            self._spend(call)
            dropped = self._drop(call)
            if dropped is None:
                continue
            budget, what = dropped
            touched[budget.key] = budget
            if isinstance(what, Lease):
                actions.append(End(what))
                if lingers:
                    self._linger(budget, call, now)
            else:
                actions.append(_refusal(budget, what.claim, Refusal.WITHDRAWN, what.waited_s(now)))
        self._admit_all(touched.values(), now, actions)

    def _revoke(self, agents: Iterable[AgentId], now: float, actions: list[Action]) -> None:
        """Their waiters leave; their leases end as they would have: whoever holds one is told to stop."""
        named = set(agents)
        for agent in named:
            self._revoked[agent] = None
        while len(self._revoked) > _REVOKED_KEPT:
            self._revoked.popitem(last=False)
        for budget in self.budgets.values():
            for waiter in [one for one in budget.queue if one.claim.agent in named]:
                self._drop(waiter.claim.call)
                actions.append(_refusal(budget, waiter.claim, Refusal.REVOKED, waiter.waited_s(now)))

    def _bury(self, owner: Owner, now: float, actions: list[Action]) -> None:
        self._watched.discard(owner)
        touched: dict[BudgetKey, Budget] = {}
        self._inherit(owner, now, actions, touched)
        self._admit_all(touched.values(), now, actions)

    def _inherit(self, owner: Owner, now: float, actions: list[Action], touched: dict[BudgetKey, Budget]) -> None:
        """Take back all that this process had; nobody gets it yet."""
        for call in self._where.of_owner(owner):
            dropped = self._drop(call)
            assert dropped is not None, "whereabouts name only calls that are somewhere"
            budget, what = dropped
            touched[budget.key] = budget
            if isinstance(what, Lease):
                actions.append(Lose(what))
                self._linger(budget, call, now)
            else:
                actions.append(_refusal(budget, what.claim, Refusal.WITHDRAWN, what.waited_s(now)))

    def _limit(self, limits: dict[str, int], now: float, actions: list[Action]) -> None:
        self._limits = dict(limits)
        for budget in self.budgets.values():
            budget.limit = limits.get(budget.provider, budget.limit)
            if budget.provider not in limits:
                self._lift(budget, actions)
        self._admit_all(self.budgets.values(), now, actions)

    def _lift(self, budget: Budget, actions: list[Action]) -> None:
        """Let all waiters pass; leases end as they would have."""
        for waiter in tuple(budget.queue):
            self._drop(waiter.claim.call)
            actions.append(Pass(waiter.claim.call, waiter.claim.holder.incarnation))

    def _expire(self, now: float, actions: list[Action]) -> None:
        touched: dict[BudgetKey, Budget] = {}
        for owner in self._distant.pop_due(now):
            self._inherit(owner, now, actions, touched)
        for call in self._deadlines.pop_due(now):
            if (freed := self._lingering.pop(call, None)) is not None:
                freed.lingering.discard(call)
                touched[freed.key] = freed
                continue
            dropped = self._drop(call)
            assert dropped is not None, "only a call that holds or waits has a deadline"
            budget, what = dropped
            touched[budget.key] = budget
            if isinstance(what, Lease):
                self._spend(call)
                actions.append(Overdue(what))
            else:
                actions.append(_refusal(budget, what.claim, Refusal.TIMEOUT, what.waited_s(now)))
        self._admit_all(touched.values(), now, actions)

    # --- slots -------------------------------------------------------------------------------------------------------

    def _admit_all(self, budgets: Iterable[Budget], now: float, actions: list[Action]) -> None:
        for budget in budgets:
            self._admit(budget, now, actions)

    def _admit(self, budget: Budget, now: float, actions: list[Action]) -> None:
        while (lease := budget.admit(now)) is not None:
            self._deadlines.set(lease.call, lease.expires_at)
            actions.append(Grant(lease, budget.limit, budget.in_flight, is_new=True))

    def _drop(self, call: CallId) -> tuple[Budget, Lease | Waiter] | None:
        key = self._where.drop(call)
        if key is None:
            return None
        self._deadlines.cancel(call)
        what = self.budgets[key].drop(call)
        assert what is not None, "a call that is somewhere holds or waits"
        owner = (what.holder if isinstance(what, Lease) else what.claim.holder).owner
        if not self._where.of_owner(owner):
            self._distant.forget(owner)
        return self.budgets[key], what

    def _linger(self, budget: Budget, call: CallId, now: float) -> None:
        """Keep the slot of a call that was cut from everybody for a moment."""
        self._spend(call)
        budget.lingering.add(call)
        self._lingering[call] = budget
        self._deadlines.set(call, now + CUT_LINGER_S)

    def _budget(self, key: BudgetKey, provider: str) -> Budget:
        budget = self.budgets.get(key)
        if budget is None:
            # A lease can outlive its provider's limit; such a budget admits nobody.
            budget = Budget(key, provider=provider, limit=self._limits.get(provider, 0))
            self.budgets[key] = budget
        return budget

    def _spend(self, call: CallId) -> None:
        self._spent[call] = None
        if len(self._spent) > _SPENT_KEPT:
            self._spent.popitem(last=False)

    # --- owners ------------------------------------------------------------------------------------------------------

    def _watch(self, owner: Owner, now: float, actions: list[Action]) -> None:
        if owner.is_remote:
            self._distant.hear(owner, now)
        elif owner not in self._watched:
            self._watched.add(owner)
            actions.append(Watch(owner))

    def _unwatch(self, owner: Owner, actions: list[Action]) -> None:
        if owner in self._watched and not self._where.of_owner(owner):
            self._watched.discard(owner)
            actions.append(Unwatch(owner))


def _refusal(budget: Budget, claim: Claim, reason: Refusal, waited_s: float) -> Refuse:
    queued = len(budget.queue)
    return Refuse(claim.call, claim.holder.incarnation, budget.key, reason, budget.limit, queued, waited_s)
