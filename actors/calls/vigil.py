"""The clocks of one attempt while it runs: which of them ends next, and which has run out.

Pure: every time is the loop's, passed in as `now`. Made when the slot is there. Its use:

    vigil = Vigil(clocks.within(route.left_s), now)    # then .sent, .head, .bytes and .content as they happen
    at vigil.deadline: expired = vigil.expired(now)    # None: something came meanwhile; look at .deadline again
    fault = expired.fault

One timer is enough: events only move deadlines, and a move to a nearer one comes with a new phase.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ...protocol.fault_kinds import Fault, FaultKind
from ...protocol.faults import fault_named
from .clocks import Clocks


class Clock(StrEnum):
    """Which clock."""

    CONNECT = "connect"
    HEAD = "head"
    FIRST_BYTE = "first_byte"
    FIRST_CONTENT = "first_content"
    CONTENT = "content"
    SILENCE = "silence"
    TOTAL = "total"


class Expired(msgspec.Struct, frozen=True):
    """A clock ran out: which, and in words for people."""

    clock: Clock
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def fault(self) -> Fault:
        """What that is as a fault; it has no status, for nobody answered it."""
        kind = FaultKind.UNREACHABLE if self.clock is Clock.CONNECT else FaultKind.TIMEOUT
        return fault_named(kind, self.text)


class Phase(StrEnum):
    """How far an attempt has come."""

    CONNECTING = "connecting"
    AWAITING_HEAD = "awaiting_head"
    AWAITING_BYTE = "awaiting_byte"
    AWAITING_CONTENT = "awaiting_content"
    """Something came, and it said nothing."""
    SPEAKING = "speaking"


class _Event(StrEnum):
    SENT = "sent"
    HEAD = "head"
    BYTES = "bytes"
    CONTENT = "content"


NEXT: Final[dict[tuple[Phase, _Event], Phase]] = {
    (Phase.CONNECTING, _Event.SENT): Phase.AWAITING_HEAD,
    # A transport that does not say when it sends; then the head tells.
    (Phase.CONNECTING, _Event.HEAD): Phase.AWAITING_BYTE,
    (Phase.AWAITING_HEAD, _Event.HEAD): Phase.AWAITING_BYTE,
    (Phase.AWAITING_BYTE, _Event.BYTES): Phase.AWAITING_CONTENT,
    (Phase.AWAITING_BYTE, _Event.CONTENT): Phase.SPEAKING,
    (Phase.AWAITING_CONTENT, _Event.BYTES): Phase.AWAITING_CONTENT,
    (Phase.AWAITING_CONTENT, _Event.CONTENT): Phase.SPEAKING,
    (Phase.SPEAKING, _Event.BYTES): Phase.SPEAKING,
    (Phase.SPEAKING, _Event.CONTENT): Phase.SPEAKING,
}


class Vigil:
    """The clocks of one attempt while it runs; owned by its task. Events come in the order of `NEXT`, any other is a
    broken caller. Bytes show that somebody is alive; only content shows that there will be an answer."""

    __slots__ = ("_begun", "_byte", "_clocks", "_content", "_head", "_sent", "phase")

    def __init__(self, clocks: Clocks, now: float) -> None:
        self._clocks = clocks
        self._begun = self._sent = self._head = self._byte = self._content = now
        self.phase = Phase.CONNECTING

    def sent(self, now: float) -> None:
        """The first byte of the request goes to a socket."""
        self._move(_Event.SENT)
        self._sent = now

    def head(self, now: float) -> None:
        """Status and headers of the answer are there."""
        self._move(_Event.HEAD)
        self._head = now

    def bytes(self, now: float) -> None:
        """A piece of the body came, whatever is in it."""
        if self.phase is not Phase.SPEAKING:
            self._move(_Event.BYTES)
        self._byte = now

    def content(self, now: float) -> None:
        """A piece of the body came that says something; `bytes` need not be told of it as well."""
        if self.phase is not Phase.SPEAKING:
            self._move(_Event.CONTENT)
        self._byte = self._content = now

    @property
    def deadline(self) -> float:
        """When the next clock runs out if nothing else happens."""
        return self._first()[0]

    def expired(self, now: float) -> Expired | None:
        """The clock that has run out at `now`, the first of several; None if none has."""
        at, clock = self._first()
        return Expired(clock, self._words(clock, now)) if now >= at else None

    def _move(self, event: _Event) -> None:
        then = NEXT.get((self.phase, event))
        assert then is not None, f"an attempt that is {self.phase} does not become {event}"
        self.phase = then

    def _first(self) -> tuple[float, Clock]:
        return min(self._running(), key=_at)

    def _running(self) -> tuple[tuple[float, Clock], ...]:
        clocks = self._clocks
        total = (self._begun + clocks.total_s, Clock.TOTAL)
        match self.phase:
            case Phase.CONNECTING:
                return ((self._begun + clocks.connect_s, Clock.CONNECT), total)
            case Phase.AWAITING_HEAD:
                return ((self._sent + clocks.headers_s, Clock.HEAD), total)
            case Phase.AWAITING_BYTE:
                return (
                    (self._head + clocks.first_byte_s, Clock.FIRST_BYTE),
                    (self._head + clocks.first_content_s, Clock.FIRST_CONTENT),
                    total,
                )
            case Phase.AWAITING_CONTENT:
                return (
                    (self._head + clocks.first_content_s, Clock.FIRST_CONTENT),
                    (self._byte + clocks.silence_s, Clock.SILENCE),
                    total,
                )
            case Phase.SPEAKING:
                return (
                    (self._content + clocks.content_s, Clock.CONTENT),
                    (self._byte + clocks.silence_s, Clock.SILENCE),
                    total,
                )

    def _words(self, clock: Clock, now: float) -> str:
        match clock:
            case Clock.CONNECT:
                return f"no connection within {self._clocks.connect_s:g} s"
            case Clock.HEAD:
                return f"no answer within {now - self._sent:.0f} s of the request"
            case Clock.FIRST_BYTE:
                return f"said nothing for {now - self._head:.0f} s after its head"
            case Clock.FIRST_CONTENT if self.phase is Phase.AWAITING_BYTE:
                return f"said nothing for {now - self._head:.0f} s after its head"
            case Clock.FIRST_CONTENT:
                return f"only keep-alives for {now - self._head:.0f} s after its head"
            case Clock.CONTENT if self._byte > self._content:
                return f"only keep-alives for {now - self._content:.0f} s in the middle of the answer"
            case Clock.CONTENT:
                return f"stood still for {now - self._content:.0f} s in the middle of the answer"
            case Clock.SILENCE:
                return f"stood still for {now - self._byte:.0f} s"
            case Clock.TOTAL:
                return f"was not over in time, {now - self._begun:.0f} s after it began"


def _at(running: tuple[float, Clock]) -> float:
    return running[0]
