"""The broker's rules, one situation a test; `test_book_model` tries all the others."""

from __future__ import annotations

from covey.actors.limits.actions import (
    Action,
    Asked,
    Died,
    End,
    GivenBack,
    Grant,
    Left,
    Limited,
    Lose,
    Overdue,
    Pass,
    Refuse,
    Reject,
    Renewed,
    Revoked,
    Ticked,
    Unwatch,
    Watch,
)
from covey.actors.limits.book import CUT_LINGER_S, REMOTE_TTL_S, Book
from covey.actors.limits.claim import Claim
from covey.actors.limits.terms import Terms
from covey.actors.limits.views import view_of
from covey.protocol.ids import AgentId, BudgetKey, CallId, Incarnation
from covey.protocol.messages.broker import Priority, Refusal
from covey.protocol.peer import REMOTE, Owner, Peer
from covey.storage.leases import LeaseGranted, Outstanding

KEY = BudgetKey("zai:1")


def terms(limits: dict[str, int]) -> dict[str, Terms]:
    return {provider: Terms(limit=limit) for provider, limit in limits.items()}


def peer(number: int = 1, life: str = "") -> Peer:
    owner = Owner(pid=number, start_ticks=number, boot_id="boot")
    return Peer(role="client", name=f"client {number}", incarnation=Incarnation(f"inc_{number}{life}"), owner=owner)


def distant(number: int = 1) -> Peer:
    owner = Owner(pid=number, start_ticks=number, boot_id=f"{REMOTE}laptop:boot")
    return Peer(role="client", name="far", incarnation=Incarnation(f"far_{number}"), owner=owner)


def ask(
    call: str,
    holder: Peer | None = None,
    *,
    provider: str = "zai",
    priority: Priority = Priority.AGENT,
    timeout_s: float | None = None,
    hold_s: float = 100.0,
    agent: str | None = None,
) -> Asked:
    return Asked(
        Claim(
            call=CallId(call),
            budget=BudgetKey(f"{provider}:1"),
            provider=provider,
            base_url="https://api.z.ai/v4",
            model="glm",
            holder=holder or peer(),
            tree="tree",
            priority=priority,
            timeout_s=timeout_s,
            hold_s=hold_s,
            asked_at_ms=1000,
            agent=AgentId(agent) if agent else None,
        )
    )


def grants(actions: list[Action]) -> list[str]:
    return [action.lease.call for action in actions if isinstance(action, Grant)]


def refusals(actions: list[Action]) -> list[tuple[str, Refusal]]:
    return [(action.call, action.reason) for action in actions if isinstance(action, Refuse)]


def book_with(limit: int = 1, *asks: Asked, queue_bound: int = 100) -> Book:
    book = Book(terms({"zai": limit}), queue_bound=queue_bound)
    for one in asks:
        book.decide(one, 0.0)
    return book


def test_a_free_slot_is_granted_at_once_and_its_holder_watched_before() -> None:
    actions = book_with().decide(ask("a"), 5.0)

    assert isinstance(actions[0], Watch)
    assert isinstance(actions[1], Grant)
    assert actions[1].is_new
    assert (actions[1].limit, actions[1].in_flight, actions[1].lease.waited_s) == (1, 1, 0.0)
    assert actions[1].lease.expires_at == 105.0


def test_at_the_limit_a_call_waits_and_gets_the_slot_that_is_given_back() -> None:
    book = book_with(1, ask("a"), ask("b"))

    actions = book.decide(GivenBack(CallId("a")), 2.5)

    assert [type(action) for action in actions] == [End, Grant]
    assert isinstance(actions[1], Grant)
    assert actions[1].lease.call == "b"
    assert actions[1].lease.waited_s == 2.5
    assert actions[1].lease.started_at_ms == 3500


def test_a_repeated_ask_of_a_holder_is_granted_again_and_takes_nothing() -> None:
    book = book_with(1, ask("a"))

    (again,) = book.decide(ask("a"), 50.0)

    assert isinstance(again, Grant)
    assert not again.is_new
    assert again.lease.expires_at == 100.0
    assert book.accounts[KEY].budget.granted == 1


