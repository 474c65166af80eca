"""Which key a call takes: each strategy by itself, and whatever happens in any order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from covey.actors.keys.pool import NoneFree, Pool
from covey.protocol.fault_kinds import FaultKind
from covey.protocol.messages.credentials import Rest
from covey.protocol.settings import KeyStrategy

NOBODY: frozenset[str] = frozenset()


def rest(until_ms: int | None) -> Rest:
    return Rest(kind=FaultKind.QUOTA, reason="used up", since_ms=0, until_ms=until_ms)


def pool_of(*accounts: str) -> Pool:
    pool = Pool()
    pool.offer(dict.fromkeys(accounts))
    return pool


def chosen(pool: Pool, strategy: KeyStrategy, times: int, *, now_ms: int = 0, chance: float = 0.0) -> list[object]:
    return [pool.choose(strategy, avoid=NOBODY, now_ms=now_ms, chance=lambda: chance) for _ in range(times)]


@pytest.mark.parametrize(
    ("strategy", "taken"),
    [
        (KeyStrategy.FILL_FIRST, "aaaaaa"),
        (KeyStrategy.ROUND_ROBIN, "abcabc"),
        (KeyStrategy.LEAST_USED, "abcabc"),
        (KeyStrategy.RANDOM, "aaaaaa"),
    ],
)
def test_each_strategy_has_its_order(strategy: KeyStrategy, taken: str) -> None:
    assert chosen(pool_of("a", "b", "c"), strategy, 6) == list(taken)


def test_chance_reaches_the_last_key_and_not_beyond() -> None:
    assert chosen(pool_of("a", "b", "c"), KeyStrategy.RANDOM, 1, chance=1.0) == ["c"]


def test_the_round_goes_on_behind_a_key_that_rests() -> None:
    pool = pool_of("a", "b", "c")
    chosen(pool, KeyStrategy.ROUND_ROBIN, 1)
    pool.rest("b", rest(1000))

    assert chosen(pool, KeyStrategy.ROUND_ROBIN, 3) == ["c", "a", "c"]


def test_a_new_key_does_not_get_every_call() -> None:
    pool = pool_of("a", "b")
    chosen(pool, KeyStrategy.LEAST_USED, 10)

    pool.offer(dict.fromkeys(("a", "b", "c")))

    assert chosen(pool, KeyStrategy.LEAST_USED, 4).count("c") < 3


def test_when_all_rest_the_first_to_come_back_is_told() -> None:
    pool = pool_of("a", "b", "c")
    for account, until_ms in (("a", 5000), ("b", 3000), ("c", None)):
        pool.rest(account, rest(until_ms))

    (none,) = chosen(pool, KeyStrategy.FILL_FIRST, 1)

    assert none == NoneFree(3000, "3 of its 3 keys rest: used up")
    assert chosen(pool, KeyStrategy.FILL_FIRST, 1, now_ms=3000) == ["b"]


def test_a_key_that_rested_does_not_get_every_call_afterwards() -> None:
    pool = pool_of("a", "b")
    pool.rest("a", rest(1000))
    chosen(pool, KeyStrategy.LEAST_USED, 100)

    assert chosen(pool, KeyStrategy.LEAST_USED, 10, now_ms=1000).count("a") <= 6


ACCOUNTS = st.sampled_from("abcdef")


class PoolMachine(RuleBasedStateMachine):
    """A model of the rules in sets: what is free is what neither rests nor is avoided."""

    @initialize(accounts=st.lists(ACCOUNTS, unique=True, min_size=1))
    def begin(self, accounts: list[str]) -> None:
        self.pool, self.now_ms = Pool(), 0
        self.rests: dict[str, Rest | None] = dict.fromkeys(accounts)
        self.uses = dict.fromkeys(accounts, 0)
        self.pool.offer(self.rests)

    @rule(accounts=st.lists(ACCOUNTS, unique=True))
    def offer(self, accounts: list[str]) -> None:
        self.rests = {account: self.rests.get(account) for account in accounts}
        least = min((self.uses[account] for account in accounts if account in self.uses), default=0)
        self.uses = {account: self.uses.get(account, least) for account in accounts}
        self.pool.offer(self.rests)

    @rule(account=ACCOUNTS, wait_ms=st.none() | st.integers(1, 50))
    def trouble(self, account: str, wait_ms: int | None) -> None:
        new = rest(None if wait_ms is None else self.now_ms + wait_ms)
        self.pool.rest(account, new)
        if account in self.rests:
            old = self.rests[account]
            ends = [one.until_ms for one in (old, new) if one is not None]
            self.rests[account] = rest(None if None in ends else max(end for end in ends if end is not None))

    @rule(wait_ms=st.integers(1, 60))
    def later(self, wait_ms: int) -> None:
        self.now_ms += wait_ms

    @rule(strategy=st.sampled_from(KeyStrategy), avoid=st.frozensets(ACCOUNTS), chance=st.floats(0, 1))
    def choose(self, strategy: KeyStrategy, avoid: frozenset[str], chance: float) -> None:
        free = [one for one in self.free() if one not in avoid]

        found = self.pool.choose(strategy, avoid=avoid, now_ms=self.now_ms, chance=lambda: chance)

        if isinstance(found, NoneFree):
            ends = [one.until_ms for one in self.rests.values() if one is not None and one.holds(self.now_ms)]
            assert not free
            assert found.until_ms == min((end for end in ends if end is not None), default=None)
            return
        assert found in free
        least = min(self.uses[one] for one in self.free())
        self.uses = {one: uses if one in self.free() else max(uses, least) for one, uses in self.uses.items()}
        if strategy is KeyStrategy.FILL_FIRST:
            assert found == free[0]
        if strategy is KeyStrategy.LEAST_USED:
            assert self.uses[found] == min(self.uses[one] for one in free)
        self.uses[found] += 1

    @invariant()
    def the_order_is_as_offered(self) -> None:
        assert self.pool.accounts == tuple(self.rests)

    def free(self) -> list[str]:
        return [one for one, held in self.rests.items() if held is None or not held.holds(self.now_ms)]


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, deadline=None)
