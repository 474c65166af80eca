"""Mailboxes: a bounded lane for user mail and a system lane that overtakes it.

Any thread may put, only the actor's turn takes. Three things change under the one lock and nowhere else, which is
what makes the runtime right:

- `awake` says that a turn is scheduled or running. A put that finds it False must wake the actor, a `take` that finds
  nothing sets it to False. So there is at most one turn, and no message without one.
- `closed` is set together with the last drain. So a put is either drained or refused, never forgotten.
- the bound is checked where the message is added.

An empty deque takes 0.6 KiB: lanes exist only while they hold something, an idle mailbox is a few words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from enum import Enum, auto
from threading import Lock
from typing import Literal

from .exits import ExitReason
from .monitor import Down
from .reply import Reply

Overflow = Literal["reject", "drop_oldest", "coalesce"]
"""What happens at the bound: the newest is refused; the oldest goes; a waiting message of the same key is replaced."""


class Envelope:
    """A message and where its answer goes. `key` is set for messages that may be replaced by a newer one."""

    __slots__ = ("key", "message", "reply")

    def __init__(self, message: object, reply: Reply | None = None, key: Hashable | None = None) -> None:
        self.message = message
        self.reply = reply
        self.key = key


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


class Mailbox:
    """One actor's mail. It starts awake: its first turn is the start of the actor."""

    __slots__ = (
        "_abandoned",
        "_awake",
        "_by_key",
        "_closed_by",
        "_downs",
        "_limit",
        "_lock",
        "_overflow",
        "_stop",
        "_user",
    )

    def __init__(self, limit: int, overflow: Overflow) -> None:
        self._lock = Lock()
        self._limit = limit
        self._overflow = overflow
        self._user: deque[Envelope] | None = None
        self._downs: deque[Down] | None = None
        self._stop: Stop | None = None
        self._by_key: dict[Hashable, Envelope] | None = None
        self._awake = True
        self._abandoned = False
        self._closed_by: ExitReason | None = None

    @property
    def limit(self) -> int:
        """User messages that may wait."""
        return self._limit

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

    def put(self, envelope: Envelope) -> tuple[Put, Envelope | None]:
        """Add user mail. An envelope that was displaced is handed back: the caller answers its asker."""
        with self._lock:
            if self._closed_by is not None:
                return Put.CLOSED, None
            if self._replace(envelope):
                return Put.ACCEPTED, None
            displaced = None
            if len(self) >= self._limit and not self._sweep():
                if self._overflow != "drop_oldest":
                    return Put.FULL, None
                displaced = self._pop()
            self._append(envelope)
            return self._woken(), displaced

    def put_unbounded(self, envelope: Envelope) -> Put:
        """Add mail the actor itself ordered (a timer): as many as it has timers, so the bound does not apply."""
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
            return left

    # --- under the lock ----------------------------------------------------------------------------------------------

    def _replace(self, envelope: Envelope) -> bool:
        # Asks have no key: each needs an answer of its own.
        if envelope.key is None or self._by_key is None:
            return False
        waiting = self._by_key.get(envelope.key)
        if waiting is None:
            return False
        waiting.message = envelope.message
        return True

    def _append(self, envelope: Envelope) -> None:
        if self._user is None:
            self._user = deque()
        self._user.append(envelope)
        if envelope.key is not None:
            if self._by_key is None:
                self._by_key = {}
            self._by_key[envelope.key] = envelope

    def _pop(self) -> Envelope:
        assert self._user, "a user lane exists only while it holds something"
        envelope = self._user.popleft()
        if not self._user:
            self._user = None
        if envelope.key is not None:
            assert self._by_key is not None, "a keyed envelope is in the table while it waits"
            del self._by_key[envelope.key]
        return envelope

    def _sweep(self) -> bool:
        if not self._abandoned or self._user is None:
            return False
        self._abandoned = False
        wanted = deque(e for e in self._user if e.reply is None or e.reply.is_wanted())
        self._user = wanted or None
        return len(self) < self._limit

    def _woken(self) -> Put:
        if self._awake:
            return Put.ACCEPTED
        self._awake = True
        return Put.WAKE
