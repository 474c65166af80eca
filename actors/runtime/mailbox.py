"""Mailboxes: a bounded lane for user mail and a system lane that overtakes it.

Any thread may put, only the actor's turn takes. Three things change under the one lock and nowhere else, which is
what makes the runtime right:

- `awake` says that a turn is scheduled or running. A put that finds it False must wake the actor, a `take` that finds
  nothing sets it to False. So there is at most one turn, and no message without one.
- `closed` is set together with the last drain. So a put is either drained or refused, never forgotten.
- the bounds, on messages and on bytes, are checked where the message is added.

An empty deque takes 0.6 KiB: lanes exist only while they hold something, an idle mailbox is a few words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from enum import Enum, auto
from threading import Lock
from typing import Literal, NamedTuple

from .exits import ExitReason
from .monitor import Down
from .reply import Reply

Overflow = Literal["reject", "drop_oldest", "coalesce"]
"""What happens at the bound: the newest is refused; the oldest go; a waiting message of the same key is replaced."""

Unit = Literal["messages", "bytes"]
"""Which of the two bounds was reached."""


class Envelope:
    """A message and where its answer goes. `key` is set for messages that may be replaced by a newer one."""

    __slots__ = ("key", "message", "reply", "size")

    def __init__(self, message: object, reply: Reply | None = None, key: Hashable | None = None, size: int = 0) -> None:
        self.message = message
        self.reply = reply
        self.key = key
        self.size = size
        """In bytes, as the receiver's class sees it."""


class Stop:
    """The stop request, as the turn takes it."""

    __slots__ = ("reason",)

    def __init__(self, reason: ExitReason) -> None:
        self.reason = reason


class Put(Enum):
    """What became of a put."""

    ACCEPTED = auto()
    WAKE = auto()
    """Accepted, and the actor sleeps: the caller has to schedule its turn."""
    FULL = auto()
    CLOSED = auto()


class Spill(NamedTuple):
    """What a bound turned away: the new envelope itself, or the oldest ones in its favour. Their askers wait."""

    unit: Unit
    limit: int
    envelopes: tuple[Envelope, ...]


