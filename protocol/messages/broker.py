"""The conversation with the broker. Every request may be repeated: the answer to a repeated one is the same."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ..fault_kinds import Fault
from ..ids import AgentId, BudgetKey, CallId, SessionId
from ..usage import Usage
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


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a call ended, as far as its budget needs to know. Everything unknown is None."""

    fault: Fault | None = None
    """None: the provider answered."""
    usage: Usage | None = None
    tokens: int | None = None
    """All tokens in and out, where no more than their sum is known."""
    cost_usd: float | None = None
    """What it cost, where the caller knows better than the configured prices."""
    is_known: bool = True
    """False: the provider was asked, and nobody says how that ended."""


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
    park_s: float | None = None
    """How long the account may be parked before the call would rather be refused, for it can go elsewhere; None: for as
    long as it can wait at all. Waiting for others' calls to end is not bound by it."""
    hold_s: float = 3600.0
    """The call's own deadline after the grant: a holder that is alive keeps the slot no longer than this."""
    accounted: bool = True
    """Whether the broker reports the call to the ledger as lost when its holder dies."""
    work: str | None = None
    """What is attempted: every attempt at the same request carries the same. None: this call is the only attempt."""
    attempt: int = 1
    """1 for the first; later ones go before others of their tree, for they have waited already."""
    waiting_above: int = 0
    """How many agents above this one wait for its end: deeper goes first inside a tree."""
    estimated_tokens: int | None = None
    """What the call will cost about, in and out together; reserved until its outcome is known."""
    estimated_cost_usd: float | None = None
    cap: str | None = None
    """The cap (`DeclareCap`) it spends from, beside the fleet's own."""


class Release(Wire, frozen=True, kw_only=True, tag="release"):
    """Give a slot back, or give up waiting for it. Idempotent; answered by `Done`."""

    call: CallId
    was_cut: bool = False
    """The call was closed before its end, so the provider may count it for a moment longer."""
    outcome: Outcome | None = None
    """None: the provider was not asked, or the call was cut."""


class Answering(Wire, frozen=True, kw_only=True, tag="answering"):
    """The provider has begun to answer the call that is out to try its account (`Granted.is_probe`): the others need
    not wait for its end. Answered by `Done`."""

    call: CallId


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


class Unlock(Wire, frozen=True, kw_only=True, tag="unlock"):
    """A person says that this account may be used again: ends a lock, a park and a pause. Answered by `Done`, or by
    `Failed` for a budget nobody knows."""

    budget: BudgetKey


class QuotaWindow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One allowance of a plan, as the provider's quota endpoint tells it."""

    name: str
    """Its kind and length in the provider's own words, such as `TOKENS_LIMIT 5 h`."""
    used_percent: float | None = None
    resets_at_ms: int | None = None
    """Unix time of its end; None where the provider does not say."""
    blocks: bool = True
    """Whether calls are refused while it is full; False for tools' windows and for kinds nobody knows."""


class QuotaSeen(Wire, frozen=True, kw_only=True, tag="quota_seen"):
    """Somebody with the key read the account's quota just now. Answered by `Done`."""

    budget: BudgetKey
    windows: tuple[QuotaWindow, ...]


class DeclareCap(Wire, frozen=True, kw_only=True, tag="declare_cap"):
    """Let calls that name this cap spend so much and no more. Answered by `Done`; declared again, it is changed, and
    what was spent stays spent."""

    name: str
    max_tokens: int | None = None
    max_cost_usd: float | None = None


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
    is_probe: bool = False
    """The account is closed and this call tries whether it answers again: say `Answering` as soon as it does."""
    wants_quota: bool = False
    """The broker has not seen the account's quota for a while: whoever has the key, please read it (`QuotaSeen`)."""


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
    PARKED = "parked"
    """The account lets nobody out before a time that is later than the asker can wait: its allowance is used up, or
    the provider has been overloaded for long."""
    LOCKED = "locked"
    """The provider closed the account to us; a person has to act, then say `covey budget unlock`."""
    CAP_REACHED = "cap_reached"
    """A cap on tokens or money leaves no room for this call: a normal end."""
    REQUEST_REFUSED = "request_refused"
    """The provider refuses this request again and again while others pass: it is not the load."""


