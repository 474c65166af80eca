"""The SDKs of OpenAI and Anthropic, as they are, on the fleet's transports: a real fleet, a real provider over HTTP.

The provider takes one call at a time and refuses a second; the fleet allows as many. What the SDKs do by themselves
(retries, closing streams, wrapping errors) is part of what is tested.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import anthropic
import httpx
import httpx2
import openai
import pytest

from covey import AsyncFleetTransport, Fleet, FleetTransport, errors, local_refusal
from covey.bench.provider_calls import ProviderCall
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.protocol.destination import budget_key, fingerprint

pytestmark = pytest.mark.kill

ASK: Any = [{"role": "user", "content": "say: one two three four"}]
RESET = datetime.now(timezone(timedelta(hours=8))).replace(microsecond=0) + timedelta(hours=2)
"""Z.AI's stamps are in UTC+8, and do not say so."""

SCRIPT = """
rules:
  - model: ^busy$
    turns: [{refuse: {code: "1305"}}]
  - model: ^wall$
    turns: [{refuse: {code: "1308", message: "Usage limit reached for 5 hour. Your limit will reset at RESET"}}]
  - model: ^closed$
    turns: [{refuse: {code: "1313"}}]
  - model: ^in-band$
    turns: [{refuse: {code: "1303"}}]
  - model: ^endless$
    turns: [{say: "and so on and so on and so on and so on", chunks: 30, chunk_pace_s: 1}]
moods:
  in_band: ["1303"]
"""


@dataclass
class Place:
    """A fleet, the provider behind it, and this program in it."""

    fleet: Fleet
    provider: ProviderProcess
    home: Path
    key: str = ""
    """Names an account that no other test has: what one did to its budget is not the next one's trouble."""

    @property
    def root(self) -> str:
        """The provider's address without a path."""
        return self.provider.base_url.removesuffix("/v1")

    def openai(self, http: Any = None, **how: Any) -> Any:
        """OpenAI's client, with the retries it comes with."""
        transport = FleetTransport(self.fleet, **how)
        client: Any = (http or httpx.Client)(transport=transport)  # either library's
        return openai.OpenAI(base_url=self.provider.base_url, api_key=self.key, http_client=client)

    def anthropic(self, **how: Any) -> Any:
        """Anthropic's client, on the door that Z.AI has for it."""
        transport = FleetTransport(self.fleet, **how)
        return anthropic.Anthropic(
            base_url=f"{self.root}/api/anthropic",
            api_key=self.key,
            http_client=anthropic.DefaultHttpxClient(transport=transport),
        )

    def budget(self) -> Any:
        """This account's."""
        found = self.fleet.status(deadline_s=5.0).budgets
        assert found is not None
        return next(budget for budget in found if budget.key == budget_key("sim", fingerprint(self.key)))

    def rows(self, calls: tuple[ProviderCall, ...]) -> dict[str, tuple[str, int | None, int | None]]:
        """What state.db has of these calls: status and tokens."""
        self.fleet.flush()
        wanted = {call.client_request_id for call in calls}
        return {
            row.call: (
                row.status,
                row.usage.prompt_tokens if row.usage else None,
                row.usage.completion_tokens if row.usage else None,
            )
            for row in (stored.record for stored in self.fleet.calls())
            if row.call in wanted
        }


@pytest.fixture(scope="module")
def ground() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="cvs-", dir="/tmp") as folder, ExitStack() as stack:
        home = Path(folder)
        script = home / "script.yaml"
        script.write_text(SCRIPT.replace("RESET", RESET.strftime("%Y-%m-%d %H:%M:%S")))
        options = ProviderOptions(limit=1, think_s=0.02, chunk_pace_s=0.005, script=str(script))
        provider = stack.enter_context(ProviderProcess(options))
        home.joinpath("config.yaml").write_text(
            f"providers:\n  sim:\n    base_url: {provider.base_url}\n    max_concurrent: 1\n"
        )
        try:
            with Fleet.connect(home, name="sdks", timeout=30) as fleet:
                yield Place(fleet, provider, home)
        finally:
            environ = {**os.environ, "COVEY_HOME": folder}
            subprocess.run([sys.executable, "-P", "-m", "covey", "down"], env=environ, check=True, capture_output=True)


@pytest.fixture
def place(ground: Place) -> Place:
    """The same fleet with a provider that remembers nothing."""
    ground.provider.reset()
    return replace(ground, key=f"sk-{uuid4()}")


