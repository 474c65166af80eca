"""Who is on the broker's books: accounts, calls that hold or wait, and the processes they belong to. Pure.

The roll knows where everything is and when it is due; what follows from an event is the book's to say.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from ...protocol.ids import BudgetKey, CallId, Incarnation
from ...protocol.peer import Owner, Peer
from ...storage.leases import Lease
from .account import Account
from .caps import Caps
from .claim import Claim, Waiter
from .deadlines import Deadlines
from .distant import Distant
from .terms import NO_LIMIT, Terms
from .whereabouts import Whereabouts

UNCOUNTED: Final = Terms(limit=NO_LIMIT)
"""The terms of an account whose provider has no limit: a cap is what makes its calls ask."""
_SPENT_KEPT: Final = 4096


class Roll:
    """Owned by the book."""

    def __init__(self, terms: Mapping[str, Terms], caps: Caps, *, remote_ttl_s: float) -> None:
        self.accounts: dict[BudgetKey, Account] = {}
        self.terms = dict(terms)
        self.caps = caps
        self._where = Whereabouts()
        self._deadlines = Deadlines()
        self._distant = Distant(ttl_s=remote_ttl_s)
        self._watched: set[Owner] = set()
        self._spent: OrderedDict[CallId, None] = OrderedDict()
        self._lingering: dict[CallId, Account] = {}

    def __len__(self) -> int:
        """Calls that hold or wait."""
        return len(self._where)

    def account(self, key: BudgetKey, provider: str) -> Account:
        """Return the account; it is opened if nobody asked for it before.

        A lease can outlive its provider's limit; such an account admits nobody who has to be counted.
        """
        account = self.accounts.get(key)
        if account is None:
            terms = self.terms.get(provider, UNCOUNTED)
            account = self.accounts[key] = Account(key, provider=provider, terms=terms, caps=self.caps)
        return account

    # --- calls -------------------------------------------------------------------------------------------------------

    def find(self, call: CallId) -> tuple[Account, Incarnation] | None:
        """Return the account the call holds or waits in, and whose it is."""
        found = self._where.find(call)
        return None if found is None else (self.accounts[found[0]], found[1].incarnation)

    def of_incarnation(self, incarnation: Incarnation) -> tuple[CallId, ...]:
        """Return the calls of one incarnation, first asked first."""
        return self._where.of_incarnation(incarnation)

    def of_owner(self, owner: Owner) -> tuple[CallId, ...]:
        """Return the calls of one process, first asked first."""
        return self._where.of_owner(owner)

    def enter(self, claim: Claim, account: Account, now: float) -> None:
        """Let it wait."""
        account.budget.queue.push(Waiter(claim=claim, since=now))
        self._where.add(claim.call, account.key, claim.holder)

    def restore(self, lease: Lease, now: float) -> None:
        """Take over a lease that an earlier broker granted."""
        self.account(lease.budget, lease.provider).restore(lease, now)
        self._where.add(lease.call, lease.budget, lease.holder)
        self.due(lease.call, lease.expires_at)

    def drop(self, call: CallId) -> tuple[Account, Lease | Waiter] | None:
        """Free the call's slot or its place; None if it has neither."""
        found = self._where.find(call)
        if found is None:
            return None
        account = self.accounts[found[0]]
        what = account.drop(call)
        assert what is not None, "a call that is somewhere holds or waits"
        self.forget(what)
        return account, what

    def forget(self, what: Lease | Waiter) -> None:
        """It has left its account."""
        call, holder = (what.call, what.holder) if isinstance(what, Lease) else (what.claim.call, what.claim.holder)
        self._where.drop(call)
        self._deadlines.cancel(call)
        if not self._where.has_any(holder.owner):
            self._distant.forget(holder.owner)

    def spend(self, call: CallId) -> None:
        """This call's name is used up: a copy of its ask may still be on its way."""
        self._spent[call] = None
        if len(self._spent) > _SPENT_KEPT:
            self._spent.popitem(last=False)

    def is_spent(self, call: CallId) -> bool:
        """Whether it was given back before."""
        return call in self._spent

    # --- times -------------------------------------------------------------------------------------------------------

    def due(self, call: CallId, at: float) -> None:
        """Let the call be looked at then."""
        self._deadlines.set(call, at)

    def linger(self, account: Account, lease: Lease, until: float) -> None:
        """Keep the slot of a call that is over from everybody for a moment."""
        self.spend(lease.call)
        account.budget.linger(lease)
        self._lingering[lease.call] = account
        self.due(lease.call, until)

    def settle(self, call: CallId) -> Account | None:
        """Free a slot that lingered; None if it is no such call."""
        account = self._lingering.pop(call, None)
        if account is not None:
            account.budget.settle(call)
        return account

    def pop_due(self, now: float) -> list[CallId]:
        """Return the calls whose time has come, earliest first."""
        return self._deadlines.pop_due(now)

    def next_at(self, now: float) -> float | None:
        """When something is due, or somebody may be let out, by time alone."""
        known = [self._deadlines.next_at(), self._distant.next_at()]
        known += [account.next_at(now) for account in self.accounts.values()]
        return min((at for at in known if at is not None), default=None)

    # --- processes ---------------------------------------------------------------------------------------------------

    def watch(self, owner: Owner, now: float) -> bool:
        """It has something here; True if the kernel has to be asked to tell of its end."""
        if owner.is_remote:
            self._distant.hear(owner, now)
            return False
        if owner in self._watched:
            return False
        self._watched.add(owner)
        return True

    def unwatch(self, peer: Peer) -> bool:
        """It said goodbye; True if the kernel need not tell of its end any more."""
        is_idle = peer.owner in self._watched and not self._where.has_any(peer.owner)
        if is_idle:
            self._watched.discard(peer.owner)
        return is_idle

    def died(self, owner: Owner) -> None:
        """The kernel has told."""
        self._watched.discard(owner)

    def hear(self, owner: Owner, now: float) -> None:
        """A process of another host, if it has anything here, says that it lives."""
        if owner in self._distant:
            self._distant.hear(owner, now)

    def pop_silent(self, now: float) -> list[Owner]:
        """Return the processes of other hosts that were not heard for too long."""
        return list(self._distant.pop_due(now))
