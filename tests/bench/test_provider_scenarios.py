"""The scenarios that come along, played over real HTTP: each shows the mood it is named after."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import msgspec
import pytest

from covey.bench.provider_moods import Bodies, Death
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.bench.script_file import scenario_path
from covey.protocol.destination import fingerprint
from covey.protocol.faults import FaultKind, classify

CHAT = "/api/coding/paas/v4/chat/completions"
MESSAGES = "/api/anthropic/v1/messages"
PATHS = pytest.mark.parametrize("path", [CHAT, MESSAGES], ids=["chat", "messages"])
KEY = {"Authorization": "Bearer one"}


@contextmanager
def playing(name: str, **options: Any) -> Iterator[tuple[ProviderProcess, httpx.Client]]:
    given = {"think_s": 0.0, "chunk_pace_s": 0.0, "limit": 50, "script": scenario_path(name), **options}
    with (
        ProviderProcess(ProviderOptions(**given)) as provider,
        httpx.Client(base_url=provider.root_url, trust_env=False, headers=KEY, timeout=20) as http,
    ):
        yield provider, http


def ask(text: str = "say: x", *, model: str = "glm-5.2", **more: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": text}], **more}


def eventually(holds: Callable[[], bool], *, within_s: float = 5.0) -> None:
    ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends, f"not within {within_s} s"
        time.sleep(0.005)


def kinds(answers: list[httpx.Response]) -> list[FaultKind | None]:
    """What a client makes of each answer."""
    now = time.time()
    return [
        None if a.status_code == 200 else classify(status=a.status_code, body=a.content, now=now).kind for a in answers
    ]


@contextmanager
def held(provider: ProviderProcess, path: str, *, model: str = "glm-4.7") -> Iterator[None]:
    """A call that stays in flight: its answer stalls before the first byte."""
    moods = provider.clear()
    provider.set_moods(msgspec.structs.replace(moods, bodies=Bodies(dies=Death.STALL, after_chunks=0)))
    body = json.dumps(ask("turns: 1", model=model, stream=True)).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer one\r\nContent-Length: {len(body)}\r\n\r\n"
    before = provider.stats().in_flight
    with socket.create_connection(("127.0.0.1", provider.port)) as client:
        client.sendall(head.encode() + body)
        eventually(lambda: provider.stats().in_flight > before)
        provider.set_moods(moods)
        yield


def test_concurrency_1302_is_told_in_the_first_event_and_both_dialects_share_the_limit() -> None:
    with playing("concurrency-1302") as (provider, http), held(provider, CHAT), held(provider, MESSAGES):
        chat = http.post(CHAT, json=ask(stream=True))
        messages = http.post(MESSAGES, json=ask(stream=True))
        whole = http.post(CHAT, json=ask())
        other = http.post(CHAT, json=ask(), headers={"Authorization": "Bearer two"})
        account = provider.accounts().accounts[fingerprint("one") or ""]

    assert [a.status_code for a in (chat, messages, whole, other)] == [200] * 4
    assert chat.headers["content-type"].startswith("text/event-stream")
    assert re.fullmatch(rb'data: \{"error":\{"code":"1302","message":"[^"]+"\}\}\n\n', chat.content)
    assert re.match(rb'event: error\ndata: \{"type":"error","error":\{.*"code":"1302"', messages.content)
    assert whole.json()["error"]["code"] == "1302"
    assert "choices" in other.json()
    assert (account.peak_in_flight, account.in_flight, account.refused) == (2, 2, {"1302": 3})
    assert account.tokens_refused == 3 * (2 + 4)


def test_concurrency_1302_limits_one_model_more() -> None:
    with playing("concurrency-1302") as (provider, http), held(provider, CHAT, model="glm-5"):
        same = http.post(MESSAGES, json=ask(model="glm-5"))
        other = http.post(MESSAGES, json=ask())

    assert ("error" in same.json(), other.json()["type"]) == (True, "message")


@PATHS
def test_overload_1305_hits_everybody_while_it_lasts(path: str) -> None:
    with playing("overload-1305") as (_, http):
        during = [http.post(path, json=ask(), headers={"Authorization": f"Bearer {n}"}) for n in range(3)]
        moods = http.post("/control/moods", json={"overload": {"to_s": 0}}).json()
        after = http.post(path, json=ask())

    assert moods["overload"]["to_s"] == 0
    assert kinds([*during, after]) == [FaultKind.OVERLOADED] * 3 + [None]
    assert [answer.status_code for answer in during] == [429] * 3


def test_overload_529_ends_with_its_answers() -> None:
    with playing("overload-529") as (_, http):
        answers = [http.post(MESSAGES, json=ask()) for _ in range(9)]

    assert [answer.status_code for answer in answers] == [529] * 8 + [200]
    assert answers[0].json()["error"]["type"] == "overloaded_error"


@PATHS
def test_content_1305_refuses_one_sentence_and_nothing_else(path: str) -> None:
    cursed = "You are a cursed phrase."
    history = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": f"So: {cursed}"}]}
    system = (
        {"system": cursed}
        if path == MESSAGES
        else {"messages": [{"role": "system", "content": cursed}, *ask()["messages"]]}
    )
    with playing("content-1305") as (_, http):
        answers = [http.post(path, json=ask() | more) for more in (system, {}, history, {}, system)]

    bad = FaultKind.OVERLOADED
    assert kinds(answers) == [bad, None, bad, None, bad]


def test_quota_1308_tells_a_stamp_without_a_zone_that_agrees_with_the_quota_endpoint_and_the_trace() -> None:
    with playing("quota-1308") as (_, http):
        refused = http.post(MESSAGES, json=ask())
        chat = http.post(CHAT, json=ask())
        shown = http.get("/api/monitor/usage/quota/limit", headers={"Authorization": "one"}).json()

    five_hours, week, tools, unknown = shown["data"]["limits"]
    reset = datetime.fromtimestamp(five_hours["nextResetTime"] / 1000, timezone(timedelta(hours=8)))
    found = re.fullmatch(
        r"\[1308\]\[Usage limit reached for 5 hour. Your limit will reset at (.{19})\]\[(\d{14})[0-9a-f]+\]",
        refused.json()["error"]["message"],
    )
    assert found is not None
    assert found[1] == f"{reset:%Y-%m-%d %H:%M:%S}"
    assert timedelta(0) <= reset - datetime.strptime(found[2] + "+0800", "%Y%m%d%H%M%S%z") <= timedelta(seconds=21)
    fault = classify(status=chat.status_code, body=chat.content, now=time.time())
    assert (fault.kind, fault.code, fault.resets_at) == (FaultKind.QUOTA, "1308", reset.timestamp())
    assert (five_hours["percentage"], week["percentage"], "nextResetTime" in week) == (100, 40, False)
    assert (tools["type"], tools["remaining"], unknown["type"]) == ("TIME_LIMIT", 0, "SOMETHING_NEW")


def test_a_window_lets_calls_in_again_at_its_stamp() -> None:
    with playing("quota-1308") as (_, http):
        window = {"percentage": 100, "resets_in_s": 0.5}
        http.post("/control/moods", json={"windows": [window]}).raise_for_status()
        limits = http.get("/api/monitor/usage/quota/limit").json()["data"]["limits"]
        resets = limits[0]["nextResetTime"] / 1000
        refused = []
        while (asked_at := time.time()) < resets + 5:
            answer = http.post(CHAT, json=ask())
            if answer.status_code == 200:
                break
            refused.append(asked_at)
            time.sleep(0.02)

    assert answer.status_code == 200
    assert refused
    # Half a tenth: the provider counts with the monotonic clock, this test looks at the wall.
    assert max(refused) < resets + 0.05


def test_quota_weekly_1310_is_told_in_chinese_with_a_number_though_five_hours_are_free() -> None:
    with playing("quota-weekly-1310") as (_, http):
        chat, messages = http.post(CHAT, json=ask()), http.post(MESSAGES, json=ask())
        shown = http.get("/api/monitor/usage/quota/limit").json()["data"]["limits"]

    assert (chat.json()["error"]["code"], messages.json()["error"]["code"]) == (1310, 1310)
    assert re.search(r"您的限额将在 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d 重置", chat.json()["error"]["message"])
    assert kinds([chat, messages]) == [FaultKind.QUOTA] * 2
    assert [(limit["type"], limit["percentage"]) for limit in shown] == [("CREDIT_LIMIT", 0), ("CREDIT_LIMIT", 100)]


def test_quota_shrinking_is_used_up_by_answers() -> None:
    with playing("quota-shrinking") as (_, http):
        first = http.post(CHAT, json=ask("x" * 17_000))
        second = http.post(CHAT, json=ask())
        free = http.post(CHAT, json=ask(), headers={"Authorization": "Bearer two"})

    assert kinds([first, second, free]) == [None, FaultKind.QUOTA, None]


def test_fair_use_1313_locks_who_hammers_until_it_is_unlocked() -> None:
    with playing("fair-use-1313") as (provider, http):
        with held(provider, CHAT):
            codes = [http.post(path, json=ask()).json()["error"]["code"] for path in (CHAT, MESSAGES) * 6]
            other = http.post(CHAT, json=ask(), headers={"Authorization": "Bearer two"})
        eventually(lambda: provider.stats().in_flight == 0)
        locked = http.post(CHAT, json=ask())
        unlocked = provider.unlock()
        after = http.post(CHAT, json=ask())

    assert codes == ["1302"] * 10 + ["1313"] * 2
    assert kinds([other, locked, after]) == [None, FaultKind.LOCKED, None]
    assert not unlocked.accounts[fingerprint("one") or ""].locked


def test_wrong_url_1113_is_told_on_the_first_call_to_either_kind_of_key() -> None:
    general, payg = "/api/paas/v4/chat/completions", {"Authorization": "Bearer payg-1"}
    with playing("wrong-url-1113") as (_, http):
        answers = [
            http.post(general, json=ask()),
            http.post(CHAT, json=ask()),
            http.post(general, json=ask(), headers=payg),
            http.post(MESSAGES, json=ask(), headers=payg),
            http.post("/v1/chat/completions", json=ask(), headers=payg),
            http.post(CHAT, json=ask(model="glm-5v")),
        ]

    poor = FaultKind.NO_BALANCE
    assert kinds(answers) == [poor, None, None, poor, None, FaultKind.MODEL_NOT_IN_PLAN]
    assert answers[1].json()["model"] == "glm-5.3"


def test_slow_headers_come_later_with_every_other_call() -> None:
    with playing("slow-headers") as (provider, http):
        began = time.monotonic()
        http.post(CHAT, json=ask()).raise_for_status()
        alone_s = time.monotonic() - began
        with held(provider, CHAT), held(provider, MESSAGES):
            began = time.monotonic()
            with http.stream("POST", CHAT, json=ask(stream=True)) as answer:
                headers_s = time.monotonic() - began
                answer.read()

    assert alone_s < 1.0 <= headers_s


@PATHS
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "one body"])
def test_dying_bodies_die_as_their_goal_says(path: str, stream: bool) -> None:
    whole = {"choices", "content"}
    with playing("dying-bodies", chunks=6) as (provider, http):
        http.post("/control/moods", json={"bodies": None}).raise_for_status()
        with pytest.raises(httpx.RemoteProtocolError):
            http.post(path, json=ask("die torn", stream=stream))
        half = http.post(path, json=ask("die half_json", stream=stream))
        unended = http.post(path, json=ask("die no_newline", stream=stream))
        error = http.post(path, json=ask("die error", stream=stream))
        with pytest.raises(httpx.ReadTimeout):
            http.post(path, json=ask("die stall", stream=stream), timeout=0.3)
        eventually(lambda: provider.stats().in_flight == 0)
        stats = provider.stats()

    assert (stats.completed, stats.aborted) == (3, 2)
    if not stream:
        with pytest.raises(json.JSONDecodeError):
            half.json()
        assert unended.json().keys() & whole
        assert (error.status_code, error.json()["error"]["code"]) == (500, "1234")
        return
    with pytest.raises(json.JSONDecodeError):
        json.loads(half.text.splitlines()[-1].removeprefix("data: "))
    assert unended.text.splitlines()[-1] in ("data: [DONE]", 'data: {"type":"message_stop"}')
    assert not unended.text.endswith("\n")
    last = error.text.rstrip().splitlines()[-1].removeprefix("data: ")
    assert json.loads(last)["error"]["code"] == "1234"
    assert "This sentence" in error.text


def test_dying_bodies_cut_every_third_of_the_others() -> None:
    with playing("dying-bodies") as (_, http):
        cut = []
        for _ in range(6):
            try:
                http.post(CHAT, json=ask("say: a text in pieces", stream=True))
                cut.append(False)
            except httpx.RemoteProtocolError:
                cut.append(True)

    assert cut == [False, False, True] * 2


@PATHS
def test_release_lag_refuses_who_comes_right_after_the_last_byte(path: str) -> None:
    with playing("release-lag") as (provider, http):
        http.post(path, json=ask()).raise_for_status()
        in_flight = provider.stats().in_flight
        answers = [http.post(path, json=ask())]
        while answers[-1].status_code != 200:
            answers.append(http.post(path, json=ask()))
        first, *refused, last = provider.calls()

    assert in_flight == 0
    assert kinds(answers) == [FaultKind.CONCURRENCY] * len(refused) + [None]
    assert refused
    assert first.ended_s is not None
    assert refused[-1].started_s < first.ended_s + 0.3 <= last.started_s


def test_rpm_1302_refuses_the_sixth_however_few_are_in_flight() -> None:
    with playing("rpm-1302") as (_, http):
        answers = [http.post(CHAT, json=ask()) for _ in range(6)]

    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert answers[-1].json()["error"] == {"code": "1302", "message": "Rate limit reached for requests"}


def test_prompt_cache_reports_what_was_sent_before() -> None:
    history = {"messages": [*ask("first")["messages"], {"role": "assistant", "content": "a"}, *ask("b")["messages"]]}
    with playing("prompt-cache") as (_, http):
        usage = http.post(CHAT, json=ask() | history).json()["usage"]

    assert usage["prompt_tokens_details"] == {"cached_tokens": 2 + 4}


def test_a_reader_that_stalls_hurts_nobody_and_keeps_its_place_until_it_goes() -> None:
    body = json.dumps(ask("say: " + "x" * 24_000_000, stream=True)).encode()
    head = f"POST {MESSAGES} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with ProviderProcess(ProviderOptions(think_s=0, chunk_pace_s=0, chunks=10)) as provider:
        with socket.create_connection(("127.0.0.1", provider.port)) as client:
            client.sendall(head + body)
            client.recv(1)
            others = [httpx.post(provider.root_url + CHAT, json=ask(), trust_env=False) for _ in range(20)]

            assert kinds(others) == [None] * 20
            assert provider.stats().in_flight == 1
        eventually(lambda: provider.stats().aborted == 1, within_s=1.0)
