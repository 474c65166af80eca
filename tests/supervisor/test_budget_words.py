"""Budgets as people and programs see them, over views made by hand."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from covey.protocol.errors import UsageError
from covey.protocol.ids import AgentId, BudgetKey, CallId
from covey.protocol.messages.broker import (
    Budgets,
    BudgetState,
    BudgetView,
    CapView,
    FaultCount,
    HolderView,
    ModelLimitView,
    Priority,
    QuotaWindow,
    RateView,
    WaiterView,
)
from covey.supervisor.cli.budget_change import changed
from covey.supervisor.cli.budget_json import budget_json
from covey.supervisor.cli.budget_list import line, list_json, list_parts
from covey.supervisor.cli.budget_show import parts
from covey.supervisor.cli.budget_words import bar, limit_words, pick, quota_words, reason_words, state_words
from covey.supervisor.home import Home

NOON = 1_790_000_000.0
"""Some moment, as Unix seconds."""

FAULT = FaultCount(kind="concurrency", code="1302", count=3, last_ms=int(NOON * 1000), message="[1302][Rate limit]")
HOLDER = HolderView(call=CallId("call_1"), pid=7, holder="worker-1", model="glm-4.6", held_s=3.2, agent="ag_1")
WAITER = WaiterView(
    call=CallId("call_2"), pid=8, holder="gateway", model="glm-5", waited_s=130, position=1, priority=Priority.AGENT
)


def view(key: str = "zai:1f2e", **fields: Any) -> BudgetView:
    known: dict[str, Any] = {
        "limit": 2,
        "in_flight": 0,
        "queued": 0,
        "granted": 9,
        "peak_in_flight": 2,
        "configured": 2,
    }
    return BudgetView(key=BudgetKey(key), provider=key.partition(":")[0], **{**known, **fields})


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def drawn(shown: Iterable[Any]) -> list[str]:
    out = Console(file=io.StringIO(), width=10_000, no_color=True, highlight=False, soft_wrap=True)
    for part in shown:
        out.print(part)
    assert isinstance(out.file, io.StringIO)
    return [text.rstrip() for text in out.file.getvalue().splitlines()]


# --- which budget is meant -------------------------------------------------------------------------------------------

THREE = (view("zai:1f2e"), view("zai:2a3b"), view("local:none"))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        pytest.param("zai:1f2e", "zai:1f2e", id="its key"),
        pytest.param("zai:2", "zai:2a3b", id="a unique beginning"),
        pytest.param("local", "local:none", id="a provider with one budget"),
        pytest.param("lo", "local:none", id="the beginning of a provider"),
    ],
)
def test_a_budget_is_found_by_what_is_unique(name: str, key: str) -> None:
    assert pick(name, THREE).key == key


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("zai", "zai is the beginning of several budgets; valid: zai:1f2e, zai:2a3b", id="several"),
        pytest.param("nobody", "there is no budget nobody; valid: zai:1f2e, zai:2a3b, local:none", id="none"),
        pytest.param("", "there is no budget ; valid: zai:1f2e, zai:2a3b, local:none", id="empty"),
    ],
)
def test_what_is_not_unique_is_refused_with_what_is(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"^{says}$"):
        pick(name, THREE)


def test_a_provider_is_not_taken_for_the_beginning_of_another_s_name() -> None:
    assert pick("zai", (view("zai:1"), view("zai-cn:1"))).key == "zai:1"


# --- how it stands ---------------------------------------------------------------------------------------------------

LATER_MS = int((NOON + 3600) * 1000)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "open"),
        ({"state": BudgetState.PAUSED, "until_ms": LATER_MS}, "paused until 16:13:20, then one call tries"),
        ({"state": BudgetState.OVERLOADED, "probing": "call_1"}, "overloaded, one call is out to try"),
        ({"state": BudgetState.PARKED, "until_ms": LATER_MS}, "parked until 16:13:20"),
        ({"state": BudgetState.PARKED, "until_ms": LATER_MS + 86_400_000}, "parked until 2026-09-22 16:13:20"),
        ({"state": BudgetState.PARKED}, "parked, until when is not known"),
        ({"state": BudgetState.LOCKED}, "locked until `covey budget unlock zai:1f2e`"),
        ({"state": BudgetState.PARKED, "until_ms": 10**30}, f"parked until Unix time {10**30} ms"),
    ],
)
def test_a_state_has_its_end_in_local_time(fields: dict[str, Any], words: str) -> None:
    assert state_words(view(**fields), now=NOON) == words


def test_the_reason_is_one_line_with_the_wait_and_who_waits() -> None:
    parked = view(
        state=BudgetState.PARKED,
        until_ms=LATER_MS,
        state_reason="[1308][Usage limit\nreached\x1b[31m]",
        queued=3,
        oldest_wait_s=130,
    )

    assert reason_words(parked, now=NOON) == (
        "zai:1f2e is parked until 16:13:20 (in 60 min): [1308][Usage limit reached [31m]; "
        "3 waiting, the longest for 2 min"
    )
    assert reason_words(view(), now=NOON) is None


@pytest.mark.parametrize(
    ("fields", "cells", "words"),
    [
        ({}, "░░", "0 of 2"),
        ({"in_flight": 1}, "█░", "1 of 2"),
        ({"in_flight": 3}, "███", "3 of 2"),
        ({"limit": 1, "learned": 1.4}, "░·", "0 of 1 (configured 2, learned 1.4)"),
        ({"limit": 2, "learned": 2.0}, "░░", "0 of 2 (learned 2)"),
        ({"limit": 1000, "configured": 1000, "in_flight": 1}, "█" + "░" * 19, "1 of 1000"),
        ({"limit": 0, "configured": 0}, "", "0 of 0"),
    ],
)
def test_slots_are_cells_and_the_limit_says_where_it_comes_from(fields: Any, cells: str, words: str) -> None:
    assert bar(view(**fields)) == cells
    assert limit_words(view(**fields)) == words


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (QuotaWindow(name="T", used_percent=42, resets_at_ms=LATER_MS), "42 % used, resets 16:13:20"),
        (QuotaWindow(name="T", used_percent=100), "100 % used, reset not known, calls are refused"),
        (QuotaWindow(name="T", used_percent=100, blocks=False), "100 % used, reset not known, blocks no calls"),
        (QuotaWindow(name="T"), "use not known, reset not known"),
    ],
)
def test_a_window_says_what_is_known_of_it_and_what_is_not(window: QuotaWindow, words: str) -> None:
    assert quota_words(window, now=NOON) == words


# --- whole views -----------------------------------------------------------------------------------------------------

FULL = view(
    state=BudgetState.PARKED,
    state_reason="[1308][Usage limit]",
    until_ms=LATER_MS,
    limit=1,
    learned=1.4,
    in_flight=1,
    queued=1,
    oldest_wait_s=130.0,
    turned_over_s=12.0,
    wait_p50_ms=1.0,
    wait_p99_ms=20.0,
    release_lag_ms=300.0,
    faults=(FAULT,),
    models=(ModelLimitView(model="glm-5", limit=1, in_flight=1, queued=1),),
    rates=(RateView(unit="tokens", limit=1000, used=250),),
    quota=(QuotaWindow(name="TOKENS_LIMIT 5 h", used_percent=100, resets_at_ms=LATER_MS),),
    quota_seen_ms=int(NOON * 1000),
    holders=(msgspec.structs.replace(HOLDER, is_stalled=True),),
    waiters=(WAITER,),
)


def test_the_list_has_a_line_for_each_budget_and_one_for_each_reason_and_cap() -> None:
    cap = CapView(name="fleet", tokens=1200, reserved_tokens=300, cost_usd=0.125, reserved_cost_usd=0, max_tokens=5000)

    head, zai, local, why, spent = drawn(list_parts(Budgets(budgets=(FULL, view("a:b")), caps=(cap,)), now=NOON))

    assert head.split() == [
        "budget",
        "state",
        "slots",
        "in",
        "flight",
        "queued",
        "waiting",
        "longest",
        "turned",
        "over",
        "last",
        "fault",
    ]
    assert zai.split(maxsplit=3)[:3] == ["zai:1f2e", "parked", "█·"]
    assert "1 of 1 (configured 2, learned 1.4)" in zai
    assert zai.endswith("12 s ago  1302 concurrency × 3, 15:13:20")
    assert local.split()[:3] == ["a:b", "open", "░░"]
    assert why.startswith("zai:1f2e is parked until 16:13:20 (in 60 min): [1308][Usage limit]; 1 waiting")
    assert spent == "cap fleet: 1,200 of 5,000 tokens, $0.12, reserved 300 tokens, $0.00"


def test_a_watch_that_nobody_looks_at_is_one_line_a_look() -> None:
    assert line(Budgets(budgets=(FULL, view("a:b"))), now=NOON) == (
        "zai:1f2e parked until 16:13:20, 1 of 1 (configured 2, learned 1.4), 1 queued; a:b open, 0 of 2, 0 queued"
    )
    assert line(Budgets(), now=NOON) == "no budgets"


def test_show_has_everything() -> None:
    shown = "\n".join(drawn(parts(FULL, now=NOON)))

    for expected in (
        "budget zai:1f2e of provider zai",
        "[1308][Usage limit]",
        "█· 1 of 1 (configured 2, learned 1.4) in flight, 1 waiting, the longest for 2 min",
        "9 granted, at most 2 at once, waits 1 ms (median), 20 ms (99 %), a slot turned over 12 s ago",
        "the provider counts a call 300 ms beyond its end",
        "250 of 1,000 tokens in the last minute",
        "quota TOKENS_LIMIT 5 h: 100 % used, resets 16:13:20, calls are refused",
        "quota was read at 15:13:20",
        "1302  concurrency      3  15:13:20  [1302][Rate limit]",
        "ag_1          3.2 s  glm-4.6    7  call_1  its process is stopped",
        "    1  gateway  2 min  glm-5  agent       8  slot",
    ):
        assert expected in shown, shown


def test_programs_get_every_field_of_a_view_with_its_unit() -> None:
    said = json.loads(msgspec.json.encode(budget_json(FULL)))

    assert set(said) == set(BudgetView.__struct_fields__)
    assert set(said["holders"][0]) == set(HolderView.__struct_fields__)
    assert set(said["waiters"][0]) == set(WaiterView.__struct_fields__)
    assert said["quota"] == [
        {"name": "TOKENS_LIMIT 5 h", "used_percent": 100.0, "resets_at_ms": LATER_MS, "blocks": True}
    ]
    assert said["state"] == "parked"
    assert said["waiters"][0]["session"] is None


def test_a_list_without_a_fleet_has_the_same_keys(tmp_path: Path) -> None:
    home = Home(tmp_path)

    assert list_json(home, None).keys() == list_json(home, Budgets()).keys()
    assert list_json(home, None)["running"] is False


def test_an_agent_that_waits_for_a_parked_account_says_until_when() -> None:
    from covey.protocol.ids import SessionId
    from covey.protocol.messages.fleet import AgentState, AgentView
    from covey.supervisor.cli.status import _waits_for

    agent = AgentView(
        id=AgentId("ag_1"), session=SessionId("ses_1"), state=AgentState.WAITING, waits_for="zai", goal="x"
    )
    parked = view(state=BudgetState.PARKED, until_ms=None)

    assert _waits_for(agent, [parked]) == "zai, parked, until when is not known"
    assert _waits_for(agent, [parked, view("zai:other")]) == "zai"
    assert _waits_for(msgspec.structs.replace(agent, state=AgentState.CALLING), [parked]) == "zai"


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "limit", "model", "after"),
    [
        (2, "3", None, 3),
        (2, "1", "glm-4.6", {"*": 2, "glm-4.6": 1}),
        ({"*": 2, "glm-5": 1}, "4", None, {"*": 4, "glm-5": 1}),
        ({"*": 2, "glm-5": 1}, "2", "glm-5", {"*": 2, "glm-5": 2}),
        ({"*": 2, "glm-5": 1}, "0", "glm-5", 2),
        (2, "0", "glm-5", 2),
        (2, "many", None, "many"),
    ],
)
def test_a_limit_is_changed_and_what_is_said_of_others_stays(
    before: Any, limit: str, model: str | None, after: Any
) -> None:
    assert changed(before, limit, model) == after


@pytest.mark.parametrize(("before", "model"), [(0, "glm-5"), (2, "*")])
def test_a_model_s_limit_needs_a_model_and_a_limit_around_it(before: int, model: str) -> None:
    with pytest.raises(UsageError):
        changed(before, "1", model)
