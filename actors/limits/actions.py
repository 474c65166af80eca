"""What the rules hear and what they want done: events and actions, in the order they are to be carried out."""

from __future__ import annotations

import msgspec

from ...protocol.ids import AgentId, BudgetKey, CallId, Incarnation
from ...protocol.messages.broker import Refusal
from ...protocol.peer import Owner, Peer
from ...storage.leases import Lease
from .claim import Claim


class Asked(msgspec.Struct, frozen=True):
    """A call wants a slot, perhaps not for the first time."""

    claim: Claim


class GivenBack(msgspec.Struct, frozen=True):
    """A call needs its slot, or its place, no more. `was_cut`: it was closed before its end."""

    call: CallId
    was_cut: bool = False


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
    """The configured limits, by provider's name, are these and no others from now on."""

    limits: dict[str, int]


class Ticked(msgspec.Struct, frozen=True):
    """Nothing happened but time."""


Event = Asked | GivenBack | Revoked | Renewed | Left | Died | Limited | Ticked


class Grant(msgspec.Struct, frozen=True):
    """Answer the call: it has a slot. `is_new` ones go to the journal first; the others were granted before."""

    lease: Lease
    limit: int
    in_flight: int
    is_new: bool


class Refuse(msgspec.Struct, frozen=True):
    """Answer the call: it has no slot and no place in a queue."""

    call: CallId
    asker: Incarnation
    budget: BudgetKey
    reason: Refusal
    limit: int
    queued: int
    waited_s: float


class Pass(msgspec.Struct, frozen=True):
    """Answer the call: its destination has no limit any more."""

    call: CallId
    asker: Incarnation


class Reject(msgspec.Struct, frozen=True):
    """Answer the asker: this call's name belongs to another process."""

    call: CallId
    asker: Incarnation


class End(msgspec.Struct, frozen=True):
    """The lease is over; the journal has to know."""

    lease: Lease


class Overdue(msgspec.Struct, frozen=True):
    """The lease is over although its holder lives: it had its time."""

    lease: Lease


class Lose(msgspec.Struct, frozen=True):
    """The lease is over because its holder died; the ledger has to know if it is accounted, then the journal."""

    lease: Lease


class Watch(msgspec.Struct, frozen=True):
    """Tell when this process ends."""

    owner: Owner


class Unwatch(msgspec.Struct, frozen=True):
    """This process has nothing of ours."""

    owner: Owner


Action = Grant | Refuse | Pass | Reject | End | Overdue | Lose | Watch | Unwatch
