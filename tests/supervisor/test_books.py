"""Whoever answers for state.db."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from covey.protocol.errors import AskTimeout, RemoteError
from covey.protocol.messages.ledger import Totals, TotalsQuery
from covey.storage.store import Store
from covey.supervisor import books


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A state.db that an owner has open."""
    path = tmp_path / "state.db"
    store = Store(path)
    store.close()
    return path


def _failing(kind: str) -> Any:
    def ask(*_: object, **__: object) -> None:
        raise RemoteError(kind, "no")

    return ask


def test_what_takes_the_ledger_too_long_is_read_from_the_file(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "ask_ledger", _failing(AskTimeout.__name__))

    assert books._Live("nowhere", kept).ask(TotalsQuery(), Totals).calls == 0


def test_another_failure_of_the_ledger_is_told(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "ask_ledger", _failing("StoreDamaged"))

    with pytest.raises(RemoteError, match="StoreDamaged"):
        books._Live("nowhere", kept).ask(TotalsQuery(), Totals)
