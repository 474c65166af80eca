"""What one provider call is asked for, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from ...protocol.dialects.ask import Ask, Choice, NamedTool
from ...protocol.dialects.base import Answer, StreamEvent, ToolSpec
from ...protocol.errors import CoveyError
from ...protocol.faults import Fault
from ...protocol.ids import AgentId, SessionId
from ...protocol.messages.broker import Priority
from ...protocol.messages.ledger import CallRecorded
from ...protocol.prices import estimate_usd, price_of
from ...protocol.settings import Effort
from ...protocol.transcript import Message
from .route import Target

Record = Callable[[CallRecorded], None]
"""Takes the account of a call; must neither wait nor refuse."""

BYTES_PER_TOKEN: Final = 4
ANSWER_TOKENS: Final = 1024
"""What an answer without a bound is taken for before it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """One question to a model, for whom, and at whose expense. The question is in the words of `Ask`."""

    targets: tuple[Target, ...]
    """Who is asked: the first, and the next only where the one before cannot answer."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Choice | NamedTool = Choice.AUTO
    max_answer_tokens: int | None = None
    """Where the provider is to cut the answer; None leaves it to the provider."""
    effort: Effort | None = None
    static_chars: int = 0
    turn_chars: int = 0
    affinity: str | None = None
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

    def ask(self, model: str) -> Ask:
        """The question to one model."""
        return Ask(
            model=model,
            messages=self.messages,
            tools=self.tools,
            tool_choice=self.tool_choice,
            max_tokens=self.max_answer_tokens,
            effort=self.effort,
            static_chars=self.static_chars,
            turn_chars=self.turn_chars,
            affinity=self.affinity,
        )


class BeganAgain(msgspec.Struct, frozen=True):
    """What was shown of the answer so far is void: the question is asked once more."""


CallEvent = StreamEvent | BeganAgain
"""What there is to show of a call while it runs."""


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """The provider's own terminal fact was seen; `answer` is complete."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class CallUnanswered:
    """There is no answer: `fault` says what the last provider did; None that it was not contacted, and `refusal` who
    said no, if it was somebody here."""

    problem: str
    fault: Fault | None = None
    refusal: CoveyError | None = None
    partial: str = ""
    """What had come of the last attempt's answer: a piece, for people to see and nobody to build on."""


CallOutcome = CallAnswered | CallUnanswered


def estimated_tokens(request: CallRequest) -> int:
    """About what the call will cost, in and out: a token for four bytes of what is sent, and the longest answer.

    Only for reserving (per-minute limits, caps): the provider's own count replaces it as soon as it is known.
    """
    sent = sum(len(message.content) for message in request.messages)
    sent += sum(len(call.arguments) for message in request.messages for call in message.tool_calls)
    sent += sum(len(tool.name) + len(tool.description) + len(bytes(tool.parameters)) for tool in request.tools)
    return sent // BYTES_PER_TOKEN + (request.max_answer_tokens or ANSWER_TOKENS)


def estimated_cost_usd(request: CallRequest, target: Target, tokens: int) -> float | None:
    """About what `tokens` of an estimate cost at `target`; None where the configuration says no price."""
    price = price_of(target.provider.prices, target.model)
    if price is None:
        return None
    answer = request.max_answer_tokens or ANSWER_TOKENS
    return estimate_usd(tokens - answer, answer, price)
