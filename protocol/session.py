"""The session over one link, without I/O: bytes in, events and bytes out.

One side opens (it has the DEALER), the other accepts (it has the ROUTER). Both may ask and tell once it is open. What
happens when is in `session_states`; what travels, in `frames`.

Sequence. Everything that matters is numbered, so what is lost on the way is missed: by the next number, or by the ping.
Then, as after each reconnect, the session is opened anew and every ask that is not answered is repeated, in order; the
peer may be the next life of the process we had asked before.

Acknowledgement. The answer is the acknowledgement: an ask is kept until it comes. A repeated ask that is still in work,
or whose (small) answer is still remembered, is not carried out twice; any other is carried out anew, so that every
request of every conversation must bear repetition. Asks of one session reach the peer in the order they were made.
`tell` is at most once.

Credit. Asks and tells are sent as far as the receiver has granted; what goes beyond waits here, up to a bound.

Not thread safe: owned by the loop thread. Times are the caller's monotonic seconds.
"""

from __future__ import annotations

from typing import Final

import msgspec

from . import frames
from .credit import Allowance, Window
from .errors import LinkClosed, MessageTooLarge, ProtocolError
from .messages.base import Failed
from .peer import Peer
from .session_asks import Answers, Asks
from .session_events import Answered, Asked, Event, Left, Opened, Told
from .session_states import ACCEPTOR, OPENER, State, Step

NOTHING: Final[list[bytes]] = []
NO_EVENTS: Final[list[Event]] = []

WINDOW: Final = 2048
"""Asks and tells a peer may send before it is granted more; well below the sockets' high-water mark."""

MAX_BODY_BYTES: Final = frames.MAX_FRAME_BYTES - 1024
"""A larger frame would cost the connection, be repeated on the next one, and cost that too."""


