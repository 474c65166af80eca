"""What actors need of the world outside their process; `supervisor/` provides it, tests replace it.

All are used from the loop thread only. Every wait has a deadline or can be cancelled; a cancelled wait leaves
nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, overload

from ..protocol.fault_kinds import Fault
from ..protocol.ids import AgentId
from ..protocol.messages.base import Wire
from ..protocol.messages.broker import Acquire, Granted, Outcome, Unlimited
from ..protocol.messages.fleet import AgentResult, AgentSpec, AgentView
from ..protocol.messages.ledger import (
    Calls,
    CallsQuery,
    Generation,
    GenerationQuery,
    LedgerRecord,
    LedgerStats,
    LedgerStatsQuery,
    Totals,
    TotalsQuery,
    Transcript,
    TranscriptQuery,
)
from ..protocol.peer import Peer
from ..protocol.settings import ProviderSettings

Body = TypeVar("Body", bound=Wire)


@dataclass(frozen=True, slots=True)
class Request(Generic[Body]):
    """A request from another process, as a service's actor gets it.

    `reply` may be called once, at any later time, on the loop thread; if the peer is gone by then, it is dropped.
    The same request may come again (a peer resends what was not answered when the service was replaced).
    """

    peer: Peer
    body: Body
    reply: Callable[[Wire], None]


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """The peer said goodbye: its session is over although the process may live on."""

    peer: Peer


@dataclass(slots=True)
class Hold:
    """A slot while it is held. `outcome` is what its budget is told when it is given back; None if nobody knows."""

    grant: Granted | Unlimited
    outcome: Outcome | None = None
    on_answer: Callable[[], None] = lambda: None
    """To be told once, when the provider has begun to answer."""


class Slots(Protocol):
    """The broker, as a caller sees it."""

    def slot(self, request: Acquire) -> AbstractAsyncContextManager[Hold]:
        """Hold a slot while inside; raises a `LimitError` on entry, when nothing was taken.

        Leaving gives the slot back whatever happened inside, also when the task is cancelled.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key to call with. `secret` is None for a provider that needs none."""

    secret: str | None = field(repr=False)
    fingerprint: str | None
    """Names it without telling it (`destination.fingerprint`)."""
    label: str = "environment"
    """Where it comes from, for people; no part of the secret."""


class Keys(Protocol):
    """The keys of the fleet's providers, as a caller sees them."""

    async def choose(self, provider: ProviderSettings, *, avoid: frozenset[str] = frozenset()) -> Key:
        """The key to call with now. Of several, one that does not rest and whose fingerprint is not in `avoid`.

        Raises `NoKey` where there is none (nothing configured, or all rest or are avoided; it says until when).
        Where one key comes from the environment alone this waits for nothing.
        """
        ...

    async def renew(self, provider: ProviderSettings, stale: Key) -> Key | None:
        """After a refusal of `stale`: the key that took its place, refreshed once for the whole fleet.

        None where nothing can take its place: a plain key cannot be renewed.
        """
        ...

    def trouble(self, provider: ProviderSettings, key: Key, fault: Fault) -> None:
        """Note that the provider refused this key (or its account), so that others choose another one; never waits."""
        ...


class Ledger(Protocol):
    """The ledger, as a writer and reader sees it."""

    def record(self, record: LedgerRecord) -> None:
        """Hand a record over; it survives the death of this process from here on. Raises `OutboxFull`."""
        ...

    async def flush(self, *, timeout_s: float = 10.0) -> None:
        """Return once every record handed over so far is committed; raises `AskTimeout`."""
        ...

    @overload
    async def query(self, query: TranscriptQuery, *, timeout_s: float = 10.0) -> Transcript: ...
    @overload
    async def query(self, query: TotalsQuery, *, timeout_s: float = 10.0) -> Totals: ...
    @overload
    async def query(self, query: GenerationQuery, *, timeout_s: float = 10.0) -> Generation: ...
    @overload
    async def query(self, query: CallsQuery, *, timeout_s: float = 10.0) -> Calls: ...
    @overload
    async def query(self, query: LedgerStatsQuery, *, timeout_s: float = 10.0) -> LedgerStats: ...


class Children(Protocol):
    """The fleet, as an agent sees it: where its children run."""

    async def spawn(self, spec: AgentSpec) -> None:
        """Start an agent somewhere; one that already exists is not started again."""
        ...

    async def result(self, agent: AgentId) -> AgentResult:
        """Wait for its end."""
        ...

    async def stop(self, agents: tuple[AgentId, ...]) -> None:
        """Stop these agents and all below them; returns once no call of theirs can start any more."""
        ...

    def report(self, view: AgentView) -> None:
        """Tell the fleet what an agent of ours does; may be dropped or merged with a later one."""
        ...
