"""One provider call against a real HTTP server: slot, attempts, exactly one honest record each, clean ends."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from covey.actors.calls.account import NOTHING
from covey.actors.calls.call_request import CallAnswered, CallOutcome, CallUnanswered
from covey.actors.calls.environment_keys import EnvironmentKeys
from covey.actors.http.clients import USER_AGENT, Clients
from covey.protocol.errors import QueueFull
from covey.protocol.faults import FaultKind
from covey.protocol.messages.broker import Outcome
from covey.protocol.messages.fleet import AgentState
from covey.protocol.messages.ledger import CallStatus
from covey.protocol.settings import CallSettings, ProviderSettings, TimeoutSettings

KEY = "sk-0123456789abcdef"
USUAL = TimeoutSettings()
Scene = Callable[..., Any]


def text_of(outcome: CallOutcome) -> str:
    assert isinstance(outcome, CallAnswered)
    return outcome.answer.text


def fault_of(outcome: CallOutcome) -> FaultKind:
    assert isinstance(outcome, CallUnanswered)
    assert outcome.fault is not None
    return outcome.fault.kind


# --- the ordinary course ---------------------------------------------------------------------------------------------


async def test_an_answer_comes_back_and_its_cost_is_recorded_once(scene: Scene, replies: Any) -> None:
    async with scene(replies.text("good day")) as setting:
        assert text_of(await setting.ask()) == "good day"

    [record] = setting.records
    assert record.status is CallStatus.COMPLETED
    assert record.usage is not None
    assert (record.usage.prompt_tokens, record.usage.completion_tokens) == (10, 5)
    assert (record.provider, record.model, record.model_answered) == ("sim", "m", "sim-1")
    assert (record.session, record.agent, record.response_id) == ("ses_1", "ag_1", "r1")
    assert record.first_byte_ms is not None
    assert record.duration_ms is not None
    assert record.first_byte_ms <= record.duration_ms
    assert setting.states == [(AgentState.WAITING, "sim"), (AgentState.CALLING, "sim")]


async def test_the_request_says_who_we_are_and_which_call_it_is(scene: Scene, replies: Any) -> None:
    async with scene(replies.text("x")) as setting:
        await setting.ask()

    [headers] = setting.provider.headers
    assert headers["user-agent"] == USER_AGENT
    assert headers["x-client-request-id"] == setting.records[0].call == setting.slots.asked[0].call
    assert headers["authorization"] == f"Bearer {KEY}"
    assert setting.slots.asked[0].hold_s > CallSettings().total_seconds
    assert KEY not in repr(setting.slots.asked[0])


async def test_one_connection_serves_call_after_call(scene: Scene, replies: Any) -> None:
    async with scene(*[replies.text("x")] * 5) as setting:
        for _ in range(5):
            await setting.ask()

        assert setting.provider.accepted == 1


async def test_a_kept_connection_that_is_closed_under_the_next_request_costs_no_call(
    scene: Scene, replies: Any
) -> None:
    gone = dataclasses.replace(replies.text("x"), hangs_up=True)
    async with scene(gone, replies.text("y")) as setting:
        assert text_of(await setting.ask()) == "x"
        assert text_of(await setting.ask()) == "y"

        assert len(setting.provider.requests) == setting.provider.accepted == 2
    assert setting.statuses == [CallStatus.COMPLETED] * 2


async def test_a_tail_that_does_not_come_is_not_waited_for(scene: Scene, replies: Any) -> None:
    async with scene(replies.text("x", hang="tail"), replies.text("y")) as setting:
        assert text_of(await setting.ask()) == "x"
        assert text_of(await setting.ask()) == "y"

        assert setting.provider.accepted == 2
    assert setting.statuses == [CallStatus.COMPLETED] * 2


async def test_the_record_is_handed_over_before_anything_is_awaited(scene: Scene, replies: Any) -> None:
    """While the tail of the answer is still open, the account is there and the slot is held."""
    async with scene(replies.text("x", hang="tail")) as setting:
        task = asyncio.create_task(setting.ask())
        while not setting.records:  # noqa: ASYNC110 - every turn of the loop is looked at
            await asyncio.sleep(0)

        assert len(setting.slots.held) == 1
        task.cancel()
        await asyncio.wait([task])
    [record] = setting.records
    assert record.status is CallStatus.COMPLETED
    assert setting.slots.outcomes[record.call] == Outcome(usage=record.usage)


# --- trying again ----------------------------------------------------------------------------------------------------


async def test_a_busy_provider_is_asked_again_each_time_with_a_new_slot(scene: Scene, replies: Any) -> None:
    busy = replies.refusal(429, "1302", "High concurrency usage")
    async with scene(busy, busy, replies.text("x")) as setting:
        assert text_of(await setting.ask()) == "x"

    assert setting.statuses == [CallStatus.REFUSED, CallStatus.REFUSED, CallStatus.COMPLETED]
    assert len({acquire.call for acquire in setting.slots.asked}) == 3
    assert setting.records[0].usage is None
    assert "1302" in (setting.records[0].fault or "")


async def test_a_refused_call_leaves_its_connection_usable(scene: Scene, replies: Any) -> None:
    async with scene(*[replies.refusal(429, "1302", "busy")] * 20, replies.text("x")) as setting:
        await setting.ask()

        assert setting.provider.accepted == 1


async def test_a_cut_answer_is_not_an_answer_and_is_asked_for_again(scene: Scene, replies: Any) -> None:
    async with scene(replies.cut("half of"), replies.text("whole")) as setting:
        assert text_of(await setting.ask()) == "whole"

    assert setting.statuses == [CallStatus.TRUNCATED, CallStatus.COMPLETED]
    assert setting.records[0].usage is None


async def test_answers_that_are_always_cut_end_after_three(scene: Scene, replies: Any) -> None:
    async with scene(*[replies.cut("half of")] * 3) as setting:
        assert fault_of(await setting.ask()) is FaultKind.TRUNCATED

    assert setting.statuses == [CallStatus.TRUNCATED] * 3


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        pytest.param(401, "invalid_api_key", FaultKind.AUTH, id="wrong key"),
        pytest.param(429, "1113", FaultKind.NO_BALANCE, id="no balance"),
        pytest.param(429, "1308", FaultKind.QUOTA, id="used-up window"),
        pytest.param(400, "context_length_exceeded", FaultKind.CONTEXT_OVERFLOW, id="too long"),
    ],
)
async def test_what_no_repetition_helps_ends_at_once(
    scene: Scene, replies: Any, status: int, code: str, kind: FaultKind
) -> None:
    async with scene(replies.refusal(status, code, "no")) as setting:
        setting.slots.has_budget = False
        assert fault_of(await setting.ask()) is kind

    assert setting.statuses == [CallStatus.REFUSED]


@pytest.mark.parametrize("code", ["1302", "1305", "1308"])
async def test_the_accounts_trouble_is_the_brokers_to_time(scene: Scene, replies: Any, code: str) -> None:
    async with scene(replies.refusal(429, code, "no"), replies.text("yes")) as setting:
        assert text_of(await setting.ask()) == "yes"

    first, second = setting.slots.asked
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.work == second.work
    refused, answered = (setting.slots.outcomes[one.call] for one in (first, second))
    assert refused is not None
    assert refused.fault is not None
    assert refused.fault.code == code
    assert answered is not None
    assert answered.fault is None
    assert answered.usage == setting.records[1].usage


async def test_an_error_inside_a_success_is_a_refusal(scene: Scene, replies: Any) -> None:
    from_stream = replies.text("x")
    from_stream.chunks = (b'data: {"error": {"code": "1113", "message": "no balance"}}\n\n',)
    async with scene(from_stream) as setting:
        assert fault_of(await setting.ask()) is FaultKind.NO_BALANCE

    assert setting.statuses == [CallStatus.REFUSED]


@pytest.mark.parametrize("status", [200, 503])
async def test_an_error_that_goes_on_for_ever_is_read_no_further_and_closed(
    scene: Scene, replies: Any, until: Callable[..., Any], status: int
) -> None:
    endless = replies.refusal(status, "1113", "no balance")
    endless.chunks = (b'data: {"error": {"code": "1113", "message": "no"}}\n\n', *[b"x" * 9000 + b"\n"] * 20)
    endless.hang = "body"
    async with scene(endless) as setting:
        outcome = await setting.ask(setting.target(timeouts=USUAL), calls=CallSettings(retry_seconds=0.0))

        assert isinstance(outcome, CallUnanswered)
        await until(lambda: setting.provider.connections == 0)


async def test_a_key_quoted_by_the_provider_is_not_passed_on(scene: Scene, replies: Any) -> None:
    async with scene(replies.refusal(401, None, f"Incorrect API key provided: {KEY}")) as setting:
        outcome = await setting.ask()

    assert KEY not in repr(outcome)
    assert KEY not in repr(setting.records)


async def test_a_key_with_a_line_end_is_named_before_anything_is_sent(scene: Scene) -> None:
    async with scene() as setting:
        setting.keys = EnvironmentKeys({"SIM_KEY": "sk-1\nx"})
        outcome = await setting.ask()

    assert isinstance(outcome, CallUnanswered)
    assert "sk-1" not in outcome.problem
    assert setting.slots.asked == []


async def test_nobody_at_the_address_is_recorded_and_tried_again(scene: Scene) -> None:
    async with scene() as setting:
        setting.provider.base_url = "http://127.0.0.1:1/v1"
        assert fault_of(await setting.ask(calls=CallSettings(retry_seconds=0.05))) is FaultKind.UNREACHABLE

    assert len(setting.records) > 1
    assert set(setting.statuses) == {CallStatus.FAILED}
    # Nobody heard of it: what it used is known, and no slot of the provider's is taken for a moment longer.
    assert {record.usage for record in setting.records} == {NOTHING}
    assert [outcome.usage for outcome in setting.slots.outcomes.values()] == [NOTHING] * len(setting.records)
    assert setting.slots.cut == []


async def test_a_machine_without_files_says_nothing_of_the_provider_to_the_broker(scene: Scene) -> None:
    class NoFiles(Clients):
        async def send(self, provider: ProviderSettings, request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("no socket") from OSError(errno.EMFILE, "Too many open files")

    async with scene() as setting:
        setting.clients = NoFiles()
        assert fault_of(await setting.ask(calls=CallSettings(retry_seconds=0.0))) is FaultKind.OUT_OF_FILES

    assert set(setting.slots.outcomes.values()) == {None}
    assert setting.slots.cut == []


async def test_an_answer_that_was_cut_may_be_counted_a_moment_longer(scene: Scene, replies: Any) -> None:
    async with scene(replies.cut("half of"), replies.text("whole")) as setting:
        await setting.ask()

    assert setting.slots.cut == [setting.records[0].call]


async def test_a_base_url_that_is_none_is_named(scene: Scene) -> None:
    async with scene() as setting:
        setting.provider.base_url = "ftp://127.0.0.1/v1"

        assert fault_of(await setting.ask()) is FaultKind.NOT_FOUND


# --- clocks ----------------------------------------------------------------------------------------------------------


async def test_a_provider_that_never_answers_is_left_after_the_headers_clock(scene: Scene, replies: Any) -> None:
    silent = replies.text("x", hang="headers")
    async with scene(silent, replies.text("late")) as setting:
        assert text_of(await setting.ask()) == "late"

    assert setting.statuses == [CallStatus.FAILED, CallStatus.COMPLETED]


async def test_an_answer_that_stands_still_is_truncated(scene: Scene, replies: Any) -> None:
    still = replies.cut("half of")
    still.hang = "body"
    async with scene(still, replies.text("whole")) as setting:
        assert text_of(await setting.ask()) == "whole"

    assert setting.statuses == [CallStatus.TRUNCATED, CallStatus.COMPLETED]


# --- slots -----------------------------------------------------------------------------------------------------------


async def test_a_full_queue_ends_the_call_and_contacts_nobody(scene: Scene) -> None:
    async with scene() as setting:
        setting.slots.refuse = QueueFull("sim", 9)
        outcome = await setting.ask()

        said = "the queue of budget sim is full (9 waiting)"
        assert outcome == CallUnanswered(said, refusal=setting.slots.refuse)
        assert setting.provider.requests == []
    assert setting.records == []


async def test_never_more_calls_than_slots(scene: Scene, replies: Any) -> None:
    async with scene(*[replies.text("x")] * 12, limit=2) as setting:
        await asyncio.gather(*(setting.ask() for _ in range(12)))

        assert setting.provider.peak == 2


async def test_a_slot_that_comes_after_the_stop_starts_no_call(scene: Scene) -> None:
    async with scene() as setting:
        setting.may_start = False
        with pytest.raises(asyncio.CancelledError):
            await setting.ask()

        assert setting.provider.requests == []
    assert setting.records == []
    assert setting.slots.cut == []
