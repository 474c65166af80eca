"""What one provider call is asked for, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ...protocol.dialects.base import Answer, ToolSpec
from ...protocol.errors import CoveyError
from ...protocol.faults import Fault
from ...protocol.ids import AgentId, SessionId
from ...protocol.messages.broker import Priority
from ...protocol.messages.ledger import CallRecorded
from ...protocol.prices import estimate_usd, price_of
from ...protocol.settings import ProviderSettings
from ...protocol.transcript import Message

Record = Callable[[CallRecorded], None]
"""Takes the account of a call; must neither wait nor refuse."""


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """How long a provider may be silent. Waiting for a slot is no silence of the provider and is not in here."""

    headers_s: float = 600.0
    """From the request to the answer's head; reasoning models think for minutes before it."""
    chunk_s: float = 300.0
    """Between two pieces of the answer; a keep-alive counts as one."""
    content_s: float = 600.0
    """Between two pieces that say something: keep-alives alone do not make an answer."""
    total_s: float = 1800.0
    """From the request to the answer's end."""
    refusal_s: float = 10.0
    """For the body of an error answer."""
    drain_s: float = 0.25
    """For what follows a complete answer, so that the connection can be used again."""

    @property
    def hold_s(self) -> float:
        """How long the slot may be held: longer than any call, so that it never ends under a running one."""
        return self.total_s + self.refusal_s + self.drain_s + 60.0


DEFAULT_CLOCKS: Final = Clocks()

BYTES_PER_TOKEN: Final = 4
ANSWER_TOKENS: Final = 1024
"""What an answer without a bound is taken for before it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """One question to a model, for whom, and at whose expense."""

    provider: ProviderSettings
    model: str
    messages: tuple[Message, ...]
    """As they are kept: they are repaired on the way out."""
    tools: tuple[ToolSpec, ...] = ()
    max_answer_tokens: int | None = None
    """Where the provider is to cut the answer; None leaves it to the provider."""
    api_key: str | None = field(default=None, repr=False)
    session: SessionId | None = None
    agent: AgentId | None = None
    parent_session: SessionId | None = None
    """The session that this one works for."""
    parent: AgentId | None = None
    tree: str | None = None
    priority: Priority = Priority.AGENT
    waiting_above: int = 0
    """How many agents above wait for the one that asks."""
    task: str | None = None
    cap: str | None = None
    """The cap it spends from, beside the fleet's own."""


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """The provider's own terminal fact was seen; `answer` is complete."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class CallUnanswered:
    """There is no answer: `fault` says what the provider did; None that it was not contacted, and `refusal` who said
    no, if the broker did."""

    problem: str
    fault: Fault | None = None
    refusal: CoveyError | None = None


CallOutcome = CallAnswered | CallUnanswered


def estimated_tokens(request: CallRequest) -> int:
    """About what the call will cost, in and out: a token for four bytes of what is sent, and the longest answer.

    Only for reserving (per-minute limits, caps): the provider's own count replaces it as soon as it is known.
    """
    sent = sum(len(message.content) for message in request.messages)
    sent += sum(len(call.arguments) for message in request.messages for call in message.tool_calls)
    sent += sum(len(tool.name) + len(tool.description) + len(bytes(tool.parameters)) for tool in request.tools)
    return sent // BYTES_PER_TOKEN + (request.max_answer_tokens or ANSWER_TOKENS)


def estimated_cost_usd(request: CallRequest) -> float | None:
    """About what the call will cost; None where the configuration says no price."""
    answer = request.max_answer_tokens or ANSWER_TOKENS
    price = price_of(request.provider.prices, request.model)
    return estimate_usd(estimated_tokens(request) - answer, answer, price)