class Refused(Wire, frozen=True, kw_only=True, tag="refused"):
    """No slot; the provider must not be contacted."""

    call: CallId
    budget: BudgetKey
    reason: Refusal
    limit: int
    queued: int
    waited_s: float
    until_ms: int | None = None
    """Unix time at which another try makes sense, if that is known."""
    detail: str | None = None
    """Why, in words for people: the provider's own, or which cap."""


class HolderView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who holds a slot."""

    call: CallId
    pid: int
    holder: str
    model: str
    held_s: float
    session: SessionId | None = None
    agent: str | None = None
    is_stalled: bool = False
    """Its process is stopped (SIGSTOP, a debugger): it keeps the slot until the call's own deadline."""


class WaiterView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who waits for a slot, in the order they will be served."""

    call: CallId
    pid: int
    holder: str
    model: str
    waited_s: float
    position: int
    priority: Priority
    reason: str = "slot"
    """What it waits for: a slot, its model's own limit, the end of a pause, or room under its cap."""
    session: SessionId | None = None
    agent: str | None = None


class BudgetState(StrEnum):
    """Whether calls are let out."""

    OPEN = "open"
    PAUSED = "paused"
    """Too many calls at once or in a time (1302, 1303): a short pause, then one call to try."""
    OVERLOADED = "overloaded"
    """The provider has too much to do (1305, 529): a longer pause, then one call to try."""
    PARKED = "parked"
    """The allowance of a window is used up until it ends."""
    LOCKED = "locked"
    """The account is closed to us until a person says `covey budget unlock`."""


class FaultCount(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often a budget's calls ended in one kind of fault, and the latest of them."""

    kind: str
    code: str | None = None
    count: int
    last_ms: int
    message: str


class ModelLimitView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model's own limit inside its budget."""

    model: str
    limit: int
    in_flight: int
    queued: int


class RateView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit per minute: what the last 60 seconds used of it."""

    unit: str
    """`requests` or `tokens`."""
    limit: int
    used: int


class BudgetView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One budget as it stands. Totals count from the first start of the broker in this fleet's life."""

    key: BudgetKey
    provider: str
    limit: int
    """In effect now: the configured limit, or the learned one where that is lower."""
    in_flight: int
    queued: int
    granted: int
    peak_in_flight: int
    oldest_wait_s: float | None = None
    wait_p50_ms: float | None = None
    wait_p99_ms: float | None = None
    configured: int = 0
    """What config.yaml says."""
    learned: float | None = None
    """What the provider was seen to bear; None before it ever refused."""
    state: BudgetState = BudgetState.OPEN
    state_reason: str | None = None
    until_ms: int | None = None
    """Unix time at which the state ends or one call is tried; None where it is open, or a person has to act."""
    probing: CallId | None = None
    """The one call that is out to try whether a pause is over."""
    release_lag_ms: float = 0.0
    turned_over_s: float | None = None
    """Since a slot last changed hands."""
    faults: tuple[FaultCount, ...] = ()
    models: tuple[ModelLimitView, ...] = ()
    rates: tuple[RateView, ...] = ()
    quota: tuple[QuotaWindow, ...] = ()
    quota_seen_ms: int | None = None
    holders: tuple[HolderView, ...] = ()
    waiters: tuple[WaiterView, ...] = ()


class CapView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cap as it stands; what is reserved belongs to calls that run."""

    name: str
    tokens: int
    reserved_tokens: int
    cost_usd: float
    reserved_cost_usd: float
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    unknown_calls: int = 0
    """Calls that count with what was expected of them, because nobody knows what they used."""


class Budgets(Wire, frozen=True, kw_only=True, tag="budgets"):
    """Every budget that was ever asked for, and the configured ones."""

    budgets: tuple[BudgetView, ...] = ()
    caps: tuple[CapView, ...] = ()


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
    counts_all: bool = False
    """A cap holds for the whole fleet: every call asks, also one whose destination has no budget."""


BrokerRequest = (
    Acquire
    | Release
    | Answering
    | ReleaseAll
    | Renew
    | Revoke
    | Unlock
    | QuotaSeen
    | DeclareCap
    | BudgetsQuery
    | PolicyQuery
)
BrokerReply = Granted | Unlimited | Refused | Budgets | Policy | Done | Failed
