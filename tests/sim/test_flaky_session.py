"""Two sessions over a link that drops, duplicates, delays and reorders: every ask is answered, and exactly once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from flaky_link import Faults, FlakyLink, VirtualTime

from covey.protocol.ids import Incarnation
from covey.protocol.peer import Owner, Peer
from covey.protocol.session import Session
from covey.protocol.session_events import Answered, Asked, Event, Opened, Told
from covey.protocol.session_states import State

BEAT_S = 1.0
CALM_S = 60.0
"""From here on nothing goes wrong any more, so that everything comes to its end."""
LIMIT_S = 600.0
ASKS = 120

FAULTS = {
    "perfect": Faults(),
    "drop": Faults(drop=0.2, delay=0.05),
    "duplicate": Faults(duplicate=0.3, delay=0.05),
    "reorder": Faults(delay=0.2, reorder=0.3),
    "all": Faults(drop=0.1, duplicate=0.1, delay=0.2, reorder=0.2),
    "terrible": Faults(drop=0.5, duplicate=0.3, delay=1.0, reorder=0.5),
}


def peer(name: str, life: int = 1) -> Peer:
    return Peer(
        role=name, name=name, incarnation=Incarnation(f"{name}-{life}"), owner=Owner(pid=1, start_ticks=1, boot_id="b")
    )


class World:
    """A client that asks and tells at random moments, and a server that answers each after a while of its own."""

    def __init__(self, seed: int, faults: Faults, *, kills: int = 0, window: int = 8) -> None:
        self.random = random.Random(f"world {seed}")
        self.time = VirtualTime()
        self.window = window
        self.client = Session(peer("client"), opens=True, window=window)
        self.life = 1
        self.server = Session(peer("server"), opens=False, window=window)
        self.up = FlakyLink(f"up {seed}", faults, self.time, self._at_server)
        self.down = FlakyLink(f"down {seed}", faults, self.time, self._at_client)
        self.asked: dict[int, int] = {}
        self.answers: Counter[int] = Counter()
        self.wrong: list[tuple[int, int]] = []
        self.carried_out: Counter[tuple[int, int]] = Counter()
        self.first_seen: dict[int, list[int]] = {}
        self.told: Counter[int] = Counter()
        for number in range(ASKS):
            self.time.call_in(self.random.random() * 30, lambda number=number: self._ask(number))
            self.time.call_in(self.random.random() * 30, lambda number=number: self._tell(number))
        for _ in range(kills):
            self.time.call_in(self.random.random() * 40, self._kill_server)
        self.time.call_in(CALM_S, self._calm)
        self.up.put(self.client.connected())
        self._beat()

    def is_done(self) -> bool:
        """Whether the client has asked everything and waits for nothing."""
        return len(self.asked) == ASKS and not self.client.unanswered

    def _ask(self, number: int) -> None:
        ask_id, out = self.client.ask(msgspec.msgpack.encode(number))
        self.asked[ask_id] = number
        self.up.put(out)

    def _tell(self, number: int) -> None:
        self.up.put(self.client.tell(msgspec.msgpack.encode(number)))

    def _beat(self) -> None:
        self.up.put(self.client.beat())
        self.down.put(self.server.beat())
        self.time.call_in(BEAT_S, self._beat)

    def _kill_server(self) -> None:
        """Nobody says goodbye; what is under way is lost, and the transport stands again at once."""
        self.life += 1
        self.server = Session(peer("server", self.life), opens=False, window=self.window)
        self.up.cut()
        self.down.cut()
        self.up.put(self.client.connected())

    def _calm(self) -> None:
        self.up.is_faulty = self.down.is_faulty = False

    def _at_server(self, frame: bytes) -> None:
        events, out = self.server.receive(frame, self.time.now)
        self.down.put(out)
        for event in events:
            self._happened_at_server(event)

    def _happened_at_server(self, event: Event) -> None:
        match event:
            case Asked(id=ask_id, body=body):
                life = self.life
                self.carried_out[life, ask_id] += 1
                seen = self.first_seen.setdefault(life, [])
                if ask_id not in seen:
                    seen.append(ask_id)
                self.time.call_in(self.random.expovariate(2.0), lambda: self._answer(life, ask_id, body))
            case Told(body=body):
                self.told[msgspec.msgpack.decode(body, type=int)] += 1
            case _:
                pass

    def _answer(self, life: int, ask_id: int, body: bytes) -> None:
        if life == self.life:
            number = msgspec.msgpack.decode(body, type=int)
            self.down.put(self.server.reply(ask_id, msgspec.msgpack.encode(-number)))

    def _at_client(self, frame: bytes) -> None:
        events, out = self.client.receive(frame, self.time.now)
        self.up.put(out)
        for event in events:
            if isinstance(event, Answered):
                self.answers[event.id] += 1
                answer = msgspec.msgpack.decode(event.body, type=int)
                if answer != -self.asked[event.id]:
                    self.wrong.append((event.id, answer))
            else:
                assert isinstance(event, Opened)


def check(world: World) -> None:
    """What holds on every link."""
    assert world.time.run(until=world.is_done, limit_s=LIMIT_S), f"{world.client.unanswered} asks were never answered"
    assert world.answers == Counter(dict.fromkeys(world.asked, 1))
    assert not world.wrong
    assert not [number for number, times in world.told.items() if times > 1], "a tell came twice"
    # No life carries an ask out twice: its answer is remembered.
    assert set(world.carried_out.values()) == {1}
    # Each life sees asks in the order they were made.
    assert all(seen == sorted(seen) for seen in world.first_seen.values())


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_every_ask_is_answered_exactly_once(faults: Faults, seed: int) -> None:
    world = World(seed, faults)

    check(world)

    assert set(world.carried_out) == {(1, ask_id) for ask_id in world.asked}


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_every_ask_is_answered_exactly_once_although_the_server_is_killed(faults: Faults, seed: int) -> None:
    world = World(seed, faults, kills=4)

    check(world)

    assert {ask_id for _, ask_id in world.carried_out} == set(world.asked)


@pytest.mark.parametrize("seed", range(10))
def test_without_faults_nothing_is_found_lost_and_nothing_is_repeated(seed: int) -> None:
    world = World(seed, Faults(delay=0.1))

    check(world)

    assert world.server.losses == world.client.losses == 0
    assert sum(world.told.values()) == ASKS - world.client.dropped_tells


@pytest.mark.parametrize("seed", range(20))
def test_a_draining_client_ends_after_its_last_answer_on_a_bad_link(seed: int) -> None:
    world = World(seed, replace(FAULTS["all"]))
    world.time.run(until=lambda: len(world.asked) == ASKS, limit_s=LIMIT_S)

    world.up.put(world.client.drain())

    assert world.time.run(until=lambda: world.client.state is State.CLOSED, limit_s=LIMIT_S)
    assert world.answers == Counter(dict.fromkeys(world.asked, 1))


def test_the_faults_of_the_link_do_happen() -> None:
    world = World(1, FAULTS["all"])

    check(world)

    for link in (world.up, world.down):
        assert min(link.dropped, link.duplicated, link.overtaken) > 5
    assert world.server.losses > 0