class Session:
    """One side of a session. Methods that send return the frames to put on the wire, in order.

    `link` tells the openers of one process apart: a later one needs a higher number, because its ids begin anew.
    """

    def __init__(self, me: Peer, *, opens: bool, link: int = 0, window: int = WINDOW, asks: Asks | None = None) -> None:
        self._me = me
        self._table = OPENER if opens else ACCEPTOR
        self._opens = opens
        self._state = State.IDLE
        self.is_open = False
        """Whether frames come and go."""
        self._is_leaving = False
        self._link = link
        self._attempt = 0
        self._asks = asks if asks is not None else Asks()
        self._allowance = Allowance()
        self._window = Window(window)
        self._last_sent = 0
        self._expected = 1
        self._in_work: set[int] = set()
        self._answers = Answers()
        self._heard_at: float | None = None
        self._was_estranged = False
        self.peer: Peer | None = None
        self.generation = 0
        """Counts the peers we had: an ask of an earlier one is not to be answered to a later one."""
        self.late_replies = 0
        """Answers to asks that were given up meanwhile."""
        self.dropped_tells = 0
        self.losses = 0
        """How often something on its way to us was found to be lost."""

    @property
    def state(self) -> State:
        """Where it is in its life."""
        return self._state

    @property
    def unanswered(self) -> int:
        """How many of our asks wait for an answer."""
        return len(self._asks)

    @property
    def in_work(self) -> int:
        """How many of the peer's asks wait for ours."""
        return len(self._in_work)

    def silent_s(self, now: float) -> float:
        """Seconds since anything came; 0 before the first time."""
        return 0.0 if self._heard_at is None else now - self._heard_at

    def excuse(self, now: float) -> None:
        """Count silence from `now`: we did not listen ourselves."""
        self._heard_at = now

    # --- what we do ----------------------------------------------------------------------------------------------

    def connected(self) -> list[bytes]:
        """The transport is (again) connected: greet. Also to be called now and then while no welcome comes."""
        self._step(Step.CONNECTED)
        return self._hello()

    def ask(self, body: bytes, *, may_use_reserve: bool = False) -> tuple[int, list[bytes]]:
        """Ask the peer; kept until answered or given up, and sent as soon as the session and its credit allow.

        Raises `LinkFull`, `LinkClosed` (also while draining) or `MessageTooLarge`: then nothing was asked. What gives
        something back `may_use_reserve`.
        """
        if self._is_leaving or self._state is State.CLOSED:
            raise LinkClosed(self._peer_name())
        _check_size(body)
        ask_id = self._asks.add(body, to=self._peer_name(), may_use_reserve=may_use_reserve)
        if self._state is State.OPEN and not self._asks.is_waiting and self._allowance.take():
            return ask_id, [self._ask_frame(ask_id, body)]
        self._asks.wait(ask_id)
        return ask_id, NOTHING

    def give_up(self, ask_id: int) -> list[bytes]:
        """Nobody waits for this answer any more: it is not repeated, and a late one is dropped."""
        self._asks.end(ask_id)
        return self._settled()

    def reply(self, ask_id: int, body: bytes) -> list[bytes]:
        """Answer the peer's ask, once; a second answer is dropped. One that cannot be sent now is remembered.

        An answer too large for a link is replaced by one that says so.
        """
        if ask_id not in self._in_work:
            return NOTHING
        self._in_work.discard(ask_id)
        if len(body) > MAX_BODY_BYTES:
            body = _too_large(body)
        self._answers.keep(ask_id, body)
        if not self.is_open:
            return self._settled()
        out = [self._reply_frame(ask_id, body)]
        return [*out, *self._settled()] if self._is_leaving else out

    def tell(self, body: bytes) -> list[bytes]:
        """Tell the peer; dropped (and counted) unless the session is open and has room for it."""
        _check_size(body)
        if self._state is not State.OPEN:
            self.dropped_tells += 1
            return NOTHING
        if not self._asks.is_waiting and self._allowance.take():
            return [self._tell_frame(body)]
        if not self._asks.wait_to_tell(body):
            self.dropped_tells += 1
        return NOTHING

    def beat(self) -> list[bytes]:
        """What a timer sends: a ping, or another hello while no welcome has come."""
        if self.is_open:
            return [frames.encode(frames.Ping(seq=self._last_sent))]
        if self._opens and self._state in _GREETING:
            return self.connected()
        return NOTHING

    def drain(self) -> list[bytes]:
        """Begin nothing new, finish what either side has asked, then say goodbye: the state is CLOSED then."""
        self._step(Step.DRAIN)
        return self._settled()

    def close(self) -> list[bytes]:
        """End the session from this side, whatever is open."""
        was_open = self.is_open
        self._step(Step.CLOSE)
        self._asks.clear()
        return [frames.encode(frames.Bye())] if was_open else NOTHING

    # --- what the peer does --------------------------------------------------------------------------------------

    def receive(self, data: bytes | msgspec.Raw, now: float) -> tuple[list[Event], list[bytes]]:
        """Take one frame: what happened, and what is to be sent. After a `ProtocolError` nothing has changed."""
        frame = frames.decode_frame(data)
        match frame:
            case frames.Ask() | frames.Reply() | frames.Tell() | frames.Credit():
                result = self._numbered(frame) if self.is_open else self._numbered_unopened(frame)
            case _:
                result = self._signalled(frame)
        self._heard_at = now
        return result

    def _numbered(self, frame: frames.Numbered) -> tuple[list[Event], list[bytes]]:
        if frame.seq != self._expected:
            return self._out_of_turn(frame)
        match frame:
            case frames.Reply(id=ask_id, body=body):
                self._expected += 1
                if not self._asks.end(ask_id):
                    self.late_replies += 1
                    return NO_EVENTS, NOTHING
                return [Answered(ask_id, bytes(body))], self._settled() if self._is_leaving else NOTHING
            case frames.Ask(id=ask_id, body=body):
                return self._asked(ask_id, bytes(body))
            case frames.Tell(body=body):
                return [Told(bytes(body))], self._took_one()
            case frames.Credit(upto=upto):
                self._expected += 1
                self._allowance.grant(upto)
                return NO_EVENTS, self._flow()

    def _asked(self, ask_id: int, body: bytes) -> tuple[list[Event], list[bytes]]:
        out = self._took_one()
        if ask_id in self._in_work:
            return NO_EVENTS, out
        if (answer := self._answers.find(ask_id)) is not None:
            return NO_EVENTS, [*out, self._reply_frame(ask_id, answer)]
        self._in_work.add(ask_id)
        return [Asked(ask_id, body)], out

    def _took_one(self) -> list[bytes]:
        """Count an ask or tell that is taken in; the credit to send for it."""
        grant = self._window.take()
        self._expected += 1
        if grant is None:
            return NOTHING
        self._last_sent += 1
        return [frames.encode(frames.Credit(seq=self._last_sent, upto=grant))]

    def _out_of_turn(self, frame: frames.Numbered) -> tuple[list[Event], list[bytes]]:
        """A number that was seen is a copy, or from an older session; one that is too high says that some are lost."""
        events = self._answer_in(frame)
        return (events, self._settled()) if frame.seq < self._expected else (events, self._lost())

    def _numbered_unopened(self, frame: frames.Numbered) -> tuple[list[Event], list[bytes]]:
        """Before the hello: an acceptor that was replaced asks for it, an opener waits for its welcome."""
        self._step(Step.TRAFFIC)
        events = self._answer_in(frame)
        if self._opens or self._was_estranged or self._state is State.CLOSED:
            return events, self._settled()
        # Once: a hundred asks in a row would otherwise be answered by a hundred hellos. Pings repeat it.
        self._was_estranged = True
        return events, [frames.encode(frames.Stranger()), *self._settled()]

    def _answer_in(self, frame: frames.Numbered) -> list[Event]:
        """An answer is good whenever it comes: ids are of our whole life."""
        if isinstance(frame, frames.Reply) and self._asks.end(frame.id):
            return [Answered(frame.id, bytes(frame.body))]
        return NO_EVENTS

    def _lost(self) -> list[bytes]:
        self.losses += 1
        self._step(Step.LOST)
        if self._opens:
            return self._hello()
        self._was_estranged = True
        return [frames.encode(frames.Stranger())]

    def _signalled(
        self, frame: frames.Hello | frames.Welcome | frames.Stranger | frames.Ping | frames.Pong | frames.Bye
    ) -> tuple[list[Event], list[bytes]]:
        match frame:
            case frames.Hello():
                return self._greeted(frame)
            case frames.Welcome():
                return self._welcomed(frame)
            case frames.Stranger():
                # While greeting, the hello is under way already.
                was_open = self.is_open
                self._step(Step.STRANGER)
                return NO_EVENTS, self._hello() if was_open else NOTHING
            case frames.Ping(seq=seq):
                self._step(Step.TRAFFIC)
                return NO_EVENTS, self._pinged(seq)
            case frames.Pong(seq=seq):
                self._step(Step.TRAFFIC)
                return NO_EVENTS, self._lost() if self.is_open and seq >= self._expected else NOTHING
            case frames.Bye():
                was_closed = self._state is State.CLOSED
                self._step(Step.BYE)
                self._asks.clear()
                return NO_EVENTS if was_closed else [Left()], NOTHING

    def _pinged(self, seq: int) -> list[bytes]:
        if self.is_open:
            return self._lost() if seq >= self._expected else [frames.encode(frames.Pong(seq=self._last_sent))]
        if self._opens or self._state is State.CLOSED:
            return NOTHING
        self._was_estranged = True
        return [frames.encode(frames.Stranger())]

    # --- opening -------------------------------------------------------------------------------------------------

    def _hello(self) -> list[bytes]:
        if self._state is State.CLOSED:
            return NOTHING
        self._attempt += 1
        hello = frames.Hello(
            version=frames.VERSION,
            peer=self._me,
            link=self._link,
            attempt=self._attempt,
            next_seq=self._last_sent + 1,
            window=self._window.size,
        )
        return [frames.encode(hello)]

    def _greeted(self, hello: frames.Hello) -> tuple[list[Event], list[bytes]]:
        _check_version(hello.version)
        self._check_step(Step.HELLO)
        is_copy = self.peer is not None and (hello.link, hello.attempt) <= (self._link, self._attempt)
        if self._state is State.CLOSED or is_copy:
            return NO_EVENTS, NOTHING
        is_other_link = hello.link != self._link
        self._link, self._attempt = hello.link, hello.attempt
        welcome = frames.Welcome(
            version=frames.VERSION,
            peer=self._me,
            attempt=hello.attempt,
            next_seq=self._last_sent + 1,
            window=self._window.size,
        )
        return self._open(Step.HELLO, hello, [frames.encode(welcome)], is_other_link=is_other_link)

    def _welcomed(self, welcome: frames.Welcome) -> tuple[list[Event], list[bytes]]:
        _check_version(welcome.version)
        self._check_step(Step.WELCOME)
        if self._state not in _GREETING or welcome.attempt != self._attempt:
            return NO_EVENTS, NOTHING  # an answer to an older hello
        return self._open(Step.WELCOME, welcome, NOTHING, is_other_link=False)

    def _open(
        self, step: Step, greeting: frames.Hello | frames.Welcome, first: list[bytes], *, is_other_link: bool
    ) -> tuple[list[Event], list[bytes]]:
        is_new_life = is_other_link or self.peer is None or self.peer.incarnation != greeting.peer.incarnation
        self._step(step)
        self.peer = greeting.peer
        self._was_estranged = False
        if is_new_life:
            self.generation += 1
            self._in_work.clear()
            self._answers.clear()
        self._expected = greeting.next_seq
        self._window.begin()
        self._allowance.begin(greeting.window)
        self.dropped_tells += self._asks.begin_again()
        return [Opened(greeting.peer, is_new_life)], [*first, *self._flow(), *self._settled()]

    # --- helpers -------------------------------------------------------------------------------------------------

    def _flow(self) -> list[bytes]:
        """Whatever waits, as far as the credit goes."""
        out: list[bytes] = []
        while self._asks.is_waiting and self._allowance.take():
            ask_id, body = self._asks.next()
            out.append(self._tell_frame(body) if ask_id is None else self._ask_frame(ask_id, body))
        return out

    def _settled(self) -> list[bytes]:
        """The goodbye, once a session that drains has nothing left to do."""
        if not self._is_leaving or len(self._asks) or self._in_work:
            return NOTHING
        was_open = self.is_open
        self._step(Step.SETTLED)
        return [frames.encode(frames.Bye())] if was_open else NOTHING

    def _ask_frame(self, ask_id: int, body: bytes) -> bytes:
        self._last_sent += 1
        return frames.encode(frames.Ask(id=ask_id, seq=self._last_sent, body=msgspec.Raw(body)))

    def _reply_frame(self, ask_id: int, body: bytes) -> bytes:
        self._last_sent += 1
        return frames.encode(frames.Reply(id=ask_id, seq=self._last_sent, body=msgspec.Raw(body)))

    def _tell_frame(self, body: bytes) -> bytes:
        self._last_sent += 1
        return frames.encode(frames.Tell(seq=self._last_sent, body=msgspec.Raw(body)))

    def _peer_name(self) -> str:
        return self.peer.name if self.peer is not None else "the peer"

    def _check_step(self, step: Step) -> None:
        if (self._state, step) not in self._table:
            side = "opens" if self._opens else "accepts"
            raise ProtocolError(f"the side that {side} a session has no use for {step.name} when {self._state.name}")

    def _step(self, step: Step) -> None:
        self._check_step(step)
        self._state = state = self._table[self._state, step]
        # Kept beside the state, because every frame asks for them.
        self.is_open = state in _OPEN
        self._is_leaving = state in _LEAVING


_OPEN: Final = frozenset({State.OPEN, State.DRAINING})
_LEAVING: Final = frozenset({State.DRAINING, State.ADRIFT})
_GREETING: Final = frozenset({State.GREETING, State.ADRIFT})


body_of: Final = frames.encode
"""A message as the body of a frame."""


def _check_size(body: bytes) -> None:
    if len(body) > MAX_BODY_BYTES:
        raise MessageTooLarge(len(body), MAX_BODY_BYTES)


def _too_large(body: bytes) -> bytes:
    error = MessageTooLarge(len(body), MAX_BODY_BYTES)
    return body_of(Failed(kind=type(error).__name__, message=str(error)))


def _check_version(version: int) -> None:
    if version != frames.VERSION:
        raise ProtocolError(
            f"the peer speaks session version {version}, this covey {frames.VERSION}; run the same covey on both sides"
        )
