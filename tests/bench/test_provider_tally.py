"""Counts by account and model."""

from __future__ import annotations

import pytest

from covey.bench import provider_tally
from covey.bench.provider_calls import CallBook
from covey.bench.provider_tally import Accounts, Tallies


def report(tallies: Tallies) -> Accounts:
    return tallies.report(limit=2, is_locked=lambda account: account == "locked")


def test_an_account_is_the_sum_of_its_models_but_for_the_peaks() -> None:
    book, tallies = CallBook(started_unix=0.0), Tallies()
    calls = [book.take(account="a", model=model, prompt_tokens=10, now=0.5) for model in "xyx"]
    for call in calls:
        tallies.take(call)
    for ended in (
        book.complete(calls[0].id, completion_tokens=3, usage_sent=False, now=0.6),
        book.abort(calls[1].id, now=0.7),
    ):
        assert ended is not None
        tallies.end(ended)
    refused = book.refuse(code="1302", account="a", model="x", now=1.5)
    tallies.refuse(refused, prompt_tokens=7)

    account = report(tallies).accounts["a"]
    assert (account.requests, account.answered, account.aborted, account.in_flight) == (4, 1, 1, 1)
    assert (account.peak_in_flight, account.peak_per_s, account.refused) == (3, 3, {"1302": 1})
    assert (account.tokens_in, account.tokens_out, account.tokens_refused) == (30, 3, 7)
    assert [(account.models[model].requests, account.models[model].peak_in_flight) for model in "xy"] == [
        (3, 2),
        (1, 1),
    ]


def test_a_reset_keeps_what_is_in_flight() -> None:
    book, tallies = CallBook(started_unix=0.0), Tallies()
    call = book.take(account="a", model="x", prompt_tokens=10, now=0.0)
    tallies.take(call)
    tallies.reset()
    ended = book.complete(call.id, completion_tokens=3, usage_sent=True, now=1.0)
    assert ended is not None
    tallies.end(ended)

    account = report(tallies).accounts["a"]
    assert (account.requests, account.answered, account.in_flight, account.peak_in_flight) == (1, 1, 0, 1)
    assert (account.tokens_in, account.tokens_out) == (0, 3)


def test_names_without_end_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_tally, "MOST_NAMES", 2)
    book, tallies = CallBook(started_unix=0.0), Tallies()
    for name in "abcda":
        tallies.refuse(book.refuse(code="1", account=name, model=name, now=0.0), prompt_tokens=1)

    assert {name: tally.requests for name, tally in report(tallies).accounts.items()} == {
        "a": 2,
        "b": 1,
        provider_tally.OTHERS: 2,
    }
