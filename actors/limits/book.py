"""The broker's book: every account, every lease, every waiter, and what follows from an event.

Pure: `decide(event, now, wall_ms)` changes the book and returns what is to be done about it, in order. `now` never
runs backwards; `wall_ms` may, and counts only where a provider speaks of dates. Deadlines are looked at before each
event, so what is late is never served.

Processes of this host are watched by the kernel. One of another host is taken for dead `REMOTE_TTL_S` after it was
heard last, and a broker that takes over believes in all of them for that long.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from ...protocol.destination import provider_of
from ...protocol.ids import AgentId, BudgetKey
from ...protocol.messages.broker import CapView, Outcome, Refusal
from ...protocol.peer import Owner
from ...protocol.prices import cost_usd, price_of
from ...protocol.settings import Price
from ...storage.caps import CapKept
from ...storage.leases import Lease, Outstanding
from .account import Account, Overspent
from .actions import (
    Action,
    Answered,
    Asked,
    CapDeclared,
    Died,
    End,
    Event,
    GivenBack,
    Grant,
    Keep,
    Left,
    Limited,
    Lose,
    Overdue,
    Pass,
    QuotaRead,
    Refuse,
    Reject,
    Renewed,
    Revoked,
    Ticked,
    Unlocked,
    Unwatch,
    Watch,
)
from .budget import Budget
from .caps import Caps
from .claim import Claim, Waiter
from .outlook import Turned
from .roll import UNCOUNTED, Roll
from .terms import Terms

QUEUE_BOUND: Final = 10_000
CUT_LINGER_S: Final = 0.05
"""A provider notices a closed connection a few turns of its loop later than the kernel tells us that a process died:
a call that takes the slot within a millisecond arrives before that, and is refused (seen with the simulated one)."""
REMOTE_TTL_S: Final = 30.0
_REVOKED_KEPT: Final = 65_536


class Book:
    """Owned by the broker. `terms` are by provider's name; `queue_bound` counts waiters of all accounts together.

    `boot` names this boot of the host: what is kept says in which one its times count.
    """

    def __init__(
        self,
        terms: Mapping[str, Terms],
        *,
        boot: str = "",
        queue_bound: int = QUEUE_BOUND,
        remote_ttl_s: float = REMOTE_TTL_S,
    ) -> None:
        self._boot = boot
        self._queue_bound = queue_bound
        self._caps = Caps()
        # The moment of the event that is being decided.
        self._now, self._wall_ms = 0.0, 0
        self._roll = Roll(terms, self._caps, remote_ttl_s=remote_ttl_s)
        self._revoked: OrderedDict[AgentId, None] = OrderedDict()

    @property
    def accounts(self) -> dict[BudgetKey, Account]:
        """Every account that somebody asked for."""
        return self._roll.accounts

    @property
    def queued(self) -> int:
        """Waiters of all accounts."""
        return sum(account.queued for account in self.accounts.values())

    def caps(self) -> tuple[CapView, ...]:
        """What was spent under which cap."""
        return self._caps.views()

    def counts(self, cap: str | None) -> bool:
        """Whether a call that names `cap` spends from any, so that it has to ask even where no limit is configured."""
        return bool(self._caps.names(cap))

    def next_deadline(self) -> float | None:
        """When `decide` wants to hear `Ticked` if nothing else happens before."""
        return self._roll.next_at(self._now)

    def restore(self, outstanding: Outstanding, now: float, wall_ms: int = 0) -> list[Action]:
        """Take over at `now` what an earlier broker left. To be called once, before any event."""
        self._now, self._wall_ms = now, wall_ms
        self._caps = self._roll.caps = Caps(outstanding.caps.values())
        for totals in outstanding.totals.values():
            budget = self._roll.account(totals.budget, totals.provider).budget
            budget.granted, budget.peak_in_flight = totals.granted, totals.peak_in_flight
        actions: list[Action] = []
        for lease in outstanding.leases.values():
            self._roll.restore(lease, now)
            self._watch(lease.holder.owner, actions)
        for standing in outstanding.standings.values():
            self._roll.account(standing.budget, standing.provider).regime.restore(
                standing, boot=self._boot, outstanding=outstanding.leases.keys(), now=now, wall_ms=wall_ms
            )
        return actions

    def decide(self, event: Event, now: float, wall_ms: int = 0) -> list[Action]:
        """Let `event` happen at `now`; return what to do."""
        actions: list[Action] = []
        self._now, self._wall_ms = now, wall_ms
        self._expire(actions)
        match event:
            case Asked(claim=claim):
                self._ask(claim, actions)
            case GivenBack():
                self._give_back((event,), actions)
            case Answered():
                self._hear_answer(event, actions)
            case Revoked(agents=agents):
                self._revoke(agents, actions)
            case Renewed(owner=owner):
                self._roll.hear(owner, now)
            case Left(peer=peer):
                gone = [GivenBack(call, was_cut=True) for call in self._roll.of_incarnation(peer.incarnation)]
                self._give_back(gone, actions)
                if self._roll.unwatch(peer):
                    actions.append(Unwatch(peer.owner))
            case Died(owner=owner):
                self._bury(owner, actions)
            case Limited(terms=terms):
                self._limit(terms, actions)
            case Unlocked(budget=key):
                self._unlock(key, actions)
            case QuotaRead():
                self._read_quota(event, actions)
            case CapDeclared():
                self._declare(event, actions)
            case Ticked():
                self._admit_all(self.accounts.values(), actions)
            case _:
                assert_never(event)
        return actions

    # --- events: asking ----------------------------------------------------------------------------------------------

    def _ask(self, claim: Claim, actions: list[Action]) -> None:
        found = self._roll.find(claim.call)
        if found is not None:
            self._ask_again(claim, found[0].budget, found[1] == claim.holder.incarnation, actions)
            return
        if claim.provider not in self._roll.terms and not self.counts(claim.cap):
            actions.append(Pass(claim.call, claim.holder.incarnation))
            return
        account = self._roll.account(claim.budget, claim.provider)
        refusal = self._objection(account, claim)
        if refusal is not None:
            actions.append(_refusal(account, claim, refusal, 0.0))
        else:
            self._enqueue(account, claim, actions)

    def _ask_again(self, claim: Claim, budget: Budget, is_holder: bool, actions: list[Action]) -> None:
        if not is_holder:
            actions.append(Reject(claim.call, claim.holder.incarnation))
        elif (lease := budget.leases.get(claim.call)) is not None:
            actions.append(Grant(lease, budget.limit, budget.in_flight, is_new=False))

    def _objection(self, account: Account, claim: Claim) -> Turned | Refusal | None:
        if claim.agent in self._revoked:
            return Refusal.REVOKED
        if self._roll.is_spent(claim.call):
            # A copy of an ask that comes after its release: nobody would ever give that slot back.
            return Refusal.WITHDRAWN
        turned = account.regime.turned_away(
            work=claim.work, wait_s=claim.park_left_s(0.0), now=self._now, wall_ms=self._wall_ms
        )
        if turned is not None:
            return turned
        # Whoever waits is among those that are somewhere: most of the time nobody has to be counted.
        if len(self._roll) >= self._queue_bound <= self.queued and account.would_wait(claim, self._now):
            return Refusal.QUEUE_FULL
        return None

    def _enqueue(self, account: Account, claim: Claim, actions: list[Action]) -> None:
        self._roll.enter(claim, account, self._now)
        self._watch(claim.holder.owner, actions)
        self._admit(account, actions)
        still = self._roll.find(claim.call) is not None and claim.call not in account.budget.leases
        if not still or claim.timeout_s is None:
            return
        if claim.timeout_s > 0:
            self._roll.due(claim.call, self._now + claim.timeout_s)
        else:
            self._roll.drop(claim.call)
            actions.append(_refusal(account, claim, Refusal.TIMEOUT, 0.0))

    # --- events: ending ----------------------------------------------------------------------------------------------

    def _give_back(self, ends: Iterable[GivenBack], actions: list[Action]) -> None:
        touched: dict[BudgetKey, Account] = {}
        for end in ends:
            found = self._roll.find(end.call)
            if found is not None and end.asker is not None and end.asker != found[1]:
                continue  # somebody else's call: only its holder gives it back
            self._roll.spend(end.call)
            dropped = self._roll.drop(end.call)
            if dropped is None:
                continue
            account, what = dropped
            touched[account.key] = account
            if isinstance(what, Lease):
                actions.append(End(what, self._ended(account, what, end)))
            else:
                actions.append(_refusal(account, what.claim, Refusal.WITHDRAWN, what.waited_s(self._now)))
        self._admit_all(touched.values(), actions)

    def _hear_answer(self, event: Answered, actions: list[Action]) -> None:
        found = self._roll.find(event.call)
        if found is None or event.asker != found[1]:
            return
        account, _ = found
        account.regime.answered(event.call, now=self._now)
        self._admit_all((account,), actions)

    def _revoke(self, agents: Iterable[AgentId], actions: list[Action]) -> None:
        """Their waiters leave; their leases end as they would have: whoever holds one is told to stop."""
        named = set(agents)
        for agent in named:
            self._revoked[agent] = None
        while len(self._revoked) > _REVOKED_KEPT:
            self._revoked.popitem(last=False)
        for account in self.accounts.values():
            for waiter in [one for one in account.waiters() if one.claim.agent in named]:
                self._turn_away(account, waiter, Refusal.REVOKED, actions)

    def _bury(self, owner: Owner, actions: list[Action]) -> None:
        self._roll.died(owner)
        touched: dict[BudgetKey, Account] = {}
        self._inherit(owner, actions, touched)
        self._admit_all(touched.values(), actions)

    def _inherit(self, owner: Owner, actions: list[Action], touched: dict[BudgetKey, Account]) -> None:
        """Take back all that this process had; nobody gets it yet."""
        for call in self._roll.of_owner(owner):
            dropped = self._roll.drop(call)
            assert dropped is not None, "whereabouts name only calls that are somewhere"
            account, what = dropped
            touched[account.key] = account
            if isinstance(what, Lease):
                actions.append(Lose(what, self._ended(account, what, GivenBack(call, was_cut=True))))
            else:
                waited_s = what.waited_s(self._now)
                actions.append(_refusal(account, what.claim, Refusal.WITHDRAWN, waited_s))

    def _ended(self, account: Account, lease: Lease, end: GivenBack, *, lingers: bool = True) -> tuple[CapKept, ...]:
        """A call is over: what its outcome says of the account, when its slot is free; return what it spent."""
        outcome = end.outcome if end.outcome is not None and end.outcome.is_known else None
        account.turned_over_at = self._now
        account.regime.ended(
            lease.call,
            granted_at=lease.granted_at,
            outcome=outcome,
            now=self._now,
            wall_ms=self._wall_ms,
            chance=end.chance,
        )
        account.busy.ended(lease.model, granted_at=lease.granted_at, outcome=outcome, now=self._now, chance=end.chance)
        tokens, cost = self._used(lease, outcome)
        account.rates.ended(lease.call, tokens, self._now)
        linger_s = max(account.regime.lag_s(), CUT_LINGER_S if end.was_cut and lingers else 0.0)
        if linger_s > 0:
            self._roll.linger(account, lease, self._now + linger_s)
        if end.outcome is None and not end.was_cut:
            self._caps.drop(lease.call)
            return ()
        return self._caps.settle(lease.call, tokens, cost)

    def _used(self, lease: Lease, outcome: Outcome | None) -> tuple[int | None, float | None]:
        if outcome is None:
            return None, None
        usage, fault = outcome.usage, outcome.fault
        if usage is None and outcome.tokens is None and fault is not None and fault.status is not None:
            return 0, 0.0  # an error for an answer: the provider did nothing that it would charge
        tokens = usage.total_tokens if usage is not None else outcome.tokens
        cost = outcome.cost_usd
        return tokens, cost if cost is not None else cost_usd(usage, self._price(lease.provider, lease.model))

    # --- events: the owner's, and time's -----------------------------------------------------------------------------

    def _limit(self, terms: Mapping[str, Terms], actions: list[Action]) -> None:
        self._roll.terms = dict(terms)
        for account in self.accounts.values():
            provider = account.budget.provider
            account.configure(terms.get(provider, UNCOUNTED))
            if provider not in terms:
                self._lift(account, actions)
        self._admit_all(self.accounts.values(), actions)

    def _lift(self, account: Account, actions: list[Action]) -> None:
        """Let all waiters pass whom no cap concerns; leases end as they would have."""
        for waiter in [one for one in account.waiters() if not self.counts(one.claim.cap)]:
            self._roll.drop(waiter.claim.call)
            actions.append(Pass(waiter.claim.call, waiter.claim.holder.incarnation))

    def _unlock(self, key: BudgetKey, actions: list[Action]) -> None:
        if (account := self.accounts.get(key)) is not None:
            account.regime.unlock(self._now)
            self._admit_all((account,), actions)

    def _read_quota(self, event: QuotaRead, actions: list[Action]) -> None:
        provider = provider_of(event.budget)
        if event.budget not in self.accounts and provider not in self._roll.terms:
            return
        account = self._roll.account(event.budget, provider)
        account.regime.quota_seen(event.windows, now=self._now, wall_ms=self._wall_ms)
        self._admit_all((account,), actions)

    def _declare(self, event: CapDeclared, actions: list[Action]) -> None:
        kept = self._caps.declare(event.name, event.max_tokens, event.max_cost_usd, stamp=event.stamp)
        actions.append(Keep(kept))
        self._admit_all(self.accounts.values(), actions)

    def _expire(self, actions: list[Action]) -> None:
        touched: dict[BudgetKey, Account] = {}
        for owner in self._roll.pop_silent(self._now):
            self._inherit(owner, actions, touched)
        for call in self._roll.pop_due(self._now):
            if (freed := self._roll.settle(call)) is not None:
                touched[freed.key] = freed
                continue
            dropped = self._roll.drop(call)
            assert dropped is not None, "only a call that holds or waits has a deadline"
            account, what = dropped
            touched[account.key] = account
            if isinstance(what, Lease):
                self._roll.spend(call)
                actions.append(Overdue(what, self._ended(account, what, GivenBack(call, was_cut=True), lingers=False)))
            else:
                actions.append(_refusal(account, what.claim, Refusal.TIMEOUT, what.waited_s(self._now)))
        self._admit_all(touched.values(), actions)

    # --- slots -------------------------------------------------------------------------------------------------------

    def _admit_all(self, accounts: Iterable[Account], actions: list[Action]) -> None:
        for account in tuple(accounts):
            account.recall(self._now)
            self._admit(account, actions)

    def _admit(self, account: Account, actions: list[Action]) -> None:
        """Let out whom the account lets out now; then turn away who waits in vain, and keep what is new."""
        while (found := account.admit(self._now)) is not None:
            if isinstance(found, Overspent):
                self._roll.forget(found.waiter)
                turned = Turned(reason=Refusal.CAP_REACHED, detail=found.why)
                actions.append(_refusal(account, found.waiter.claim, turned, found.waiter.waited_s(self._now)))
                continue
            self._roll.due(found.call, found.expires_at)
            budget = account.budget
            wants_quota = account.asks_for_quota(self._now)
            is_probe = account.regime.is_probe(found.call)
            actions.append(
                Grant(found, budget.limit, budget.in_flight, is_new=True, is_probe=is_probe, wants_quota=wants_quota)
            )
        standing = account.regime.news(self._boot)
        if standing is not None:
            actions.append(Keep(standing))
        if standing is not None or account.regime.turns_all_away(self._now):
            self._turn_away_the_vain(account, actions)

    def _turn_away_the_vain(self, account: Account, actions: list[Action]) -> None:
        """Nobody waits through a lock, or for an end of a park that is later than they can wait."""
        for waiter in tuple(account.waiters()):
            claim = waiter.claim
            left_s = claim.park_left_s(waiter.waited_s(self._now))
            turned = account.regime.turned_away(work=claim.work, wait_s=left_s, now=self._now, wall_ms=self._wall_ms)
            if turned is not None:
                self._turn_away(account, waiter, turned, actions)

    def _turn_away(self, account: Account, waiter: Waiter, why: Turned | Refusal, actions: list[Action]) -> None:
        self._roll.drop(waiter.claim.call)
        actions.append(_refusal(account, waiter.claim, why, waiter.waited_s(self._now)))

    def _price(self, provider: str, model: str) -> Price | None:
        terms = self._roll.terms.get(provider)
        return price_of(terms.prices, model) if terms is not None else None

    # --- owners ------------------------------------------------------------------------------------------------------

    def _watch(self, owner: Owner, actions: list[Action]) -> None:
        if self._roll.watch(owner, self._now):
            actions.append(Watch(owner))


def _refusal(account: Account, claim: Claim, why: Turned | Refusal, waited_s: float) -> Refuse:
    turned = why if isinstance(why, Turned) else Turned(reason=why, detail="")
    return Refuse(
        claim.call,
        claim.holder.incarnation,
        account.key,
        turned.reason,
        account.budget.limit,
        account.queued,
        waited_s,
        turned.until_ms,
        turned.detail or None,
    )
