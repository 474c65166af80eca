"""The words of a conversation: its phases, what happens to it, and what it wants done.

Pure. `conversation.step` is the rule that connects them.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from ..protocol.messages.fleet import AgentState
from ..protocol.messages.ledger import Transcript
from ..protocol.transcript import Message, Role, Signed, ToolCall

# --- phases ----------------------------------------------------------------------------------------------------------


class Fresh(msgspec.Struct, frozen=True):
    """Nothing has happened yet in this process."""


class Calling(msgspec.Struct, frozen=True):
    """Turn number `turn` (from 1) waits for the model; `fruitless` answers to it were useless so far."""

    turn: int
    fruitless: int = 0


class InTools(msgspec.Struct, frozen=True):
    """The calls of turn `turn` that have no result yet; never empty."""

    turn: int
    pending: tuple[ToolCall, ...]


class Ended(msgspec.Struct, frozen=True):
    """Nothing will follow."""


Phase = Fresh | Calling | InTools | Ended


class Conversation(msgspec.Struct, frozen=True):
    """Where it stands, and every message so far in the order of their indexes."""

    phase: Phase = Fresh()
    messages: tuple[Message, ...] = ()

    @property
    def turn(self) -> int:
        """Answers of the model so far, the one that is waited for included."""
        match self.phase:
            case Calling(turn=turn) | InTools(turn=turn):
                return turn
            case Fresh() | Ended():
                return sum(message.role is Role.ASSISTANT for message in self.messages)
            case _:
                assert_never(self.phase)


# --- events ----------------------------------------------------------------------------------------------------------


class Began(msgspec.Struct, frozen=True):
    """The shell has loaded what is stored: `transcript` is empty for a new session."""

    request: str
    transcript: Transcript


class Answered(msgspec.Struct, frozen=True):
    """The model's answer is complete; `is_cut` says that it stopped at its output limit."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    is_cut: bool = False
    signed: tuple[Signed, ...] = ()


class CallFailed(msgspec.Struct, frozen=True):
    """There will be no answer, retries included."""

    error: str


class CapMet(msgspec.Struct, frozen=True):
    """The call was not made: what may be spent is spent."""

    reason: str


class ToolEnded(msgspec.Struct, frozen=True):
    """One of the pending calls has its result."""

    call_id: str
    text: str


class Stopped(msgspec.Struct, frozen=True):
    """Somebody wants it to end now; the shell has stopped what was under way."""

    reason: str


class Broken(msgspec.Struct, frozen=True):
    """The shell cannot go on: something that is needed is missing, or a bug showed."""

    error: str


Event = Began | Answered | CallFailed | CapMet | ToolEnded | Stopped | Broken


# --- actions ---------------------------------------------------------------------------------------------------------


class AppendMessage(msgspec.Struct, frozen=True):
    """Store it before anything that follows."""

    index: int
    message: Message


class StartCall(msgspec.Struct, frozen=True):
    """Ask the model, with all messages so far."""

    turn: int


class RunTools(msgspec.Struct, frozen=True):
    """Run these and report each by `ToolEnded`."""

    calls: tuple[ToolCall, ...]


class Finish(msgspec.Struct, frozen=True):
    """The end: `outcome` is final."""

    outcome: AgentState
    text: str = ""
    error: str | None = None


Action = AppendMessage | StartCall | RunTools | Finish
