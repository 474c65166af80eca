"""Records over a real link and spool, to a ledger that is played by the test: what is sent when, and what is kept."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from covey.actors.ports import Request
from covey.protocol import session
from covey.protocol.errors import AskTimeout
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.base import Failed
from covey.protocol.messages.ledger import (
    Append,
    Committed,
    LedgerReply,
    LedgerRequest,
    SessionEnded,
    Totals,
    TotalsQuery,
)
from covey.protocol.peer import Peer
from covey.storage.outbox import Outbox
from covey.storage.owners import me
from covey.supervisor import records as module
from covey.supervisor.batches import MAX_BATCH, MAX_UNDER_WAY
from covey.supervisor.hub import Hub
from covey.supervisor.link import Link
from covey.supervisor.records import Records
from covey.supervisor.sockets import make_context

TOTALS = Totals(calls=0, unknown_calls=0, refused_calls=0, prompt_tokens=0, completion_tokens=0)


@dataclass
class Ledger:
    """Holds every request until the test answers it."""

    appends: list[tuple[Append, Request[Any]]] = field(default_factory=list)
    queries: list[Request[Any]] = field(default_factory=list)

    def on_request(self, request: Request[Any]) -> None:
        if isinstance(request.body, Append):
            self.appends.append((request.body, request))
        else:
            self.queries.append(request)

    def commit(self) -> int:
        """Answer the oldest batch; up to where."""
        append, request = self.appends.pop(0)
        upto = append.first + len(append.records) - 1
        request.reply(Committed(upto=upto))
        return upto

    def refuse(self) -> None:
        """Refuse the oldest batch."""
        self.appends.pop(0)[1].reply(Failed(kind="MailboxFull", message="no room"))


@dataclass
class House:
    folder: Path
    ledger: Ledger
    records: Records

    def record(self, count: int) -> None:
        for _ in range(count):
            self.records.record(SessionEnded(session=SessionId("s"), outcome="done", at_ms=1))


@pytest.fixture
def play() -> Iterator[Callable[[Callable[[House], Awaitable[None]]], None]]:
    """Run a scene with a sender and a ledger."""

    async def scene(work: Callable[[House], Awaitable[None]], folder: Path) -> None:
        context = make_context()
        path = str(folder / "ledger.sock")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(8)
        ledger = Ledger()
        peer = Peer(role="worker", name="worker-1", incarnation=Incarnation("life-1"), owner=me())
        hub = Hub(
            context,
            path=path,
            listener_fd=os.dup(listener.fileno()),
            me=peer,
            requests=LedgerRequest,
            on_request=ledger.on_request,
        )
        link = Link(context, path=path, service="ledger", me=peer, replies=LedgerReply)
        records = Records(link, Outbox(folder, role="worker", incarnation=peer.incarnation))
        try:
            async with asyncio.timeout(20):
                await link.opened(timeout_s=5)
                await work(House(folder, ledger, records))
        finally:
            await records.close(timeout_s=0.01)
            link.close()
            hub.close()
            listener.close()
            context.destroy(linger=0)

    with TemporaryDirectory(prefix="cvr-") as folder:
        yield lambda work: asyncio.run(scene(work, Path(folder)))


Play = Callable[[Callable[[House], Awaitable[None]]], None]


async def until(holds: Callable[[], bool]) -> None:
    ends = asyncio.get_running_loop().time() + 10
    while not holds():
        assert asyncio.get_running_loop().time() < ends, "it did not come true"
        await asyncio.sleep(0.002)


def test_the_first_batch_travels_alone_and_then_several_are_under_way(play: Play) -> None:
    async def work(house: House) -> None:
        house.record(10 * MAX_BATCH)
        await until(lambda: len(house.ledger.appends) == 1)
        with pytest.raises(AskTimeout):
            await house.records.flush(timeout_s=0.1)
        assert len(house.ledger.appends) == 1

        house.ledger.commit()

        await until(lambda: len(house.ledger.appends) == MAX_UNDER_WAY)
        firsts = [append.first for append, _ in house.ledger.appends]
        assert firsts == [1 + MAX_BATCH * number for number in range(1, MAX_UNDER_WAY + 1)]

    play(work)


def test_after_a_refusal_everything_not_committed_travels_again_in_order(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.05)

    async def work(house: House) -> None:
        house.record(1)
        await until(lambda: len(house.ledger.appends) == 1)
        house.ledger.commit()
        await house.records.flush(timeout_s=5)
        house.record(2 * MAX_BATCH)
        await until(lambda: len(house.ledger.appends) == 2)

        house.ledger.refuse()
        house.ledger.refuse()

        await until(lambda: len(house.ledger.appends) == 2)
        assert [append.first for append, _ in house.ledger.appends] == [2, 2 + MAX_BATCH]
        house.ledger.commit()
        house.ledger.commit()
        await house.records.flush(timeout_s=5)
        assert house.records.backlog == 0

    play(work)


def test_a_query_comes_after_everything_that_was_recorded_before_it(play: Play) -> None:
    async def work(house: House) -> None:
        house.record(3 * MAX_BATCH)
        asked = asyncio.create_task(house.records.query(TotalsQuery(), timeout_s=10))
        seen = 0
        while seen < 3 * MAX_BATCH:
            await until(lambda: len(house.ledger.appends) > 0)
            assert not house.ledger.queries
            seen = house.ledger.commit()

        await until(lambda: len(house.ledger.queries) == 1)
        house.ledger.queries[0].reply(TOTALS)
        assert await asked == TOTALS

    play(work)


def test_records_too_large_for_one_message_travel_in_several(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(session, "MAX_BODY_BYTES", 2_000)

    async def work(house: House) -> None:
        house.record(100)
        flushed = asyncio.create_task(house.records.flush(timeout_s=15))
        while not flushed.done():
            await until(lambda: len(house.ledger.appends) > 0 or flushed.done())
            if house.ledger.appends:
                house.ledger.commit()

        await flushed
        assert house.records.backlog == 0

    play(work)


def test_what_was_not_committed_is_left_in_the_spool(play: Play) -> None:
    async def work(house: House) -> None:
        house.record(3)

        await house.records.close(timeout_s=0.05)

        assert [path.suffix for path in house.folder.iterdir() if "worker" in path.name] == [".spool"]

    play(work)
