"""What the rules hear and what they want done: events and actions, in the order they are to be carried out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...protocol.ids import AgentId, BudgetKey, CallId, Incarnation
from ...protocol.messages.broker import Outcome, QuotaWindow, Refusal
from ...protocol.peer import Owner, Peer
from ...storage.caps import CapKept
from ...storage.leases import Lease
from ...storage.standings import Standing
from .claim import Claim
from .terms import Terms


class Asked(msgspec.Struct, frozen=True):
    """A call wants a slot, perhaps not for the first time."""

    claim: Claim


class GivenBack(msgspec.Struct, frozen=True):
    """A call needs its slot, or its place, no more.

    `was_cut`: it was closed before its end. Without an `outcome` and not cut, the provider was not asked. `chance` (0
    to 1) is the randomness of the pause that may follow. `asker`, if known, is who says so.
    """

    call: CallId
    was_cut: bool = False
    outcome: Outcome | None = None
    chance: float = 0.5
    asker: Incarnation | None = None


class Answered(msgspec.Struct, frozen=True):
    """The provider has begun to answer a call. `asker` is who says so."""

    call: CallId
    asker: Incarnation


class Revoked(msgspec.Struct, frozen=True):
    """These agents get nothing any more."""

    agents: tuple[AgentId, ...]


class Renewed(msgspec.Struct, frozen=True):
    """A process of another host says that it lives."""

    owner: Owner


class Left(msgspec.Struct, frozen=True):
    """An incarnation gives back all it has."""

    peer: Peer


class Died(msgspec.Struct, frozen=True):
    """A process has ended."""

    owner: Owner


class Limited(msgspec.Struct, frozen=True):
    """The configured terms, by provider's name, are these and no others from now on."""

    terms: Mapping[str, Terms]


class Unlocked(msgspec.Struct, frozen=True):
    """A person says that this account may be used again."""

    budget: BudgetKey


class QuotaRead(msgspec.Struct, frozen=True):
    """Somebody read the account's quota."""

    budget: BudgetKey
    windows: tuple[QuotaWindow, ...]


class CapDeclared(msgspec.Struct, frozen=True):
    """Under this name so much may be spent. A `stamp` names the period, if there are any."""

    name: str
    max_tokens: int | None
    max_cost_usd: float | None
    stamp: str | None = None


class Ticked(msgspec.Struct, frozen=True):
    """Nothing happened but time."""


Event = (
    Asked
    | GivenBack
    | Answered
    | Revoked
    | Renewed
    | Left
    | Died
    | Limited
    | Unlocked
    | QuotaRead
    | CapDeclared
    | Ticked
)


class Grant(msgspec.Struct, frozen=True):
    """Answer the call: it has a slot. `is_new` ones go to the journal first; the others were granted before."""

    lease: Lease
    limit: int
    in_flight: int
    is_new: bool
    is_probe: bool = False
    wants_quota: bool = False


class Refuse(msgspec.Struct, frozen=True):
    """Answer the call: it has no slot and no place in a queue."""

    call: CallId
    asker: Incarnation
    budget: BudgetKey
    reason: Refusal
    limit: int
    queued: int
    waited_s: float
    until_ms: int | None = None
    detail: str | None = None


class Pass(msgspec.Struct, frozen=True):
    """Answer the call: its destination has no limit any more."""

    call: CallId
    asker: Incarnation


class Reject(msgspec.Struct, frozen=True):
    """Answer the asker: this call's name belongs to another process."""

    call: CallId
    asker: Incarnation


class End(msgspec.Struct, frozen=True):
    """The lease is over; the journal has to know, in one record with what the call spent."""

    lease: Lease
    spent: tuple[CapKept, ...] = ()


class Overdue(msgspec.Struct, frozen=True):
    """The lease is over although its holder lives: it had its time."""

    lease: Lease
    spent: tuple[CapKept, ...] = ()


class Lose(msgspec.Struct, frozen=True):
    """The lease is over because its holder died; the ledger has to know if it is accounted, then the journal."""

    lease: Lease
    spent: tuple[CapKept, ...] = ()


class Watch(msgspec.Struct, frozen=True):
    """Tell when this process ends."""

    owner: Owner


class Unwatch(msgspec.Struct, frozen=True):
    """This process has nothing of ours."""

    owner: Owner


class Keep(msgspec.Struct, frozen=True):
    """Put this on file: an heir has to know it."""

    record: Standing | CapKept


Action = Grant | Refuse | Pass | Reject | End | Overdue | Lose | Watch | Unwatch | Keep