def test_a_repeated_ask_of_a_waiter_keeps_its_place_and_its_deadline() -> None:
    book = book_with(1, ask("a"), ask("b", timeout_s=10.0), ask("c"))

    assert book.decide(ask("b", timeout_s=10.0), 9.0) == []
    assert refusals(book.decide(Ticked(), 10.0)) == [("b", Refusal.TIMEOUT)]


def test_a_call_of_another_process_is_not_taken_over() -> None:
    book = book_with(1, ask("a", peer(1)))

    assert book.decide(ask("a", peer(2)), 1.0) == [Reject(CallId("a"), peer(2).incarnation)]
    assert book.accounts[KEY].budget.in_flight == 1


def test_a_second_release_and_one_of_an_unknown_call_change_nothing() -> None:
    book = book_with(1, ask("a"), ask("b"), ask("c"))
    book.decide(GivenBack(CallId("a")), 1.0)

    assert book.decide(GivenBack(CallId("a")), 2.0) == []
    assert book.decide(GivenBack(CallId("nobody")), 2.0) == []
    assert book.accounts[KEY].budget.in_flight == 1


def test_an_ask_that_arrives_after_its_release_takes_no_slot() -> None:
    book = book_with(1)
    book.decide(GivenBack(CallId("a")), 0.0)

    actions = book.decide(ask("a"), 1.0)

    assert refusals(actions) == [("a", Refusal.WITHDRAWN)]
    assert book.accounts[KEY].budget.in_flight == 0


def test_a_waiter_that_gives_up_is_told_so_and_leaves_the_queue() -> None:
    book = book_with(1, ask("a"), ask("b"))

    assert refusals(book.decide(GivenBack(CallId("b")), 1.0)) == [("b", Refusal.WITHDRAWN)]
    assert grants(book.decide(GivenBack(CallId("a")), 1.0)) == []


def test_a_waiter_that_is_late_is_not_granted_by_the_event_that_frees_a_slot() -> None:
    book = book_with(1, ask("a"), ask("b", timeout_s=10.0))
    assert book.next_deadline() == 10.0

    actions = book.decide(GivenBack(CallId("a")), 10.5)

    assert refusals(actions) == [("b", Refusal.TIMEOUT)]
    assert grants(actions) == []


def test_a_timeout_of_zero_does_not_wait() -> None:
    book = book_with(1, ask("a"))

    assert refusals(book.decide(ask("b", timeout_s=0.0), 0.0)) == [("b", Refusal.TIMEOUT)]
    assert book.queued == 0


def test_over_the_bound_of_the_queue_an_ask_is_refused_and_was_never_in_it() -> None:
    book = book_with(1, ask("a"), ask("b"), ask("c"), queue_bound=2)

    (refused,) = book.decide(ask("d"), 0.0)

    assert isinstance(refused, Refuse)
    assert (refused.reason, refused.queued) == (Refusal.QUEUE_FULL, 2)
    assert book.queued == 2


def test_a_full_queue_of_one_budget_does_not_refuse_a_free_slot_of_another() -> None:
    book = Book(terms({"zai": 1, "other": 1}), queue_bound=1)
    book.decide(ask("a"), 0.0)
    book.decide(ask("b"), 0.0)

    assert grants(book.decide(ask("c", provider="other"), 0.0)) == ["c"]


def test_a_dead_process_loses_its_slots_and_its_places_in_one_step() -> None:
    book = book_with(2, ask("a", peer(1)), ask("b", peer(2)), ask("c", peer(1)), ask("d", peer(3)))

    actions = book.decide(Died(peer(1).owner), 1.0)

    assert [action.lease.call for action in actions if isinstance(action, Lose)] == ["a"]
    assert refusals(actions) == [("c", Refusal.WITHDRAWN)]
    assert grants(actions) == []
    assert grants(book.decide(Ticked(), 1.0 + CUT_LINGER_S)) == ["d"]


def test_the_slot_of_a_call_that_was_cut_is_nobodys_for_a_moment() -> None:
    book = book_with(1, ask("a"), ask("b"))

    assert grants(book.decide(GivenBack(CallId("a"), was_cut=True), 2.0)) == []
    assert book.accounts[KEY].budget.in_flight == 1
    assert book.next_deadline() == 2.0 + CUT_LINGER_S
    assert grants(book.decide(Ticked(), 2.0 + CUT_LINGER_S)) == ["b"]
    assert book.accounts[KEY].budget.in_flight == 1


