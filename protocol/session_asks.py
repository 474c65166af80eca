"""What a session has to remember: our asks until they are answered, and our last answers in case they got lost."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from .errors import LinkFull

MAX_OPEN: Final = 50_000
MAX_OPEN_BYTES: Final = 128 * 1024 * 1024
RESERVE: Final = 1.25
"""Requests that give something back may fill a quarter more: those that want something cannot crowd them out."""

MAX_TELLS: Final = 10_000
"""Tells that wait for credit; more are dropped."""

MAX_ANSWERS: Final = 256
MAX_ANSWER_BYTES: Final = 1024


class Asks:
    """Our asks that are not answered, and what of them (and of our tells) waits for its turn to be sent.

    An ask is kept until it is answered or given up, however often it has to be sent. A tell is sent once or dropped.
    """

    def __init__(self, *, most: int = MAX_OPEN, most_bytes: int = MAX_OPEN_BYTES, most_tells: int = MAX_TELLS) -> None:
        self._most, self._most_bytes, self._most_tells = most, most_bytes, most_tells
        self._open: dict[int, bytes] = {}
        self._bytes = 0
        self._waiting: OrderedDict[int, bytes] = OrderedDict()
        self._tells_waiting = 0
        self._last_id = 0
        self._last_tell = 0

    def __len__(self) -> int:
        """How many asks are open."""
        return len(self._open)

    @property
    def is_waiting(self) -> bool:
        """Whether anything waits for its turn: then whatever comes later has to wait, too."""
        return bool(self._waiting)

    def add(self, body: bytes, *, to: str, may_use_reserve: bool) -> int:
        """The new ask's id; raises `LinkFull` at the bound, which then is where it was."""
        room = RESERVE if may_use_reserve else 1.0
        if len(self._open) >= self._most * room or self._bytes + len(body) > self._most_bytes * room:
            raise LinkFull(to, len(self._open))
        self._last_id += 1
        self._open[self._last_id] = body
        self._bytes += len(body)
        return self._last_id

    def wait(self, ask_id: int) -> None:
        """Send this ask when its turn comes."""
        self._waiting[ask_id] = self._open[ask_id]

    def wait_to_tell(self, body: bytes) -> bool:
        """Send this tell when its turn comes; False if too many wait, and it is dropped."""
        if self._tells_waiting >= self._most_tells:
            return False
        self._tells_waiting += 1
        self._last_tell -= 1
        self._waiting[self._last_tell] = body
        return True

    def next(self) -> tuple[int | None, bytes]:
        """Whose turn it is: an ask with its id, or a tell with None. There has to be one."""
        key, body = self._waiting.popitem(last=False)
        if key > 0:
            return key, body
        self._tells_waiting -= 1
        return None, body

    def end(self, ask_id: int) -> bool:
        """The ask is answered or given up; False if it had ended before."""
        body = self._open.pop(ask_id, None)
        if body is None:
            return False
        self._bytes -= len(body)
        if self._waiting:
            self._waiting.pop(ask_id, None)
        return True

    def begin_again(self) -> int:
        """Every open ask has to be sent (again), in order. Returns how many waiting tells were dropped."""
        dropped, self._tells_waiting = self._tells_waiting, 0
        self._waiting = OrderedDict(self._open)
        return dropped

    def clear(self) -> None:
        """Nothing is open any more."""
        self._open.clear()
        self._waiting.clear()
        self._bytes = self._tells_waiting = 0


class Answers:
    """The last small answers we gave. A repeated ask gets the same one again, and is not carried out twice.

    The memory is bounded. An ask that is repeated after its answer was forgotten, or that had a large one, is carried
    out anew: every request of every conversation bears that, this only makes it rare.
    """

    def __init__(self, *, most: int = MAX_ANSWERS, most_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    def keep(self, ask_id: int, body: bytes) -> None:
        """Remember an answer, if it is small; the oldest one makes room."""
        if len(body) <= self._most_bytes:
            self._kept[ask_id] = body
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def find(self, ask_id: int) -> bytes | None:
        """The answer that was given to this ask."""
        return self._kept.get(ask_id)

    def clear(self) -> None:
        """The peer is another process now: its ids are others."""
        self._kept.clear()
