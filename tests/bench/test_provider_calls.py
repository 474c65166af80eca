"""The provider's count of calls, against a model that is too simple to be wrong."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from covey.bench import provider_calls
from covey.bench.provider_calls import CallBook

ANY = st.integers(0, 30)


class Counting(RuleBasedStateMachine):
    """Takes, ends, ends again, refuses and resets calls in any order."""

    @initialize()
    def start(self) -> None:
        self.book = CallBook(started_unix=0.0)
        self.ids: list[int] = []
        self.clear()

    def clear(self, open_calls: frozenset[int] = frozenset()) -> None:
        self.open = set(open_calls)
        self.peak = len(self.open)
        self.completed = self.aborted = self.refused = self.told = 0

    @rule()
    def take(self) -> None:
        call = self.book.take(account="a", model="m", prompt_tokens=10, now=0.0).id
        self.ids.append(call)
        self.open.add(call)
        self.peak = max(self.peak, len(self.open))

    @precondition(lambda self: self.ids)
    @rule(which=ANY, usage_sent=st.booleans())
    def complete(self, which: int, usage_sent: bool) -> None:
        call = self.ids[which % len(self.ids)]
        ended = self.book.complete(call, completion_tokens=1, usage_sent=usage_sent, now=1.0)
        assert (ended is not None) == (call in self.open)
        if call in self.open:
            self.completed += 1
            self.told += 11 * usage_sent
            self.open.remove(call)

    @precondition(lambda self: self.ids)
    @rule(which=ANY)
    def abort(self, which: int) -> None:
        call = self.ids[which % len(self.ids)]
        ended = self.book.abort(call, now=1.0)
        assert (ended is not None) == (call in self.open)
        if call in self.open:
            self.aborted += 1
            self.open.remove(call)

    @rule()
    def refuse(self) -> None:
        self.book.refuse(code="1302", account="a", model="m", now=0.0)
        self.refused += 1

    @rule()
    def reset(self) -> None:
        self.book.reset()
        self.clear(frozenset(self.open))

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "book"):
            return
        stats = self.book.stats(limit=7)
        assert stats.limit == 7
        assert stats.in_flight == len(self.open)
        assert stats.peak_in_flight == self.peak
        assert (stats.completed, stats.aborted) == (self.completed, self.aborted)
        assert stats.calls == stats.completed + stats.aborted + stats.in_flight
        assert sum(stats.refused.values()) == self.refused
        assert stats.prompt_tokens + stats.completion_tokens == self.told
        listed = self.book.page(after=0, limit=10_000).calls
        assert len(listed) == stats.calls + self.refused
        assert {call.id for call in listed if call.status == "in_flight"} == self.open


TestCounting = Counting.TestCase


def test_the_list_forgets_the_oldest_calls_and_the_sums_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_calls, "KEPT", 3)
    book = CallBook(started_unix=0.0)
    first = book.take(account="a", model="m", prompt_tokens=1, now=0.0).id
    for _ in range(4):
        book.refuse(code="1302", account="a", model="m", now=0.0)
    book.complete(first, completion_tokens=1, usage_sent=True, now=1.0)

    page = book.page(after=0, limit=10)
    assert ([call.id for call in page.calls], page.forgotten) == ([3, 4, 5], 2)
    stats = book.stats(limit=1)
    assert (stats.completed, stats.prompt_tokens) == (1, 1)
