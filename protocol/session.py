"""The session over one link, without I/O: bytes in, events and bytes out.

One side opens (it has the DEALER), the other accepts (it has the ROUTER). Both may ask and tell once it is open. What
was asked and is not answered is repeated when the session is opened again, by this life of the peer or the next one; so
every request of every conversation must bear repetition. `tell` is at most once.

    IDLE --connected--> GREETING --welcome--> OPEN          opener; `connected` and `stranger` lead back to GREETING
    IDLE --hello--> OPEN                                    acceptor; a repeated hello opens it anew
    any --close/bye--> CLOSED

Not thread safe: owned by the loop thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import msgspec

from . import frames
from .errors import ProtocolError
from .messages.base import Wire
from .peer import Peer


class State(Enum):
    """Where a session is in its life."""

    IDLE = auto()
    GREETING = auto()
    OPEN = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is open. `is_new_life`: the peer is not the process we spoke with before (or the first one)."""

    peer: Peer
    is_new_life: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """The peer asks; answer with `reply(id, …)`."""

    id: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """The peer answered our ask."""

    id: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Told:
    """The peer told us something."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Heard:
    """The peer's loop turned lately."""


@dataclass(frozen=True, slots=True)
class Left:
    """The peer said goodbye; the session is closed."""


Event = Opened | Asked | Answered | Told | Heard | Left

NOTHING: Final[list[bytes]] = []


class Session:
    """One side of a session. Methods that send return the frames to put on the wire, in order."""

    def __init__(self, me: Peer, *, opens: bool) -> None:
        self._me = me
        self._opens = opens
        self._state = State.IDLE
        self._next_id = 1
        self._unanswered: dict[int, bytes] = {}
        self._in_work: set[int] = set()
        self.peer: Peer | None = None
        self.late_replies = 0
        """Answers to asks that were given up meanwhile."""
        self.dropped_tells = 0

    @property
    def state(self) -> State:
        return self._state

    @property
    def unanswered(self) -> int:
        """How many of our asks wait for an answer."""
        return len(self._unanswered)

    # --- what we do ----------------------------------------------------------------------------------------------

    def connected(self) -> list[bytes]:
        """The transport is (again) connected: greet."""
        assert self._opens, "the acceptor waits for the peer's hello"
        if self._state is State.CLOSED:
            return NOTHING
        self._state = State.GREETING
        return [frames.encode(frames.Hello(version=frames.VERSION, peer=self._me))]

    def ask(self, body: bytes) -> tuple[int, list[bytes]]:
        """Ask the peer; kept until answered or given up. Before the session is open, nothing is sent yet."""
        ask_id = self._next_id
        self._next_id += 1
        frame = frames.encode(frames.Ask(id=ask_id, body=_raw(body)))
        self._unanswered[ask_id] = frame
        return ask_id, [frame] if self._state is State.OPEN else NOTHING

    def give_up(self, ask_id: int) -> None:
        """Nobody waits for this answer any more: it is not repeated, and a late one is dropped."""
        self._unanswered.pop(ask_id, None)

    def reply(self, ask_id: int, body: bytes) -> list[bytes]:
        """Answer the peer's ask. An answer that cannot be sent now is dropped: the peer asks again."""
        self._in_work.discard(ask_id)
        if self._state is not State.OPEN:
            return NOTHING
        return [frames.encode(frames.Reply(id=ask_id, body=_raw(body)))]

    def tell(self, body: bytes) -> list[bytes]:
        """Tell the peer; dropped (and counted) unless the session is open."""
        if self._state is not State.OPEN:
            self.dropped_tells += 1
            return NOTHING
        return [frames.encode(frames.Tell(body=_raw(body)))]

    def ping(self) -> list[bytes]:
        """Ask for a sign of life. Never queued: without an open session there is nobody to answer."""
        return [frames.encode(frames.Ping())] if self._state is State.OPEN else NOTHING

    def close(self) -> list[bytes]:
        """End the session from this side."""
        was_open = self._state is State.OPEN
        self._state = State.CLOSED
        self._unanswered.clear()
        return [frames.encode(frames.Bye())] if was_open else NOTHING

    # --- what the peer does --------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> tuple[list[Event], list[bytes]]:
        """Take one frame: what happened, and what is to be sent. After a `ProtocolError` nothing has changed."""
        frame = frames.decode_frame(data)
        if self._state is State.CLOSED:
            return [], NOTHING
        match frame:
            case frames.Hello():
                return self._greeted(frame)
            case frames.Welcome():
                return self._welcomed(frame)
            case frames.Stranger():
                return [], self.connected() if self._opens else NOTHING
            case _ if self._state is not State.OPEN:
                return [], self._estranged()
            case frames.Ask(id=ask_id, body=body):
                if ask_id in self._in_work:
                    return [], NOTHING
                self._in_work.add(ask_id)
                return [Asked(ask_id, bytes(body))], NOTHING
            case frames.Reply(id=ask_id, body=body):
                if self._unanswered.pop(ask_id, None) is None:
                    self.late_replies += 1
                    return [], NOTHING
                return [Answered(ask_id, bytes(body))], NOTHING
            case frames.Tell(body=body):
                return [Told(bytes(body))], NOTHING
            case frames.Ping():
                return [Heard()], [frames.encode(frames.Pong())]
            case frames.Pong():
                return [Heard()], NOTHING
            case frames.Bye():
                self._state = State.CLOSED
                return [Left()], NOTHING
        raise AssertionError(f"a frame without a rule: {type(frame).__name__}")

    def _estranged(self) -> list[bytes]:
        """Something came before hello: an acceptor that was replaced asks for it, an opener waits for its welcome."""
        return NOTHING if self._opens else [frames.encode(frames.Stranger())]

    def _greeted(self, hello: frames.Hello) -> tuple[list[Event], list[bytes]]:
        if self._opens:
            raise ProtocolError("a hello came to the side that opened the session")
        _check_version(hello.version)
        welcome = frames.encode(frames.Welcome(version=frames.VERSION, peer=self._me))
        return self._open(hello.peer, [welcome])

    def _welcomed(self, welcome: frames.Welcome) -> tuple[list[Event], list[bytes]]:
        if not self._opens:
            raise ProtocolError("a welcome came to the side that accepts")
        _check_version(welcome.version)
        if self._state is not State.GREETING:
            return [], NOTHING  # a second answer to a hello that was repeated
        return self._open(welcome.peer, [])

    def _open(self, peer: Peer, first: list[bytes]) -> tuple[list[Event], list[bytes]]:
        is_new_life = self.peer is None or self.peer.incarnation != peer.incarnation
        self._state = State.OPEN
        self.peer = peer
        # An answer on its way when the old connection broke is lost: let the repeated ask in again.
        self._in_work.clear()
        return [Opened(peer, is_new_life)], first + list(self._unanswered.values())


def body_of(message: Wire) -> bytes:
    """A message as the body of a frame."""
    return frames.encode(message)


def _raw(body: bytes) -> msgspec.Raw:
    return msgspec.Raw(body)


def _check_version(version: int) -> None:
    if version != frames.VERSION:
        raise ProtocolError(
            f"the peer speaks session version {version}, this covey {frames.VERSION}; run the same covey on both sides"
        )
