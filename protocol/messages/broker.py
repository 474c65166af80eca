"""The conversation with the broker. Every request may be repeated: the answer to a repeated one is the same."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ..ids import AgentId, BudgetKey, CallId, SessionId
from .base import Done, Failed, Wire


class Priority(StrEnum):
    """Who is served first; within one class the order of arrival holds."""

    INTERACTIVE = "interactive"
    AGENT = "agent"
    SUBAGENT = "subagent"
    AUXILIARY = "auxiliary"


class Destination(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a call goes. `credential` is a fingerprint of the key (`destination.fingerprint`), never the key."""

    base_url: str
    credential: str | None = None
    provider: str | None = None
    """The provider's name in the configuration; decides only where the URL has no host."""


class Acquire(Wire, frozen=True, kw_only=True, tag="acquire"):
    """Ask for a slot for one call. Answered by `Granted` or `Refused`, possibly much later."""

    call: CallId
    destination: Destination
    model: str
    session: SessionId | None = None
    agent: str | None = None
    tree: str | None = None
    """The first agent above this one, or the program: what fairness is measured over."""
    priority: Priority = Priority.AGENT
    timeout_s: float | None = None
    """Longest wait from now; None is the provider's configured one."""
    hold_s: float = 3600.0
    """The call's own deadline after the grant: a holder that is alive keeps the slot no longer than this."""
    accounted: bool = True
    """Whether the broker reports the call to the ledger as lost when its holder dies."""


class Release(Wire, frozen=True, kw_only=True, tag="release"):
    """Give a slot back, or give up waiting for it. Idempotent; answered by `Done`."""

    call: CallId
    was_cut: bool = False
    """The call was closed before its end, so the provider may count it for a moment longer."""


class ReleaseAll(Wire, frozen=True, kw_only=True, tag="release_all"):
    """Give back every slot and place in a queue of the sender's incarnation. Answered by `Done`."""


class Renew(Wire, frozen=True, kw_only=True, tag="renew"):
    """The sender lives, and keeps what it holds and waits for. Said again and again by processes of other hosts.

    Answered by `Done`, also if it came too late: then its slots were given to others.
    """


class Revoke(Wire, frozen=True, kw_only=True, tag="revoke"):
    """These agents get no slot any more, and those that wait for one wait no longer. Answered by `Done`.

    Said by the root when it stops a subtree, before anybody in it is told.
    """

    agents: tuple[AgentId, ...]


class BudgetsQuery(Wire, frozen=True, kw_only=True, tag="budgets_query"):
    """Answered by `Budgets`."""


class PolicyQuery(Wire, frozen=True, kw_only=True, tag="policy_query"):
    """Answered by `Policy`: which destinations need a slot at all."""


class Granted(Wire, frozen=True, kw_only=True, tag="granted"):
    """The slot is held from now until `Release`, the holder's death or `hold_s`."""

    call: CallId
    budget: BudgetKey
    limit: int
    in_flight: int
    waited_s: float


class Unlimited(Wire, frozen=True, kw_only=True, tag="unlimited"):
    """This destination has no budget: no slot was taken, none is to be released."""

    call: CallId


class Refusal(StrEnum):
    """Why no slot was given."""

    TIMEOUT = "timeout"
    QUEUE_FULL = "queue_full"
    WITHDRAWN = "withdrawn"
    REVOKED = "revoked"
    """The agent was stopped."""


class Refused(Wire, frozen=True, kw_only=True, tag="refused"):
    """No slot; the provider must not be contacted."""

    call: CallId
    budget: BudgetKey
    reason: Refusal
    limit: int
    queued: int
    waited_s: float


class HolderView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who holds a slot."""

    call: CallId
    pid: int
    holder: str
    model: str
    held_s: float
    session: SessionId | None = None
    agent: str | None = None


class WaiterView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who waits for a slot, in the order they will be served."""

    call: CallId
    pid: int
    holder: str
    model: str
    waited_s: float
    position: int
    priority: Priority
    session: SessionId | None = None
    agent: str | None = None


class BudgetView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One budget as it stands. Totals count from the first start of the broker in this fleet's life."""

    key: BudgetKey
    provider: str
    limit: int
    in_flight: int
    queued: int
    granted: int
    peak_in_flight: int
    oldest_wait_s: float | None = None
    wait_p50_ms: float | None = None
    wait_p99_ms: float | None = None
    holders: tuple[HolderView, ...] = ()
    waiters: tuple[WaiterView, ...] = ()


class Budgets(Wire, frozen=True, kw_only=True, tag="budgets"):
    """Every budget that was ever asked for, and the configured ones."""

    budgets: tuple[BudgetView, ...] = ()


class ProviderLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A destination that has a budget."""

    provider: str
    base_url: str
    max_concurrent: int


class Policy(Wire, frozen=True, kw_only=True, tag="policy"):
    """The destinations that have a budget; every other passes without asking."""

    limits: tuple[ProviderLimit, ...] = ()
    remote_ttl_s: float = 30.0
    """How long a process of another host keeps its slots after its last `Renew`."""


BrokerRequest = Acquire | Release | ReleaseAll | Renew | Revoke | BudgetsQuery | PolicyQuery
BrokerReply = Granted | Unlimited | Refused | Budgets | Policy | Done | Failed
