"""The storm of `tests/kill/storm` in virtual time, by many seeds: clients die, and the broker with what is on its way.

The broker's real book; around it clients that ask, call, break off, give up and die, and a provider that notices a
closed connection up to `NOTICES_S` later than everybody else: what it counts is what has to stay within the limit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from flaky_link import VirtualTime

from covey.actors.limits.actions import Asked, Died, End, Event, GivenBack, Grant, Lose, Overdue, Refuse, Ticked
from covey.actors.limits.book import CUT_LINGER_S, Book
from covey.actors.limits.claim import Claim
from covey.actors.limits.terms import Terms
from covey.protocol.ids import BudgetKey, CallId, Incarnation
from covey.protocol.messages.broker import Priority
from covey.protocol.peer import Owner, Peer
from covey.storage.leases import LeaseEnded, LeaseGranted, LifeBegan, Outstanding

CLIENTS = 50
STORM_S = 30.0
LIMIT_S = 200.0
WIRE_S = 0.002
DEATH_HEARD_S = 0.005
NOTICES_S = 0.8 * CUT_LINGER_S
RESTART_S = (0.0, 0.05)
KILL_EVERY_S, BROKER_EVERY_S = 0.2, 1.0
CUT, GIVES_UP = 0.2, 0.15
KEY = BudgetKey("sim:1")


@dataclass
class Client:
    """One life of one program."""

    number: int
    peer: Peer
    is_alive: bool = True
    calls: int = 0
    served: int = 0
    unanswered: dict[CallId, Event] = field(default_factory=dict)
    """What a successor of the broker hears again, by call: the latest word counts."""
    at_provider: set[CallId] = field(default_factory=set)


class World:
    """Everything, in one time."""

    def __init__(self, seed: int, limit: int) -> None:
        self.time = VirtualTime()
        self.limit = limit
        self.in_flight: set[CallId] = set()
        self.peak = 0
        self.is_calm = False
        self.broker_deaths = self.client_deaths = 0
        self.clients: dict[int, Client] = {}
        self._chance = random.Random(seed)
        self._lives = 0
        self._journal = Outstanding()
        self._journal.apply(LifeBegan(life="life"))
        self._broker_life = 0
        self._book: Book | None = Book({"sim": Terms(limit=limit)})
        self._tick()
        for number in range(CLIENTS):
            self._be_born(number)
        self._soon(KILL_EVERY_S, self._kill_somebody)
        self._soon(BROKER_EVERY_S, self._kill_broker)
        self.time.call_in(STORM_S, self._be_calm)

    def is_over(self) -> bool:
        """Whether all of the last lives have been served since it is calm, and nobody holds or waits."""
        return self.is_calm and all(one.served for one in self.clients.values()) and self.left() == (0, 0, 0, 0)

    def left(self) -> tuple[int, int, int, int]:
        """Slots and waiters at the broker, leases on file, calls at the provider."""
        if self._book is None:
            return -1, -1, -1, -1
        account = self._book.accounts.get(KEY)
        slots, queued = (account.budget.in_flight, account.queued) if account is not None else (0, 0)
        return slots, queued, len(self._journal.leases), len(self.in_flight)

    # --- clients -----------------------------------------------------------------------------------------------------

    def _be_born(self, number: int) -> None:
        self._lives += 1
        owner = Owner(pid=self._lives, start_ticks=self._lives, boot_id="b")
        peer = Peer(role="client", name=str(number), incarnation=Incarnation(str(self._lives)), owner=owner)
        self.clients[number] = client = Client(number, peer)
        self._ask(client)

    def _ask(self, client: Client) -> None:
        if not client.is_alive or (self.is_calm and client.served):
            return
        client.calls += 1
        call = CallId(f"{client.peer.incarnation}/{client.calls}")
        self._tell_broker(client, call, Asked(_claim(call, client.peer)))
        if self._chance.random() < GIVES_UP:
            self.time.call_in(self._chance.uniform(0.0, 1.0), lambda: self._give_up(client, call))

    def _give_up(self, client: Client, call: CallId) -> None:
        if client.is_alive and isinstance(client.unanswered.get(call), Asked):
            self._tell_broker(client, call, GivenBack(call, asker=client.peer.incarnation))
            self._ask(client)

    def _granted(self, client: Client, call: CallId) -> None:
        if not client.is_alive or not isinstance(client.unanswered.get(call), Asked):
            return
        del client.unanswered[call]
        self._wire(lambda: self._arrives(client, call))

    def _arrives(self, client: Client, call: CallId) -> None:
        """The call is at the provider, also if its sender has died since."""
        self.in_flight.add(call)
        self.peak = max(self.peak, len(self.in_flight))
        if not client.is_alive:
            self._closed(call)
            return
        client.at_provider.add(call)
        takes_s = self._chance.choice([0.02, 0.03, 0.08, 0.4])
        if self._chance.random() < CUT:
            self.time.call_in(takes_s / 2, lambda: self._ended(client, call, was_cut=True))
        else:
            self.time.call_in(takes_s, lambda: self._ended(client, call, was_cut=False))

    def _ended(self, client: Client, call: CallId, *, was_cut: bool) -> None:
        if not client.is_alive:
            return
        client.at_provider.discard(call)
        if was_cut:
            self._closed(call)
        else:
            self.in_flight.discard(call)
            client.served += 1
        self._tell_broker(client, call, GivenBack(call, was_cut, asker=client.peer.incarnation))
        self._ask(client)

    def _closed(self, call: CallId) -> None:
        self.time.call_in(self._chance.uniform(0.0, NOTICES_S), lambda: self.in_flight.discard(call))

    # --- the broker --------------------------------------------------------------------------------------------------

    def _tell_broker(self, client: Client, call: CallId, event: Event) -> None:
        client.unanswered[call] = event
        self._to_broker(client, call, event)

    def _to_broker(self, client: Client, call: CallId, event: Event) -> None:
        life = self._broker_life

        def arrive() -> None:
            if life != self._broker_life or self._book is None:
                return
            self._decide(event)
            if isinstance(event, GivenBack) and client.unanswered.get(call) == event:
                del client.unanswered[call]

        # One delay for all: a link keeps the order.
        self.time.call_in(WIRE_S, arrive)

    def _decide(self, event: Event) -> None:
        assert self._book is not None, "a dead broker decides nothing"
        for action in self._book.decide(event, self.time.now):
            match action:
                case Grant(lease=lease):
                    if action.is_new:
                        self._journal.apply(LeaseGranted(lease=lease, in_flight=action.in_flight))
                    self._answer(lease.holder, lease.call)
                case End(lease=lease) | Lose(lease=lease) | Overdue(lease=lease):
                    self._journal.apply(LeaseEnded(call=lease.call))
                case Refuse(call=call):
                    assert not isinstance(self._unanswered(call), Asked), "nobody is refused who still wants it"

    def _answer(self, holder: Peer, call: CallId) -> None:
        client, life = self.clients[int(holder.name)], self._broker_life

        def arrive() -> None:
            if life == self._broker_life:
                self._granted(client, call)

        if client.peer == holder:
            self.time.call_in(WIRE_S, arrive)

    def _unanswered(self, call: CallId) -> Event | None:
        return next((one.unanswered[call] for one in self.clients.values() if call in one.unanswered), None)

    def _start_broker(self) -> None:
        """As the broker's own start: every lease is known before anything else, and what lingered is outwaited."""
        book = Book({"sim": Terms(limit=self.limit)})
        book.restore(self._journal, self.time.now)
        self.time.call_in(CUT_LINGER_S, lambda: self._serve(book))

    def _serve(self, book: Book) -> None:
        self._book = book
        alive = {client.peer.owner for client in self.clients.values() if client.is_alive}
        for owner in {lease.holder.owner for lease in self._journal.leases.values()} - alive:
            self._decide(Died(owner))
        for client in self.clients.values():
            for call, event in client.unanswered.items():
                self._to_broker(client, call, event)

    def _tick(self) -> None:
        if self._book is not None:
            self._decide(Ticked())
        self.time.call_in(0.01, self._tick)

    # --- the storm ---------------------------------------------------------------------------------------------------

    def _kill_somebody(self) -> None:
        if self.is_calm:
            return
        client = self.clients[self._chance.randrange(CLIENTS)]
        client.is_alive = False
        self.client_deaths += 1
        client.unanswered.clear()
        for call in client.at_provider:
            self._closed(call)
        self.time.call_in(self._chance.uniform(0.0, DEATH_HEARD_S), lambda: self._heard(client.peer.owner))
        self._be_born(client.number)
        self._soon(KILL_EVERY_S, self._kill_somebody)

    def _heard(self, owner: Owner) -> None:
        if self._book is not None:
            self._decide(Died(owner))

    def _kill_broker(self) -> None:
        if self.is_calm:
            return
        if self._book is not None:
            self.broker_deaths += 1
            self._broker_life += 1
            self._book = None
            self.time.call_in(self._chance.uniform(*RESTART_S), self._start_broker)
        self._soon(BROKER_EVERY_S, self._kill_broker)

    def _be_calm(self) -> None:
        self.is_calm = True
        for client in self.clients.values():
            client.served = 0

    def _soon(self, every_s: float, work: Callable[[], None]) -> None:
        self.time.call_in(self._chance.expovariate(1 / every_s), work)

    def _wire(self, work: Callable[[], None]) -> None:
        self.time.call_in(self._chance.uniform(0.0, WIRE_S), work)


def _claim(call: CallId, peer: Peer) -> Claim:
    return Claim(
        call=call,
        budget=KEY,
        provider="sim",
        base_url="http://sim.test/v1",
        model="m",
        holder=peer,
        tree=peer.name,
        priority=Priority.AGENT,
        timeout_s=None,
        hold_s=1e9,
        asked_at_ms=0,
    )


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("seed", range(25))
def test_whatever_dies_the_limit_holds_at_the_provider_and_all_are_served(seed: int, limit: int) -> None:
    world = World(seed, limit)

    assert world.time.run(until=world.is_over, limit_s=LIMIT_S), f"left: {world.left()}"

    assert world.peak == limit
    assert world.broker_deaths > 5
    assert world.client_deaths > 50
