"""A call that is cancelled: in any turn of the loop, and whatever the provider still sends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from covey.actors.http.clients import Clients
from covey.protocol.messages.ledger import CallStatus
from covey.protocol.settings import ProviderSettings, TimeoutSettings

Scene = Callable[..., Any]
PATIENT = TimeoutSettings()


async def cancelled_at(step: int, work: Any) -> bool:
    """Run `work` and cancel it in turn number `step` of the loop; False if it was over before."""
    task: asyncio.Task[Any] = asyncio.ensure_future(work)
    for _ in range(step):
        await asyncio.sleep(0)
        if task.done():
            await task
            return False
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


def sockets_to(port: int) -> int:
    """Sockets of this process that are connected to `port`, or on their way there."""
    own = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            own.add(os.readlink(f"/proc/self/fd/{name}"))
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(line[2].endswith(f":{port:04X}") and f"socket:[{line[9]}]" in own for line in lines)


BUSY = (429, "1302", "busy")
REJECTED = (401, "invalid_api_key", "no")


@pytest.mark.parametrize(
    ("refusal", "statuses"),
    [
        pytest.param(BUSY, {CallStatus.REFUSED, CallStatus.CANCELLED, CallStatus.COMPLETED}, id="asked again"),
        pytest.param(REJECTED, {CallStatus.REFUSED, CallStatus.CANCELLED, CallStatus.COMPLETED}, id="failed over"),
    ],
)
async def test_in_any_turn_it_leaves_no_slot_no_connection_no_task_and_one_record(
    scene: Scene, replies: Any, until: Callable[..., Any], refusal: Any, statuses: set[CallStatus]
) -> None:
    seen: set[CallStatus] = set()
    tasks = len(asyncio.all_tasks())
    step, was_cancelled = 0, True
    while was_cancelled:
        async with scene(replies.refusal(*refusal), replies.text("good day")) as setting:
            provider, slots = setting.provider, setting.slots
            port = int(provider.base_url.split(":")[2].split("/")[0])
            busy_at_release: list[int] = []
            slots.on_given_back = lambda port=port, busy=busy_at_release, clients=setting.clients: busy.append(
                sockets_to(port) - clients.free_count
            )

            was_cancelled = await cancelled_at(
                step, setting.ask(setting.target(), setting.target("other", api_key_env=None))
            )

            assert slots.held == set()
            assert len(slots.given_back) == len(set(slots.given_back))
            # Nothing is open but what is kept for the next call: that of an answer whose last byte was there.
            assert set(busy_at_release) <= {0}
            await until(lambda provider=provider: provider.in_flight == 0)
            recorded = [record.call for record in setting.records]
            assert len(recorded) == len(set(recorded))
            # What the provider heard of is in the account.
            assert {headers["x-client-request-id"] for headers in provider.headers} <= set(recorded)
            assert len(slots.asked) - len(recorded) <= 1
            seen |= set(setting.statuses)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        step += 1

    assert step > 15
    assert seen == statuses


async def test_before_it_was_sent_it_gives_its_slot_back_as_one_that_was_not_used(scene: Scene) -> None:
    class Nowhere(Clients):
        async def send(self, provider: ProviderSettings, request: httpx.Request) -> httpx.Response:
            await asyncio.get_running_loop().create_future()
            raise AssertionError("nobody sets it")

    async with scene() as setting:
        setting.clients = Nowhere()
        with pytest.raises(TimeoutError):  # which is made of no cancel but a plain one
            async with asyncio.timeout(0.05):
                await setting.ask()

    assert list(setting.slots.outcomes.values()) == [None]
    assert setting.slots.cut == []
    assert setting.records == []


async def test_an_error_answer_is_a_refusal_also_where_its_body_was_not_waited_for(scene: Scene, replies: Any) -> None:
    has_head = asyncio.Event()

    class Told(Clients):
        async def send(self, provider: ProviderSettings, request: httpx.Request) -> httpx.Response:
            response = await super().send(provider, request)
            has_head.set()
            return response

    stuck = replies.refusal(*BUSY)
    stuck.body, stuck.chunks, stuck.hang = b"", (b'{"error":',), "body"
    async with scene(stuck) as setting:
        setting.clients = Told()
        task = asyncio.create_task(setting.ask())
        await has_head.wait()
        task.cancel()
        await asyncio.wait([task])

    assert task.cancelled()
    assert setting.statuses == [CallStatus.REFUSED]
    [outcome] = setting.slots.outcomes.values()
    assert outcome is not None
    assert outcome.fault is not None
    assert outcome.fault.status == 429
    assert len(setting.slots.cut) == 1


async def test_the_stream_is_closed_at_once(scene: Scene, replies: Any, until: Callable[..., Any]) -> None:
    still = replies.cut("half of")
    still.hang = "body"
    async with scene(still) as setting:
        task = asyncio.create_task(setting.ask(setting.target(timeouts=PATIENT)))
        await until(lambda: setting.events != [])
        task.cancel()
        await asyncio.wait([task])

        await until(lambda: setting.provider.in_flight == 0, within_s=0.5)
    assert setting.statuses == [CallStatus.CANCELLED]
    assert setting.records[0].usage is None


async def test_what_had_come_is_handed_over_as_a_piece(scene: Scene, replies: Any, until: Callable[..., Any]) -> None:
    still = replies.cut("half of")
    still.hang = "body"
    async with scene(still) as setting:
        task = asyncio.create_task(setting.ask(setting.target(timeouts=PATIENT)))
        await until(lambda: setting.events != [])
        task.cancel()
        await asyncio.wait([task])

    assert setting.partial == ["half of"]


async def test_a_call_that_is_cancelled_hears_nothing_more_of_a_provider_that_goes_on(
    scene: Scene, replies: Any, until: Callable[..., Any]
) -> None:
    endless = replies.cut("again ")
    endless.chunks = endless.chunks[:1] + endless.chunks[1:] * 20_000
    async with scene(endless) as setting:
        task = asyncio.create_task(setting.ask(setting.target(timeouts=PATIENT)))
        await until(lambda: len(setting.events) > 10)
        task.cancel()
        await asyncio.wait([task])
        heard = len(setting.events)
        await until(lambda: setting.provider.in_flight == 0)

    assert len(setting.events) == heard < 20_000
    assert setting.partial == ["again " * heard]
