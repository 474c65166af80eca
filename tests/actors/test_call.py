"""One provider call against a real HTTP server: slot, attempts, exactly one honest record each, clean ends."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from covey.actors.calls.call import Caller, run_call
from covey.actors.calls.call_request import CallAnswered, CallOutcome, CallRequest, CallUnanswered, Clocks
from covey.actors.calls.connection_faults import connection_fault
from covey.actors.calls.patience import Patience, Strain, pause_s
from covey.actors.transport import USER_AGENT, is_loopback, open_client
from covey.protocol.errors import QueueFull
from covey.protocol.faults import FaultKind, fault_named
from covey.protocol.ids import AgentId, SessionId
from covey.protocol.messages.fleet import AgentState
from covey.protocol.messages.ledger import CallRecorded, CallStatus
from covey.protocol.settings import ProviderSettings
from covey.protocol.transcript import Message, Role

KEY = "sk-0123456789abcdef"
HASTE = Patience(first_s=0.001, longest_s=0.002)
SHORT = Clocks(headers_s=0.2, chunk_s=0.2, content_s=0.3, total_s=2.0, refusal_s=0.2, drain_s=0.1)


class Setting:
    """A caller, what it recorded and which states it showed."""

    def __init__(self, provider: Any, slots: Any) -> None:
        self.provider, self.slots = provider, slots
        self.records: list[CallRecorded] = []
        self.states: list[AgentState] = []
        self.client = open_client(provider.base_url)
        self.may_start = True

    async def ask(self, *, clocks: Clocks = SHORT, patience: Patience = HASTE, **fields: Any) -> CallOutcome:
        return await run_call(
            CallRequest(
                provider=ProviderSettings(name="sim", base_url=self.provider.base_url),
                model="m",
                messages=(Message(role=Role.USER, content="hello"),),
                session=SessionId("ses_1"),
                agent=AgentId("ag_1"),
                **{"api_key": KEY, **fields},
            ),
            Caller(
                slots=self.slots,
                record=self.records.append,
                client=self.client,
                on_state=self.states.append,
                may_start=lambda: self.may_start,
                clocks=clocks,
                patience=patience,
            ),
        )

    @property
    def statuses(self) -> list[CallStatus]:
        return [record.status for record in self.records]


Scene = Callable[..., Any]


@pytest.fixture
def scene(serving: Callable[[], Any], new_slots: type[Any]) -> Scene:
    """`async with scene(*replies) as setting`; afterwards no slot is held and nothing is in flight."""

    @asynccontextmanager
    async def opened(*replies: Any, limit: int = 1) -> AsyncIterator[Setting]:
        async with serving() as provider:
            provider.replies = list(replies)
            setting = Setting(provider, new_slots(limit))
            try:
                yield setting
            finally:
                await setting.client.aclose()
            assert setting.slots.held == set()

    return opened


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
    assert setting.states == [AgentState.WAITING, AgentState.CALLING]


async def test_the_request_says_who_we_are_and_which_call_it_is(scene: Scene, replies: Any) -> None:
    async with scene(replies.text("x")) as setting:
        await setting.ask()

    [headers] = setting.provider.headers
    assert headers["user-agent"] == USER_AGENT
    assert headers["x-client-request-id"] == setting.records[0].call == setting.slots.asked[0].call
    assert headers["authorization"] == f"Bearer {KEY}"
    assert setting.slots.asked[0].hold_s > SHORT.total_s
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
        task = asyncio.create_task(setting.ask(clocks=Clocks(drain_s=5.0)))
        while not setting.records:  # noqa: ASYNC110 - every turn of the loop is looked at
            await asyncio.sleep(0)

        assert len(setting.slots.held) == 1
        task.cancel()
        await asyncio.wait([task])
    assert setting.statuses == [CallStatus.COMPLETED]


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
        outcome = await setting.ask(clocks=Clocks(), patience=Patience(total_s=0.0, first_s=9.0))

        assert isinstance(outcome, CallUnanswered)
        await until(lambda: setting.provider.connections == 0)


async def test_a_key_quoted_by_the_provider_is_not_passed_on(scene: Scene, replies: Any) -> None:
    async with scene(replies.refusal(401, None, f"Incorrect API key provided: {KEY}")) as setting:
        outcome = await setting.ask()

    assert KEY not in repr(outcome)
    assert KEY not in repr(setting.records)


async def test_a_key_with_a_line_end_is_named_before_anything_is_sent(scene: Scene) -> None:
    async with scene() as setting:
        outcome = await setting.ask(api_key="sk-1\nx")

    assert isinstance(outcome, CallUnanswered)
    assert "sk-1" not in outcome.problem
    assert setting.slots.asked == []


async def test_nobody_at_the_address_is_recorded_and_tried_again(scene: Scene) -> None:
    async with scene() as setting:
        setting.provider.base_url = "http://127.0.0.1:1/v1"
        patience = Patience(first_s=0.02, longest_s=0.02, total_s=0.1)
        assert fault_of(await setting.ask(patience=patience)) is FaultKind.UNREACHABLE

    assert len(setting.records) > 1
    assert set(setting.statuses) == {CallStatus.FAILED}


async def test_a_base_url_that_is_none_is_named(scene: Scene) -> None:
    async with scene() as setting:
        setting.provider.base_url = "ftp://127.0.0.1/v1"

        assert isinstance(await setting.ask(), CallUnanswered)


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


async def test_an_error_whose_body_never_ends_is_still_an_error(scene: Scene, replies: Any) -> None:
    stuck = replies.refusal(503, None, "down")
    stuck.headers["content-length"] = "1000"
    stuck.hang = "body"
    async with scene(stuck, replies.text("x")) as setting:
        assert text_of(await setting.ask()) == "x"

    assert setting.statuses == [CallStatus.REFUSED, CallStatus.COMPLETED]


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
        clients = [Setting(setting.provider, setting.slots) for _ in range(12)]
        await asyncio.gather(*(one.ask() for one in clients))
        for one in clients:
            await one.client.aclose()

        assert setting.provider.peak == 2


async def test_a_slot_that_comes_after_the_stop_starts_no_call(scene: Scene) -> None:
    async with scene() as setting:
        setting.may_start = False
        with pytest.raises(asyncio.CancelledError):
            await setting.ask()

        assert setting.provider.requests == []
    assert setting.records == []


# --- cancelled at every await ----------------------------------------------------------------------------------------


async def cancelled_at(step: int, work: Any) -> bool:
    """Run `work` and cancel it in turn number `step` of the loop; False if it was over before."""
    task = asyncio.ensure_future(work)
    for _ in range(step):
        await asyncio.sleep(0)
        if task.done():
            await task
            return False
    task.cancel()
    await asyncio.wait([task])
    return True


async def test_cancelled_in_any_turn_it_leaves_no_slot_no_connection_and_one_record(
    serving: Callable[[], Any], new_slots: type[Any], replies: Any, until: Callable[..., Any]
) -> None:
    statuses = set()
    step = 0
    while True:
        async with serving() as provider:
            provider.replies = [replies.refusal(429, "1302", "busy"), replies.text("good day")]
            setting = Setting(provider, new_slots(1))
            patience = Patience(first_s=0.0, longest_s=0.0)
            was_cancelled = await cancelled_at(step, setting.ask(patience=patience))

            assert setting.slots.held == set()
            await until(lambda: provider.in_flight == 0)
            seen = {headers["x-client-request-id"] for headers in provider.headers}
            recorded = [record.call for record in setting.records]
            assert len(recorded) == len(set(recorded))
            assert seen <= set(recorded)  # what the provider heard of is in the account
            assert len(setting.slots.asked) - len(recorded) <= 1
            statuses |= set(setting.statuses)
            await setting.client.aclose()
        if not was_cancelled:
            break
        step += 1

    assert step > 20
    assert statuses == {CallStatus.REFUSED, CallStatus.CANCELLED, CallStatus.COMPLETED}


async def test_a_cancel_closes_the_stream_at_once(scene: Scene, replies: Any, until: Callable[..., Any]) -> None:
    still = replies.cut("half of")
    still.hang = "body"
    async with scene(still) as setting:
        task = asyncio.create_task(setting.ask(clocks=Clocks()))
        await until(lambda: setting.provider.in_flight == 1)
        task.cancel()
        await asyncio.wait([task])

        await until(lambda: setting.provider.in_flight == 0, within_s=0.5)
    assert setting.statuses == [CallStatus.CANCELLED]
    assert setting.records[0].usage is None


# --- rules -----------------------------------------------------------------------------------------------------------

BUSY = fault_named(FaultKind.CONCURRENCY, "busy")


def test_pauses_double_up_to_a_bound_with_full_jitter() -> None:
    bounds = [pause_s(BUSY, Strain(attempts=n), Patience(), chance=1.0) for n in range(1, 9)]

    assert bounds == [1, 2, 4, 8, 16, 30, 30, 30]
    assert pause_s(BUSY, Strain(attempts=5), Patience(), chance=0.0) == 0


def test_the_time_a_provider_asks_for_is_waited_in_full() -> None:
    asked = fault_named(FaultKind.RATE, "slow down", retry_after_s=20.0)

    assert pause_s(asked, Strain(attempts=1), Patience(), chance=0.5) == 20.5


@pytest.mark.parametrize("retry_after_s", [601.0, 86_400.0])
def test_a_time_beyond_our_patience_ends_the_call_at_once(retry_after_s: float) -> None:
    asked = fault_named(FaultKind.RATE, "slow down", retry_after_s=retry_after_s)

    assert pause_s(asked, Strain(attempts=1), Patience(), chance=0.0) is None


def test_patience_ends_with_its_time() -> None:
    assert pause_s(BUSY, Strain(attempts=9, spent_s=590), Patience(), chance=0.3) is not None
    assert pause_s(BUSY, Strain(attempts=9, spent_s=590), Patience(), chance=0.5) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(OSError(24, "Too many open files"), FaultKind.OUT_OF_FILES, id="no descriptors"),
        pytest.param(ssl.SSLCertVerificationError("self-signed"), FaultKind.TLS, id="certificate"),
        pytest.param(OSError(111, "refused"), FaultKind.UNREACHABLE, id="refused"),
        pytest.param(ExceptionGroup("all", [OSError(24, "files")]), FaultKind.OUT_OF_FILES, id="several addresses"),
    ],
)
def test_a_failed_connection_is_named_by_its_cause(error: Exception, kind: FaultKind) -> None:
    outer = httpx.ConnectError("failed")
    outer.__cause__ = error

    assert connection_fault(outer, in_body=False).kind is kind


# --- transport -------------------------------------------------------------------------------------------------------


async def test_plain_http_builds_no_tls_and_https_shares_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from covey.actors import transport

    transport._tls_context.cache_clear()
    made = []
    real = httpx.create_ssl_context
    monkeypatch.setattr(transport.httpx, "create_ssl_context", lambda: made.append(1) or real())

    clients = [open_client("http://127.0.0.1:1/v1") for _ in range(3)]
    assert made == []
    clients += [open_client("https://api.example.com/v1") for _ in range(3)]
    assert made == [1]
    for client in clients:
        await client.aclose()


async def test_a_proxy_of_the_environment_is_not_used_for_loopback(
    scene: Scene, replies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with scene(replies.text("x")) as setting:
        assert text_of(await setting.ask()) == "x"


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("a.b", False)],
)
def test_loopback_is_told_without_a_resolver(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_provider_that_never_answered_is_given_up_sooner_than_one_that_did() -> None:
    gone = fault_named(FaultKind.UNREACHABLE, "connection refused")
    never = Strain(spent_s=59.0).after(gone, 2.0)
    once = Strain(spent_s=57.0).after(BUSY, 2.0).after(gone, 2.0)

    assert pause_s(gone, never, Patience(), chance=0.0) is None
    assert pause_s(gone, once, Patience(), chance=0.0) == 0.0
