"""What state.db holds, for commands: asked of the running ledger, or read from the file where no fleet runs.

The file is opened read-only and takes part in SQLite's locking, so a ledger that starts meanwhile is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

from ..protocol.errors import AskTimeout, RemoteError
from ..protocol.messages.base import Wire
from ..protocol.messages.ledger import StoreQuery
from ..storage.archive import Archive
from ..storage.database import TooSlow
from .home import Home
from .quick import ask_ledger
from .running import running_root

ANSWER_S: Final = 10.0
READ_S: Final = 60.0

Reply = TypeVar("Reply", bound=Wire)


class Books(Protocol):
    """Whoever answers."""

    def ask(self, query: StoreQuery, reply: type[Reply]) -> Reply:
        """The answer to one query; `reply` is the kind that answers it. Raises `AskTimeout`, `StoreError`."""
        ...


@contextmanager
def open_books(home: Home) -> Iterator[Books | None]:
    """The books of this home; None where nothing was ever kept."""
    info = running_root(home)
    if info is not None:
        yield _Live(info.sockets, home.state_db)
    elif not home.state_db.is_file() or home.state_db.stat().st_size == 0:
        yield None
    else:
        with Archive(home.state_db) as archive:
            yield _Kept(archive)


class _Live:
    """The running ledger. What would hold up its writes for too long it leaves to us, who read the file beside it."""

    def __init__(self, sockets: str, state_db: Path) -> None:
        self._sockets = sockets
        self._state_db = state_db

    def ask(self, query: StoreQuery, reply: type[Reply]) -> Reply:
        try:
            answer = ask_ledger(self._sockets, query, timeout_s=ANSWER_S)
        except RemoteError as error:
            if error.kind != AskTimeout.__name__:
                raise
            with Archive(self._state_db) as archive:
                return _Kept(archive).ask(query, reply)
        assert isinstance(answer, reply), f"the ledger answers {type(query).__name__} with {reply.__name__}"
        return answer


class _Kept:
    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def ask(self, query: StoreQuery, reply: type[Reply]) -> Reply:
        try:
            answer = self._archive.answer(query, deadline_s=READ_S)
        except TooSlow:
            raise AskTimeout(type(query).__name__, str(self._archive.path), READ_S) from None
        assert isinstance(answer, reply), f"{type(query).__name__} is answered with {reply.__name__}"
        return answer
