"""A session that asks for a call now and then, beside forty siblings that always want another: a bound for its waits.

Simulated: the broker's real book in virtual time. A slot turns over at least once per service time S. Before a
newcomer no tree gets a second turn, but for the one turn in four that ageing gives to whoever has waited longest. So
with L slots and T noisy trees the wait is at most k = ceil((T + T / 3 + 1) / L) service times: 55 where each of forty
siblings is a session of its own and there is one slot, 3 where they are the children of one parent; however many calls
each keeps waiting. A person waits 2.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from flaky_link import VirtualTime

from covey.actors.limits.actions import Action, Asked, GivenBack, Grant, Refuse
from covey.actors.limits.book import Book
from covey.actors.limits.claim import Claim
from covey.actors.limits.fair_queue import AGED_PASSES
from covey.actors.limits.terms import Terms
from covey.protocol.ids import BudgetKey, CallId, Incarnation
from covey.protocol.messages.broker import Priority
from covey.protocol.peer import Owner, Peer

NOISY = 40
QUIET_CALLS = 50
LONGEST_S = 2.0
"""S: no call takes longer."""
QUIET = "quiet"

ME = Peer(role="client", name="c", incarnation=Incarnation("c-1"), owner=Owner(pid=1, start_ticks=1, boot_id="b"))


class Fleet:
    """Everybody at one account. A call takes as long as chance has it, S at most; then its session asks again."""

    def __init__(self, *, limit: int, seed: int, quiet_class: Priority = Priority.AGENT) -> None:
        self.time = VirtualTime()
        self.waits: list[float] = []
        self.turns = 0
        self._book = Book({"sim": Terms(limit=limit)})
        self._chance = random.Random(seed)
        self._quiet_class = quiet_class
        self._after: dict[CallId, Callable[[], None]] = {}
        self._made = 0

    def noisy(self, tree: str, *, calls: int) -> None:
        """A sibling that keeps so many calls waiting or running, for ever."""
        for _ in range(calls):
            self._ask(tree, Priority.AGENT, lambda: self.noisy(tree, calls=1))

    def quiet(self) -> None:
        """The quiet session: a call, a pause, and again."""
        pause_s = self._chance.expovariate(1 / (5 * LONGEST_S))
        self._ask(QUIET, self._quiet_class, lambda: self.time.call_in(pause_s, self.quiet))

    def _ask(self, tree: str, priority: Priority, after: Callable[[], None]) -> None:
        self._made += 1
        claim = Claim(
            call=CallId(f"{tree}/{self._made}"),
            budget=BudgetKey("sim:1"),
            provider="sim",
            base_url="http://sim.test/v1",
            model="m",
            holder=ME,
            tree=tree,
            priority=priority,
            timeout_s=None,
            hold_s=1e9,
            asked_at_ms=0,
        )
        self._after[claim.call] = after
        self._do(self._book.decide(Asked(claim), self.time.now))

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            assert not isinstance(action, Refuse), "nobody gives up"
            if isinstance(action, Grant):
                self.turns += 1
                if action.lease.call.startswith(QUIET):
                    self.waits.append(action.lease.waited_s)
                # Often exactly S: that is what the bound has to bear.
                took_s = LONGEST_S * min(1.0, self._chance.uniform(0.2, 2.0))
                self.time.call_in(took_s, lambda call=action.lease.call: self._end(call))

    def _end(self, call: CallId) -> None:
        self._do(self._book.decide(GivenBack(call), self.time.now))
        self._after.pop(call)()


def most_service_times(trees: int, limit: int) -> int:
    """k: a turn of each noisy tree, those that ageing takes in between, and the call that runs."""
    return math.ceil((trees + math.ceil(trees / AGED_PASSES) + 1) / limit)


def longest_wait(fleet: Fleet) -> float:
    """The quiet session's longest wait, in service times S."""
    fleet.quiet()
    assert fleet.time.run(until=lambda: len(fleet.waits) == QUIET_CALLS, limit_s=1e6)
    return max(fleet.waits) / LONGEST_S


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("backlog", [1, 8], ids=["one call each", "eight calls each"])
@pytest.mark.parametrize("limit", [1, 2, 8])
@pytest.mark.parametrize("trees", [1, 5, NOISY])
def test_a_quiet_session_waits_at_most_one_turn_of_each_noisy_tree(
    trees: int, limit: int, backlog: int, seed: int
) -> None:
    fleet = Fleet(limit=limit, seed=seed)
    for number in range(NOISY):
        fleet.noisy(f"noisy {number % trees}", calls=backlog)

    waited = longest_wait(fleet)

    assert waited <= most_service_times(trees, limit)
    assert fleet.turns > QUIET_CALLS * 4, "the noisy ones were served all the time"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limit", [1, 2])
def test_a_person_waits_at_most_two_turns_however_many_sessions_are_noisy(limit: int, seed: int) -> None:
    """One that is just being served, and the agents' share of the turns: one in a few, and never two in a row."""
    fleet = Fleet(limit=limit, seed=seed, quiet_class=Priority.INTERACTIVE)
    for number in range(NOISY):
        fleet.noisy(f"noisy {number}", calls=8)

    assert longest_wait(fleet) <= 2


@pytest.mark.parametrize("seed", range(3))
def test_a_sibling_of_the_same_tree_waits_at_most_one_turn_of_each_other(seed: int) -> None:
    """Children of one parent, each with one call at a time: first come, first served."""
    fleet = Fleet(limit=1, seed=seed)
    for _ in range(NOISY):
        fleet.noisy(QUIET, calls=1)
    fleet.time.run(until=lambda: len(fleet.waits) >= 20 * NOISY, limit_s=1e6)

    assert max(fleet.waits) / LONGEST_S <= NOISY
