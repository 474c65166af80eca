"""A call with more than one way to an answer: other keys, mended requests, other targets; and what it says of that."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from covey.actors.calls.benches import Benches
from covey.actors.calls.call_request import BeganAgain, CallAnswered, CallOutcome, CallUnanswered
from covey.actors.ports import Key
from covey.protocol.destination import fingerprint
from covey.protocol.dialects.base import TextDelta
from covey.protocol.dialects.tool_spec import ToolSpec
from covey.protocol.errors import BrokerSilent, BudgetParked, CapReached, CoveyError, NoKey, QueueFull
from covey.protocol.faults import Fault, FaultKind
from covey.protocol.messages.ledger import CallStatus
from covey.protocol.settings import CallSettings, Dialect, Effort, Price, ProviderSettings, TimeoutSettings

Scene = Callable[..., Any]


@pytest.fixture
def pair(scene: Scene, serving: Callable[[], Any]) -> Callable[..., Any]:
    """`async with pair([replies of the first], [of the second]) as (setting, first, second)`: two targets."""

    @asynccontextmanager
    async def opened(first: list[Any], second: list[Any], **settings: Any) -> AsyncIterator[Any]:
        async with serving() as other, scene(*first) as setting:
            other.replies = list(second)
            setting.other = other
            yield setting, setting.target(**settings), setting.target("spare", "n", base_url=other.base_url)

    return opened


class Ring:
    """Several keys of every provider, tried in their order; `renewed` is what takes the place of a refused one."""

    def __init__(self, *secrets: str, renewed: dict[str, str] | None = None) -> None:
        self.secrets, self.renewed = secrets, dict(renewed or {})
        self.renewals: list[str | None] = []
        self.troubles: list[tuple[str | None, FaultKind]] = []

    async def choose(self, provider: ProviderSettings, *, avoid: frozenset[str] = frozenset()) -> Key:
        for secret in self.secrets:
            if fingerprint(secret) not in avoid:
                return Key(secret=secret, fingerprint=fingerprint(secret))
        raise NoKey(provider.name, "all were refused")

    async def renew(self, provider: ProviderSettings, stale: Key) -> Key | None:
        self.renewals.append(stale.secret)
        fresh = self.renewed.pop(stale.secret or "", None)
        return Key(secret=fresh, fingerprint=stale.fingerprint) if fresh else None

    def trouble(self, provider: ProviderSettings, key: Key, fault: Fault) -> None:
        self.troubles.append((key.secret, fault.kind))


def text_of(outcome: CallOutcome) -> str:
    assert isinstance(outcome, CallAnswered), outcome
    return outcome.answer.text


def bearers(provider: Any) -> list[str]:
    return [headers["authorization"].removeprefix("Bearer ") for headers in provider.headers]


# --- other targets ---------------------------------------------------------------------------------------------------

UNKNOWN_MODEL = (404, "model_not_found", "no such model")


async def test_the_next_target_answers_what_the_first_cannot(pair: Any, replies: Any) -> None:
    async with pair([replies.refusal(*UNKNOWN_MODEL)], [replies.text("x")]) as (setting, first, second):
        assert text_of(await setting.ask(first, second)) == "x"

        assert [request["model"] for request in setting.other.requests] == ["n"]
    rows = [(row.provider, row.model, row.base_url, row.status) for row in setting.records]
    assert rows == [
        ("sim", "m", first.provider.base_url, CallStatus.REFUSED),
        ("spare", "n", second.provider.base_url, CallStatus.COMPLETED),
    ]
    assert [(one.destination.provider, one.model) for one in setting.slots.asked] == [("sim", "m"), ("spare", "n")]
    assert [provider for _, provider in setting.states] == ["sim", "sim", "spare", "spare"]


async def test_each_target_is_asked_in_its_own_dialect_and_priced_by_its_own_prices(pair: Any, replies: Any) -> None:
    start = {"type": "message_start", "message": {"id": "r2", "model": "n", "usage": {"input_tokens": 10}}}
    text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    reply = replies.events(start, block, text, end, {"type": "message_stop"})
    async with pair([replies.refusal(*UNKNOWN_MODEL)], [reply]) as (setting, first, second):
        provider = msgspec.structs.replace(
            second.provider, dialect=Dialect.ANTHROPIC, prices={"n": Price(input=1.0, output=2.0)}
        )
        spare = msgspec.structs.replace(second, provider=provider)
        assert text_of(await setting.ask(first, spare, effort=Effort.LOW)) == "x"

        assert "max_tokens" in setting.other.requests[0]
        assert "x-api-key" in setting.other.headers[0]
    assert setting.records[1].cost_estimated_usd == pytest.approx(20e-6)
    first_ask, second_ask = setting.slots.asked
    assert first_ask.estimated_cost_usd is None
    assert second_ask.estimated_cost_usd is not None


async def test_the_log_says_where_it_went_and_why(pair: Any, replies: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        spare = [replies.text("x"), replies.text("y")]
        async with pair([replies.refusal(*UNKNOWN_MODEL)], spare) as (setting, first, second):
            await setting.ask(first, second)
            await setting.ask(first, second)  # the first rests: that was said

    [said] = [record for record in caplog.records if getattr(record, "event", None) == "call_failed_over"]
    fields = said.__dict__["fields"]
    assert (fields["from"], fields["to"]) == ("sim/m", "spare/n")
    assert "no such model" in fields["because"]


async def test_a_call_that_nobody_answers_names_every_target_and_its_reason(pair: Any, replies: Any) -> None:
    refusals = [replies.refusal(*UNKNOWN_MODEL)], [replies.refusal(401, None, "who are you")]
    async with pair(*refusals) as (setting, first, second):
        outcome = await setting.ask(first, second)

    assert isinstance(outcome, CallUnanswered)
    assert outcome.fault is not None
    assert outcome.fault.kind is FaultKind.AUTH
    assert outcome.problem.startswith(
        "sim/m: model_unknown (model_not_found): no such model; spare/n: auth (401): who are you; "
    )
    assert "\n" not in outcome.problem


async def test_a_target_that_failed_is_passed_over_by_the_next_call_until_it_has_rested(
    pair: Any, replies: Any
) -> None:
    async with pair([replies.refusal(*UNKNOWN_MODEL)], [replies.text("x")] * 2) as (setting, first, second):
        await setting.ask(first, second)
        await setting.ask(first, second)

        assert len(setting.provider.requests) == 1


async def test_a_silent_target_is_left_and_named_by_its_clock(pair: Any, replies: Any) -> None:
    silent = replies.text("x", hang="headers")
    timeouts = TimeoutSettings(headers_seconds=0.1)
    async with pair([silent], [replies.text("y")], timeouts=timeouts) as (setting, first, second):
        assert text_of(await setting.ask(first, second)) == "y"

    assert "no answer within" in (setting.records[0].fault or "")


async def test_a_backend_that_was_silent_too_often_is_not_asked_and_the_next_one_is(pair: Any, replies: Any) -> None:
    silent = replies.text("x", hang="headers")
    timeouts = TimeoutSettings(headers_seconds=0.05)
    async with pair([silent], [replies.text("y")], timeouts=timeouts) as (setting, first, second):
        setting.benches = Benches(stale_calls=1)
        alone = await setting.ask(first, calls=CallSettings(retry_seconds=0.0, total_seconds=0.1))
        assert isinstance(alone, CallUnanswered)
        assert text_of(await setting.ask(first, second)) == "y"

        assert len(setting.provider.requests) == 1


PARKED = BudgetParked("sim:1", "used up", until=None, queued=0)


@pytest.mark.parametrize("refusal", [PARKED, QueueFull("sim", 9)], ids=["parked", "queue full"])
async def test_a_budget_that_lets_nobody_out_sends_the_call_on(pair: Any, replies: Any, refusal: CoveyError) -> None:
    async with pair([], [replies.text("x")]) as (setting, first, second):
        setting.slots.refusals = {"sim": refusal}
        assert text_of(await setting.ask(first, second)) == "x"

        assert setting.provider.requests == []
        assert setting.slots.asked[0].park_s is not None


@pytest.mark.parametrize(
    "refusal",
    [CapReached("sim", "no tokens left"), BrokerSilent("sim", 1.0)],
    ids=["the caller's own cap", "no broker"],
)
async def test_what_is_no_matter_of_the_target_ends_the_call(pair: Any, refusal: CoveyError) -> None:
    async with pair([], []) as (setting, first, second):
        setting.slots.refusals = {"sim": refusal}
        outcome = await setting.ask(first, second)

        assert isinstance(outcome, CallUnanswered)
        assert outcome.refusal is refusal
        assert setting.other.requests == []


async def test_all_attempts_of_a_call_are_one_work_with_numbers(pair: Any, replies: Any) -> None:
    async with pair([replies.refusal(*UNKNOWN_MODEL)], [replies.cut("x"), replies.text("y")]) as (setting, *both):
        await setting.ask(*both)

    asked = setting.slots.asked
    assert [one.attempt for one in asked] == [1, 2, 3]
    assert len({one.work for one in asked}) == 1
    assert len({one.call for one in asked}) == 3


async def test_the_whole_call_has_one_budget_of_time(pair: Any, replies: Any) -> None:
    silent = replies.text("x", hang="headers")
    async with pair([silent], [silent], timeouts=TimeoutSettings()) as (setting, first, second):
        calm = msgspec.structs.replace(second, provider=first.provider)
        outcome = await setting.ask(first, calm, calls=CallSettings(total_seconds=0.2))

    assert isinstance(outcome, CallUnanswered)
    assert sum(record.duration_ms or 0 for record in setting.records) < 400


# --- other keys ------------------------------------------------------------------------------------------------------

REJECTED = (401, "invalid_api_key", "no")


async def test_a_refused_key_is_renewed_once_and_the_new_one_is_used_at_once(scene: Scene, replies: Any) -> None:
    async with scene(replies.refusal(*REJECTED), replies.text("x")) as setting:
        setting.keys = Ring("old", renewed={"old": "new"})
        assert text_of(await setting.ask()) == "x"

        assert bearers(setting.provider) == ["old", "new"]
    assert setting.keys.renewals == ["old"]
    assert setting.keys.troubles == []


async def test_a_renewed_key_that_is_refused_too_gives_way_to_another(scene: Scene, replies: Any) -> None:
    refused = replies.refusal(*REJECTED)
    async with scene(refused, refused, replies.text("x")) as setting:
        setting.keys = Ring("old", "other", renewed={"old": "new"})
        assert text_of(await setting.ask()) == "x"

        assert bearers(setting.provider) == ["old", "new", "other"]
    assert setting.keys.renewals == ["old"]
    assert setting.keys.troubles == [("new", FaultKind.AUTH)]


async def test_a_key_that_cannot_be_renewed_is_told_of_and_the_next_is_taken(scene: Scene, replies: Any) -> None:
    async with scene(replies.refusal(*REJECTED), replies.text("x")) as setting:
        setting.keys = Ring("one", "two")
        assert text_of(await setting.ask()) == "x"

        assert bearers(setting.provider) == ["one", "two"]
    assert setting.keys.troubles == [("one", FaultKind.AUTH)]
    assert [one.destination.credential for one in setting.slots.asked] == [fingerprint("one"), fingerprint("two")]


async def test_an_account_without_balance_gives_way_to_another_key(scene: Scene, replies: Any) -> None:
    async with scene(replies.refusal(429, "1113", "no balance"), replies.text("x")) as setting:
        setting.keys = Ring("one", "two")
        assert text_of(await setting.ask()) == "x"

    assert setting.keys.troubles == [("one", FaultKind.NO_BALANCE)]


async def test_keys_that_are_all_refused_end_the_call_with_advice(scene: Scene, replies: Any) -> None:
    async with scene(*[replies.refusal(*REJECTED)] * 2) as setting:
        setting.keys = Ring("one", "two")
        outcome = await setting.ask()

    assert isinstance(outcome, CallUnanswered)
    assert outcome.fault is not None
    assert outcome.fault.kind is FaultKind.AUTH
    assert "set a valid one" in outcome.problem


async def test_a_provider_without_a_key_is_not_asked_and_the_next_one_is(pair: Any, replies: Any) -> None:
    async with pair([], [replies.text("x")], api_key_env="UNSET") as (setting, first, second):
        assert text_of(await setting.ask(first, second)) == "x"

        assert [one.destination.provider for one in setting.slots.asked] == ["spare"]


# --- mended requests -------------------------------------------------------------------------------------------------

TOO_LONG = (400, None, "max_tokens is too large: 9000. This model supports at most 4096 completion tokens")


async def test_a_request_that_can_be_mended_is_sent_again_at_once_with_the_mend(scene: Scene, replies: Any) -> None:
    async with scene(replies.refusal(*TOO_LONG), replies.text("x")) as setting:
        assert text_of(await setting.ask(max_answer_tokens=9000)) == "x"

        assert [request["max_tokens"] for request in setting.provider.requests] == [9000, 4096]
    assert setting.statuses == [CallStatus.REFUSED, CallStatus.COMPLETED]
    assert len({one.call for one in setting.slots.asked}) == 2


async def test_the_same_mend_is_not_made_twice(scene: Scene, replies: Any) -> None:
    async with scene(*[replies.refusal(*TOO_LONG)] * 2) as setting:
        outcome = await setting.ask(max_answer_tokens=9000)

    assert isinstance(outcome, CallUnanswered)
    assert len(setting.records) == 2


async def test_what_is_true_of_a_backend_is_mended_before_its_next_call(scene: Scene, replies: Any) -> None:
    refused = replies.refusal(400, None, "Tool name 'f' is invalid: tool names must match ^[a-zA-Z0-9_-]{3,64}$")
    tools = (tool("f"),)
    async with scene(refused, replies.text("x"), replies.text("y")) as setting:
        await setting.ask(tools=tools)
        await setting.ask(tools=tools)

        names = [request["tools"][0]["function"]["name"] for request in setting.provider.requests]
    assert names[0] == "f"
    assert names[1] == names[2] != "f"


# --- unknown errors --------------------------------------------------------------------------------------------------


async def test_an_error_nobody_knows_is_logged_once_with_its_fingerprint(
    scene: Scene, replies: Any, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [replies.events({"error": {"message": f"teapot {n} is short and stout"}}) for n in range(3)]
    async with scene(*odd) as setting:
        await setting.ask()

    said = [record.getMessage() for record in caplog.records if getattr(record, "event", None) == "fault_unknown"]
    assert len(said) == 1
    assert "fingerprint=" in said[0]


# --- what is shown ---------------------------------------------------------------------------------------------------


async def test_the_answer_is_shown_as_it_comes(scene: Scene, replies: Any) -> None:
    async with scene(replies.text("good day")) as setting:
        await setting.ask()

    assert setting.events == [TextDelta("goo"), TextDelta("d day")]


async def test_what_was_shown_of_an_attempt_that_broke_is_taken_back(scene: Scene, replies: Any) -> None:
    async with scene(replies.cut("half of"), replies.text("whole")) as setting:
        await setting.ask()

    assert setting.events == [TextDelta("half of"), BeganAgain(), TextDelta("who"), TextDelta("le")]


async def test_an_attempt_that_showed_nothing_is_not_taken_back(scene: Scene, replies: Any) -> None:
    async with scene(replies.refusal(429, "1302", "busy"), replies.text("x")) as setting:
        await setting.ask()

    assert setting.events == [TextDelta("x")]


async def test_an_attempt_that_was_left_delivers_nothing_more_though_its_provider_goes_on(
    pair: Any, replies: Any, until: Any
) -> None:
    endless = replies.cut("early")
    endless.goes_on = b": alive\n\n"
    timeouts = TimeoutSettings(content_seconds=0.1)
    async with pair([endless], [replies.text("whole")], timeouts=timeouts) as (setting, first, second):
        assert text_of(await setting.ask(first, second)) == "whole"
        await until(lambda: setting.provider.in_flight == 0)

    assert setting.events == [TextDelta("early"), BeganAgain(), TextDelta("who"), TextDelta("le")]
    assert "only keep-alives" in (setting.records[0].fault or "")


async def test_it_is_taken_back_once_also_if_the_next_attempt_gets_no_slot(pair: Any, replies: Any) -> None:
    async with pair([replies.cut("half of")], [replies.text("whole")]) as (setting, first, second):
        setting.slots.on_given_back = lambda: setting.slots.refusals.setdefault("sim", QueueFull("sim", 9))
        assert text_of(await setting.ask(first, second)) == "whole"

    assert setting.events.count(BeganAgain()) == 1


async def test_a_call_without_an_answer_hands_over_the_last_piece(scene: Scene, replies: Any) -> None:
    async with scene(*[replies.cut("half of")] * 3) as setting:
        outcome = await setting.ask()

    assert isinstance(outcome, CallUnanswered)
    assert outcome.partial == "half of"


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters=msgspec.Raw(b'{"type":"object","properties":{}}'))