def test_a_waiter_that_gives_up_leaves_nothing_behind() -> None:
    book = book_with(1, ask("a"), ask("b"))

    book.decide(GivenBack(CallId("b"), was_cut=True), 2.0)

    assert book.accounts[KEY].budget.in_flight == 1
    assert grants(book.decide(GivenBack(CallId("a")), 3.0)) == []
    assert book.accounts[KEY].budget.in_flight == 0


def test_an_incarnation_that_leaves_gives_back_its_own_and_not_its_process_neighbours() -> None:
    book = book_with(3, ask("a", peer(1, "x")), ask("b", peer(1, "y")))

    actions = book.decide(Left(peer(1, "x")), 1.0)

    assert [type(action) for action in actions] == [End]
    assert list(book.accounts[KEY].budget.leases) == ["b"]
    assert book.decide(Left(peer(1, "y")), 1.0)[-1] == Unwatch(peer(1).owner)


def test_a_living_holder_keeps_its_slot_until_its_own_deadline_and_no_longer() -> None:
    book = book_with(1, ask("a", hold_s=30.0), ask("b"))

    assert book.decide(Ticked(), 29.9) == []
    actions = book.decide(Ticked(), 30.0)

    assert isinstance(actions[0], Overdue)
    assert grants(actions) == ["b"]


def test_a_lowered_limit_lets_leases_live_and_grants_nothing_until_they_are_below_it() -> None:
    book = book_with(3, ask("a"), ask("b"), ask("c"), ask("d"))

    assert book.decide(Limited(terms({"zai": 1})), 1.0) == []
    assert grants(book.decide(GivenBack(CallId("a")), 2.0)) == []
    assert grants(book.decide(GivenBack(CallId("b")), 2.0)) == []
    assert grants(book.decide(GivenBack(CallId("c")), 2.0)) == ["d"]


def test_a_raised_limit_grants_at_once() -> None:
    book = book_with(1, ask("a"), ask("b"), ask("c"))

    assert grants(book.decide(Limited(terms({"zai": 2})), 1.0)) == ["b"]


def test_a_lifted_limit_lets_waiters_pass_and_keeps_leases_until_they_end() -> None:
    book = book_with(1, ask("a"), ask("b"))

    assert book.decide(Limited(terms({})), 1.0) == [Pass(CallId("b"), peer().incarnation)]
    assert book.decide(ask("c"), 1.0) == [Pass(CallId("c"), peer().incarnation)]
    assert [type(action) for action in book.decide(GivenBack(CallId("a")), 2.0)] == [End]


def test_a_successor_counts_what_is_outstanding_before_its_first_event() -> None:
    earlier, left = book_with(2), Outstanding()
    for one in (ask("a", peer(1)), ask("b", peer(2))):
        for action in earlier.decide(one, 0.0):
            if isinstance(action, Grant):
                left.apply(LeaseGranted(lease=action.lease, in_flight=action.in_flight))

    successor = book_with(2)
    watches = successor.restore(left, 1.0)

    assert watches == [Watch(peer(1).owner), Watch(peer(2).owner)]
    assert successor.decide(ask("c", peer(3)), 1.0) == [Watch(peer(3).owner)]
    assert [type(a) for a in successor.decide(ask("a", peer(1)), 1.0)] == [Grant]
    successor.decide(Died(peer(1).owner), 2.0)
    assert grants(successor.decide(Ticked(), 2.0 + CUT_LINGER_S)) == ["c"]
    slots = successor.accounts[KEY].budget
    assert (slots.granted, slots.peak_in_flight) == (3, 2)


def test_a_view_shows_who_holds_who_waits_and_in_which_order() -> None:
    book = book_with(1, ask("a", peer(7)), ask("b"), ask("c", priority=Priority.INTERACTIVE))

    view = view_of(book.accounts[KEY], 4.0, 0, is_stopped=lambda _: False)

    assert [(one.call, one.pid, one.held_s) for one in view.holders] == [("a", 7, 4.0)]
    assert [(one.call, one.position) for one in view.waiters] == [("c", 1), ("b", 2)]
    assert (view.in_flight, view.queued, view.granted, view.peak_in_flight) == (1, 2, 1, 1)
    assert (view.oldest_wait_s, view.wait_p50_ms) == (4.0, 0.0)


