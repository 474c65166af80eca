"""What one provider call is asked for, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ..protocol.dialects.base import Answer, ToolSpec
from ..protocol.faults import Fault
from ..protocol.ids import AgentId, SessionId
from ..protocol.messages.broker import Priority
from ..protocol.messages.ledger import CallRecorded
from ..protocol.settings import ProviderSettings
from ..protocol.transcript import Message

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
    tree: str | None = None
    priority: Priority = Priority.AGENT
    task: str | None = None


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """The provider's own terminal fact was seen; `answer` is complete."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class CallUnanswered:
    """There is no answer: `fault` says what the provider did, None that it was not contacted (see `problem`)."""

    problem: str
    fault: Fault | None = None


CallOutcome = CallAnswered | CallUnanswered
