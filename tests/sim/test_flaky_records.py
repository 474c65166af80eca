"""Records over a bad link, to a ledger that refuses and dies: each is kept exactly once."""

from __future__ import annotations

import random
from typing import cast

import pytest
from flaky_link import Faults, FlakyLink, VirtualTime

from covey.protocol.frames import BodyDecoder
from covey.protocol.ids import Incarnation, SessionId
from covey.protocol.messages.base import Failed, Wire
from covey.protocol.messages.ledger import Append, Committed, LedgerReply, LedgerRequest, SessionEnded
from covey.protocol.peer import Owner, Peer
from covey.protocol.session import Session, body_of
from covey.protocol.session_events import Answered, Asked
from covey.storage.inbox import Inbox
from covey.supervisor.batches import Batches

RECORDS = 300
CALM_S = 40.0
LIMIT_S = 600.0
SENDER = Incarnation("worker-1")

FAULTS = {
    "perfect": Faults(),
    "drop": Faults(drop=0.2, delay=0.05),
    "all": Faults(drop=0.1, duplicate=0.1, delay=0.2, reorder=0.2),
}


def peer(name: str, life: int = 1) -> Peer:
    return Peer(
        role=name, name=name, incarnation=Incarnation(f"{name}-{life}"), owner=Owner(pid=1, start_ticks=1, boot_id="b")
    )


def record(number: int) -> SessionEnded:
    return SessionEnded(session=SessionId(str(number)), outcome="done", at_ms=number)


class Ledger:
    """What outlives the ledger's process (`rows`, `committed`), and one life of it with the rules of the real one."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.rows: list[int] = []
        self.committed: dict[Incarnation, int] = {}
        self.refusals = 0
        self.may_refuse = True
        self.begin()

    def begin(self) -> None:
        """A new life: what was not committed is gone."""
        self._inbox = Inbox(self.committed)
        self._last = dict(self.committed)

    def submit(self, append: Append) -> str | None:
        """Take the batch, or say why not. As the real one: an unknown sender may begin anywhere."""
        before = self._last.get(SENDER, append.first - 1)
        if self.may_refuse and self._chance.random() < 0.2:
            self.refusals += 1
            return "MailboxFull"
        if append.first > before + 1:
            self.refusals += 1
            return "SequenceGap"
        self._last[SENDER] = max(before, append.first + len(append.records) - 1)
        return None

    def commit(self, append: Append) -> int:
        """Write what is new; up to which number the sender's records are kept."""
        batch = [(SENDER, append.first + at, record) for at, record in enumerate(append.records)]
        sorted_out = self._inbox.sort(batch, is_complete=False)
        self.rows += [int(cast(SessionEnded, record).session) for _, _, record in sorted_out.fresh]
        self._inbox.advance(sorted_out.advanced)
        self.committed = self._inbox.all()
        return self._inbox.committed(SENDER)


class World:
    """A sender with the real rules for batches, the real sessions, and a ledger that is killed now and then."""

    def __init__(self, seed: int, faults: Faults, *, kills: int) -> None:
        self.random = random.Random(f"records {seed}")
        self.time = VirtualTime()
        self.batches = Batches(most=16)
        self.under_way: dict[int, Append] = {}
        self.client = Session(peer("client"), opens=True)
        self.life = 1
        self.server = Session(peer("ledger"), opens=False)
        self.ledger = Ledger(random.Random(f"ledger {seed}"))
        self.up = FlakyLink(f"up {seed}", faults, self.time, self._at_ledger)
        self.down = FlakyLink(f"down {seed}", faults, self.time, self._at_sender)
        for number in range(1, RECORDS + 1):
            self.time.call_in(number * 0.05 * self.random.random(), self._record)
        for _ in range(kills):
            self.time.call_in(self.random.random() * 20, self._kill_ledger)
        self.time.call_in(CALM_S, self._calm)
        self.recorded = 0
        self.up.put(self.client.connected())
        self._beat()

    def is_done(self) -> bool:
        """Whether everything is recorded and known to be kept, and every batch came back."""
        return self.recorded == RECORDS == self.batches.upto and not self.under_way

    def _record(self) -> None:
        self.recorded += 1
        self.batches.add(record(self.recorded))
        self._send()

    def _send(self) -> None:
        while (append := self.batches.next()) is not None:
            ask_id, out = self.client.ask(body_of(append))
            self.under_way[ask_id] = append
            self.up.put(out)

    def _resume(self) -> None:
        self.batches.resume()
        self._send()

    def _beat(self) -> None:
        self.up.put(self.client.beat())
        self.time.call_in(1.0, self._beat)

    def _calm(self) -> None:
        self.up.is_faulty = self.down.is_faulty = self.ledger.may_refuse = False

    def _kill_ledger(self) -> None:
        self.life += 1
        self.ledger.begin()
        self.server = Session(peer("ledger", self.life), opens=False)
        self.up.cut()
        self.down.cut()
        self.up.put(self.client.connected())

    def _at_ledger(self, frame: bytes) -> None:
        events, out = self.server.receive(frame, self.time.now)
        self.down.put(out)
        for event in events:
            if isinstance(event, Asked):
                self._submit(event.id, cast(Append, BodyDecoder(LedgerRequest).decode(event.body)))

    def _submit(self, ask_id: int, append: Append) -> None:
        refused = self.ledger.submit(append)
        if refused is not None:
            self._reply(self.life, ask_id, Failed(kind=refused, message=""))
            return
        life = self.life
        # Commits are in the order of the submissions: one thread.
        self.time.call_in(0.05, lambda: self._commit(life, ask_id, append))

    def _commit(self, life: int, ask_id: int, append: Append) -> None:
        if life == self.life:
            self._reply(life, ask_id, Committed(upto=self.ledger.commit(append)))

    def _reply(self, life: int, ask_id: int, reply: Wire) -> None:
        if life == self.life:
            self.down.put(self.server.reply(ask_id, body_of(reply)))

    def _at_sender(self, frame: bytes) -> None:
        events, out = self.client.receive(frame, self.time.now)
        self.up.put(out)
        for event in events:
            if isinstance(event, Answered):
                self._answered(event)

    def _answered(self, answer: Answered) -> None:
        self.under_way.pop(answer.id)
        reply = BodyDecoder(LedgerReply).decode(answer.body)
        if isinstance(reply, Committed):
            self.batches.committed(reply.upto)
            self._send()
        else:
            self.batches.refused()
        if self.batches.is_to_be_resumed:
            self.time.call_in(0.5, self._resume)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kills", [0, 5], ids=["the ledger lives", "the ledger is killed"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_every_record_is_kept_exactly_once_and_in_order(faults: Faults, kills: int, seed: int) -> None:
    world = World(seed, faults, kills=kills)

    assert world.time.run(until=world.is_done, limit_s=LIMIT_S), f"only {world.batches.upto} records were kept"

    assert world.ledger.rows == list(range(1, RECORDS + 1))
    assert world.ledger.refusals > 0
    assert world.client.unanswered == 0