def test_a_revoked_agent_waits_no_longer_and_gets_nothing_any_more() -> None:
    book = book_with(1, ask("a"), ask("b", agent="ag_1"), ask("c"))

    actions = book.decide(Revoked((AgentId("ag_1"),)), 2.0)

    assert refusals(actions) == [("b", Refusal.REVOKED)]
    assert refusals(book.decide(ask("d", agent="ag_1"), 3.0)) == [("d", Refusal.REVOKED)]
    assert grants(book.decide(GivenBack(CallId("a")), 4.0)) == ["c"]


def test_a_process_of_another_host_is_not_watched_and_loses_its_slot_after_the_ttl_and_not_before() -> None:
    book = book_with(1)
    (grant,) = book.decide(ask("a", distant()), 0.0)
    assert isinstance(grant, Grant)
    book.decide(ask("b"), 0.0)

    assert book.next_deadline() == REMOTE_TTL_S
    assert book.decide(Ticked(), REMOTE_TTL_S - 0.001) == []
    (lost,) = book.decide(Ticked(), REMOTE_TTL_S)

    assert isinstance(lost, Lose)
    assert grants(book.decide(Ticked(), REMOTE_TTL_S + CUT_LINGER_S)) == ["b"]


def test_a_renewal_keeps_the_slots_of_another_host_for_as_long_again() -> None:
    book = book_with(1, ask("a", distant()))

    for at in (20.0, 40.0, 60.0):
        assert book.decide(Renewed(distant().owner), at) == []

    assert book.decide(Ticked(), 89.999) == []
    assert [type(action) for action in book.decide(Ticked(), 90.0)] == [Lose]


def test_a_renewal_that_comes_too_late_brings_nothing_back() -> None:
    book = book_with(1, ask("a", distant()))

    assert [type(action) for action in book.decide(Renewed(distant().owner), REMOTE_TTL_S)] == [Lose]
    assert book.decide(Renewed(distant().owner), REMOTE_TTL_S + 1) == []
    assert book.next_deadline() is None


def test_a_waiter_of_another_host_that_is_not_heard_leaves_the_queue() -> None:
    book = book_with(1, ask("a"), ask("b", distant()), ask("c"))

    assert refusals(book.decide(Ticked(), REMOTE_TTL_S)) == [("b", Refusal.WITHDRAWN)]
    assert grants(book.decide(GivenBack(CallId("a")), REMOTE_TTL_S)) == ["c"]


def test_whoever_is_late_is_not_served_by_the_slot_of_a_silent_host() -> None:
    book = Book(terms({"zai": 2}), queue_bound=100)
    book.decide(ask("a", distant(1)), 0.0)
    book.decide(ask("b"), 0.0)
    book.decide(ask("late", timeout_s=REMOTE_TTL_S), 0.0)
    book.decide(ask("silent", distant(1)), 0.0)

    actions = book.decide(Ticked(), REMOTE_TTL_S)

    assert grants(actions) == []
    assert refusals(actions) == [("silent", Refusal.WITHDRAWN), ("late", Refusal.TIMEOUT)]


def test_a_successor_believes_in_other_hosts_from_its_own_start_on() -> None:
    book = Book(terms({"zai": 1}))
    (grant,) = book.decide(ask("a", distant(), hold_s=1000.0), 0.0)
    assert isinstance(grant, Grant)
    left = Outstanding()
    left.apply(LeaseGranted(lease=grant.lease, in_flight=1))
    successor = Book(terms({"zai": 1}))

    assert successor.restore(left, 25.0) == []

    assert successor.decide(Ticked(), 25.0 + REMOTE_TTL_S - 0.001) == []
    assert [type(action) for action in successor.decide(Ticked(), 25.0 + REMOTE_TTL_S)] == [Lose]


def test_a_process_of_another_host_that_has_nothing_is_forgotten() -> None:
    book = book_with(1, ask("a", distant()))

    book.decide(GivenBack(CallId("a")), 1.0)

    assert book.next_deadline() is None