def agrees(place: Place) -> None:
    """Every call of the provider's books is in ours with the same tokens, and it never saw two at once."""
    calls, stats = place.provider.calls(), place.provider.stats()
    assert stats.peak_in_flight <= 1
    assert place.rows(calls) == {
        call.client_request_id: ("completed", call.prompt_tokens, call.completion_tokens) for call in calls
    }


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("http", [httpx.Client, httpx2.Client], ids=["httpx", "httpx2"])
def test_openai_answers_many_threads_one_after_the_other(place: Place, http: Any) -> None:
    with place.openai(http) as client, ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda _: client.chat.completions.create(model="m", messages=ASK), range(6)))

    assert {answer.choices[0].message.content for answer in answers} == {"one two three four"}
    agrees(place)


def test_openai_streams_to_the_last_byte(place: Place) -> None:
    with place.openai() as client:
        stream = client.chat.completions.create(
            model="m",
            messages=ASK,
            stream=True,
            stream_options={"include_usage": True},
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    assert text == "one two three four"
    agrees(place)


def test_anthropic_answers_and_streams(place: Place) -> None:
    with place.anthropic() as client:
        answer = client.messages.create(model="m", max_tokens=50, messages=ASK)
        with client.messages.stream(model="m", max_tokens=50, messages=ASK) as stream:
            text = stream.get_final_text()

    assert [block.text for block in answer.content if block.type == "text"] == [text] == ["one two three four"]
    agrees(place)


def test_both_draw_on_one_budget_in_asyncio_as_well(place: Place) -> None:
    async def call() -> None:
        async with Fleet.aconnect(place.home, start=False) as fleet:
            one = openai.AsyncOpenAI(
                base_url=place.provider.base_url,
                api_key=place.key,
                http_client=cast("Any", httpx.AsyncClient(transport=AsyncFleetTransport(fleet))),
            )
            other = anthropic.AsyncAnthropic(
                base_url=f"{place.root}/api/anthropic",
                api_key=place.key,
                http_client=anthropic.DefaultAsyncHttpxClient(transport=AsyncFleetTransport(place.fleet)),
            )
            async with one, other:
                await asyncio.gather(
                    *(one.chat.completions.create(model="m", messages=ASK) for _ in range(3)),
                    *(other.messages.create(model="m", max_tokens=9, messages=ASK) for _ in range(3)),
                )
            await fleet.flush()

    asyncio.run(call())

    assert place.provider.stats().completed == 6
    agrees(place)


# --- ends ------------------------------------------------------------------------------------------------------------


def cut_openai(place: Place) -> None:
    with place.openai() as client:
        stream = client.chat.completions.create(model="endless", messages=ASK, stream=True)
        next(iter(stream))
        stream.close()
        follow(place)


def cut_openai_by_walking_away(place: Place) -> None:
    with place.openai() as client:
        for _ in client.chat.completions.create(model="endless", messages=ASK, stream=True):
            break
        gc.collect()  # the SDK's stream refers to itself: without `close`, nothing else ends it
        follow(place)


def cut_anthropic(place: Place) -> None:
    with place.anthropic() as client:
        with client.messages.stream(model="endless", max_tokens=9000, messages=ASK) as stream:
            next(iter(stream))
        follow(place)


def cut_task(place: Place) -> None:
    async def call() -> None:
        client = openai.AsyncOpenAI(
            base_url=place.provider.base_url,
            api_key=place.key,
            http_client=httpx2.AsyncClient(transport=AsyncFleetTransport(place.fleet)),
        )

        async def read() -> None:
            stream: Any = await client.chat.completions.create(model="endless", messages=ASK, stream=True)
            async for _ in stream:
                has_begun.set()

        has_begun = asyncio.Event()
        task = asyncio.ensure_future(read())
        async with client, asyncio.timeout(10):
            await has_begun.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.to_thread(follow, place)

    asyncio.run(call())


def follow(place: Place) -> None:
    """Another call gets through, and is not refused for the one before."""
    with place.openai(timeout=10.0) as client:
        client.chat.completions.create(model="m", messages=ASK)


@pytest.mark.parametrize("cut", [cut_openai, cut_openai_by_walking_away, cut_anthropic, cut_task])
def test_a_stream_that_is_left_in_the_middle_frees_its_slot_at_once(place: Place, cut: Callable[[Place], None]) -> None:
    cut(place)

    stats = place.provider.stats()
    assert (stats.calls, stats.completed, stats.aborted, stats.refused) == (2, 1, 1, {})
    assert sorted(status for status, *_ in place.rows(place.provider.calls()).values()) == ["cancelled", "completed"]


# --- errors ----------------------------------------------------------------------------------------------------------


def test_a_refusal_of_the_provider_is_told_once_and_not_repeated_by_the_sdk(place: Place) -> None:
    with place.openai() as client, pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(model="busy", messages=ASK)

    assert local_refusal(refused.value) is None
    assert place.provider.stats().refused == {"1305": 1}


def test_anthropic_does_not_repeat_it_either(place: Place) -> None:
    with place.anthropic() as client, pytest.raises(anthropic.APIStatusError):
        client.messages.create(model="busy", max_tokens=9, messages=ASK)

    assert place.provider.stats().refused == {"1305": 1}


def test_an_error_inside_a_stream_that_began_as_a_success_is_in_the_books(place: Place) -> None:
    with place.openai() as client, pytest.raises(openai.APIError) as refused:
        list(client.chat.completions.create(model="in-band", messages=ASK, stream=True))

    assert local_refusal(refused.value) is None
    place.fleet.flush()
    row = place.fleet.calls()[-1].record
    assert (row.status, row.usage) == ("failed", None)
    assert row.fault is not None
    assert "1303" in row.fault


def test_a_used_up_window_parks_the_account_and_the_next_call_hears_until_when(place: Place) -> None:
    with place.openai(timeout=1.0) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(model="wall", messages=ASK)
        with pytest.raises(errors.BudgetParked) as parked:
            client.chat.completions.create(model="m", messages=ASK)

    assert local_refusal(refused.value) is None
    assert abs((parked.value.until or 0) - RESET.timestamp()) < 60
    assert parked.value.budget == budget_key("sim", fingerprint(place.key))
    assert (place.provider.stats().calls, place.provider.stats().refused) == (0, {"1308": 1})


def test_a_closed_account_is_locked_for_anthropic_too(place: Place) -> None:
    with place.anthropic() as client:
        with pytest.raises(anthropic.APIStatusError):
            client.messages.create(model="closed", max_tokens=9, messages=ASK)
        with pytest.raises(errors.BudgetLocked) as locked:
            client.messages.create(model="m", max_tokens=9, messages=ASK)

    assert isinstance(locked.value, anthropic.AnthropicError)
    assert (place.provider.stats().calls, place.provider.stats().refused) == (0, {"1313": 1})


@pytest.fixture
def occupied(place: Place) -> Iterator[Place]:
    """Somebody else has the only slot."""
    with place.fleet.slot(place.provider.base_url, model="m", api_key=place.key, accounted=False):
        yield place


def test_no_slot_in_time_reaches_the_program_as_the_fleet_s_own_error(occupied: Place) -> None:
    with occupied.openai(timeout=0.05) as client, pytest.raises(errors.SlotTimeout) as late:
        client.chat.completions.create(model="m", messages=ASK)

    assert (late.value.queued, occupied.provider.stats().calls) == (0, 0)
    assert isinstance(late.value, openai.OpenAIError)


def test_with_anthropic_too(occupied: Place) -> None:
    before = occupied.budget()
    with occupied.anthropic(timeout=0.05) as client, pytest.raises(errors.SlotTimeout) as late:
        client.messages.create(model="m", max_tokens=9, messages=ASK)

    assert isinstance(late.value, anthropic.AnthropicError)
    assert occupied.provider.stats().calls == 0
    assert occupied.budget().granted == before.granted


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_as_an_answer_it_is_no_silence_and_is_not_repeated(occupied: Place, sdk: str) -> None:
    with getattr(occupied, sdk)(timeout=0.05, refusal="response") as client:
        complete = client.chat.completions.create if sdk == "openai" else client.messages.create
        with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)) as refused:
            complete(model="m", max_tokens=9, messages=ASK)

    assert isinstance(local_refusal(refused.value), errors.SlotTimeout)
    assert cast("Any", refused.value).response.headers["x-covey-refused"] == "timeout"


def test_an_interrupt_ends_the_wait_of_an_sdk(occupied: Place, until: Callable[[Callable[[], bool]], None]) -> None:
    stop = threading.Event()

    def when_queued() -> bool:
        if occupied.budget().queued:
            stop.set()
        return stop.is_set()

    with occupied.anthropic(interrupt=when_queued) as client, pytest.raises(InterruptedError):
        client.messages.create(model="m", max_tokens=9, messages=ASK)

    until(lambda: occupied.budget().queued == 0)
    with occupied.openai(interrupt=stop) as client, pytest.raises(InterruptedError):
        client.chat.completions.create(model="m", messages=ASK)