class Mailbox:
    """One actor's mail. It starts awake: its first turn is the start of the actor."""

    __slots__ = (
        "_abandoned",
        "_awake",
        "_by_key",
        "_bytes",
        "_bytes_limit",
        "_closed_by",
        "_downs",
        "_limit",
        "_lock",
        "_overflow",
        "_stop",
        "_user",
    )

    def __init__(self, limit: int, overflow: Overflow, *, bytes_limit: int) -> None:
        self._lock = Lock()
        self._limit = limit
        self._bytes_limit = bytes_limit
        self._overflow = overflow
        self._bytes = 0
        self._user: deque[Envelope] | None = None
        self._downs: deque[Down] | None = None
        self._stop: Stop | None = None
        self._by_key: dict[Hashable, Envelope] | None = None
        self._awake = True
        self._abandoned = False
        self._closed_by: ExitReason | None = None

    @property
    def closed_by(self) -> ExitReason | None:
        """Why nothing is accepted any more; None while open."""
        return self._closed_by

    def is_open(self) -> bool:
        """Whether mail is accepted."""
        return self._closed_by is None

    def __len__(self) -> int:
        """User messages waiting."""
        return len(self._user) if self._user is not None else 0

    @property
    def bytes_waiting(self) -> int:
        """The size of the user messages waiting."""
        return self._bytes

    def put(self, envelope: Envelope) -> tuple[Put, Spill | None]:
        """Add user mail. What was turned away by a bound is handed back: the caller answers its askers.

        A message larger than the whole mailbox is refused whatever the policy: nothing is dropped for it.
        """
        with self._lock:
            if self._closed_by is not None:
                return Put.CLOSED, None
            if (waiting := self._same_key(envelope)) is not None:
                return self._replace(waiting, envelope)
            unit = self._lacks(envelope)
            if unit is not None and self._sweep():
                unit = self._lacks(envelope)
            if unit is None:
                self._append(envelope)
                return self._woken(), None
            if self._overflow != "drop_oldest" or envelope.size > self._bytes_limit:
                return Put.FULL, self._spill(unit, (envelope,))
            spill = self._spill(unit, self._make_room(envelope))
            self._append(envelope)
            return self._woken(), spill

    def put_unbounded(self, envelope: Envelope) -> Put:
        """Add mail the actor itself ordered (a timer): as many as it has timers, so the bounds do not apply."""
        with self._lock:
            if self._closed_by is not None:
                return Put.CLOSED
            self._append(envelope)
            return self._woken()

    def put_down(self, down: Down) -> Put:
        """Add a Down, ahead of user mail. As many can wait as the actor has monitors."""
        with self._lock:
            if self._closed_by is not None:
                return Put.CLOSED
            if self._downs is None:
                self._downs = deque()
            self._downs.append(down)
            return self._woken()

    def put_stop(self, reason: ExitReason) -> Put:
        """Ask for the end, ahead of everything else. The first reason stays."""
        with self._lock:
            if self._closed_by is not None:
                return Put.CLOSED
            if self._stop is None:
                self._stop = Stop(reason)
            return self._woken()

    def note_abandoned(self) -> None:
        """An asker gave up: its envelope may be thrown away when room is needed."""
        self._abandoned = True

    def take(self) -> Envelope | Down | Stop | None:
        """Take what is next: stop, downs, user mail. None: there is nothing, the actor sleeps from here on."""
        with self._lock:
            if self._stop is not None:
                return self._stop
            if self._downs is not None:
                down = self._downs.popleft()
                if not self._downs:
                    self._downs = None
                return down
            if self._user is not None:
                return self._pop()
            self._awake = False
            return None

    def close(self, reason: ExitReason) -> list[Envelope]:
        """Refuse every later put and hand back what was waiting; [] if it was closed already."""
        with self._lock:
            if self._closed_by is not None:
                return []
            self._closed_by = reason
            left = list(self._user) if self._user is not None else []
            self._user = self._downs = self._by_key = self._stop = None
            self._bytes = 0
            return left

    # --- under the lock ----------------------------------------------------------------------------------------------

    def _lacks(self, envelope: Envelope) -> Unit | None:
        if len(self) >= self._limit:
            return "messages"
        return "bytes" if self._bytes + envelope.size > self._bytes_limit else None

    def _spill(self, unit: Unit, envelopes: tuple[Envelope, ...]) -> Spill:
        return Spill(unit, self._limit if unit == "messages" else self._bytes_limit, envelopes)

    def _same_key(self, envelope: Envelope) -> Envelope | None:
        # Asks have no key: each needs an answer of its own.
        if envelope.key is None or self._by_key is None:
            return None
        return self._by_key.get(envelope.key)

    def _replace(self, waiting: Envelope, newer: Envelope) -> tuple[Put, Spill | None]:
        size = self._bytes - waiting.size + newer.size
        if size > self._bytes_limit and newer.size > waiting.size:
            return Put.FULL, self._spill("bytes", (newer,))
        waiting.message, waiting.size, self._bytes = newer.message, newer.size, size
        return Put.ACCEPTED, None

    def _make_room(self, envelope: Envelope) -> tuple[Envelope, ...]:
        displaced = []
        while self._user is not None and self._lacks(envelope) is not None:
            displaced.append(self._pop())
        return tuple(displaced)

    def _append(self, envelope: Envelope) -> None:
        if self._user is None:
            self._user = deque()
        self._user.append(envelope)
        self._bytes += envelope.size
        if envelope.key is not None:
            if self._by_key is None:
                self._by_key = {}
            self._by_key[envelope.key] = envelope

    def _pop(self) -> Envelope:
        assert self._user, "a user lane exists only while it holds something"
        envelope = self._user.popleft()
        if not self._user:
            self._user = None
        self._bytes -= envelope.size
        if envelope.key is not None:
            assert self._by_key is not None, "a keyed envelope is in the table while it waits"
            del self._by_key[envelope.key]
        return envelope

    def _sweep(self) -> bool:
        """Throw out asks nobody waits for; they are all without a key."""
        if not self._abandoned or self._user is None:
            return False
        self._abandoned = False
        wanted = deque(e for e in self._user if e.reply is None or e.reply.is_wanted())
        self._bytes = sum(e.size for e in wanted)
        self._user = wanted or None
        return True

    def _woken(self) -> Put:
        if self._awake:
            return Put.ACCEPTED
        self._awake = True
        return Put.WAKE
