"""The control doors of the simulated provider: moods at run time."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from covey.bench.provider_moods import FairUse, Moods, Overload
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.bench.script_file import scenario_path

ASK = {"model": "m", "messages": [{"role": "user", "content": "say: x"}]}


@pytest.fixture(scope="module")
def server() -> Iterator[ProviderProcess]:
    options = ProviderOptions(limit=3, think_s=0, chunk_pace_s=0, script=scenario_path("rpm-1302"))
    with ProviderProcess(options) as running:
        yield running


@pytest.fixture
def http(server: ProviderProcess) -> Iterator[httpx.Client]:
    server.clear()
    server.reset()
    with httpx.Client(base_url=server.root_url, trust_env=False) as client:
        yield client


def test_a_change_keeps_the_other_moods_and_a_clear_brings_the_scripts_back(http: httpx.Client) -> None:
    changed = http.post("/control/moods", json={"language": "zh", "rpm": None}).json()
    now = http.get("/control/moods").json()
    cleared = http.post("/control/clear").json()

    assert changed == now
    assert (now["limit"], now["language"], now["rpm"]) == (50, "zh", None)
    assert (cleared["language"], cleared["rpm"]["requests"]) == ("en", 5)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b'{"limt": 1}', "limt", id="unknown key"),
        pytest.param(b'{"limit": -1}', "$.limit", id="out of range"),
        pytest.param(b"{", "truncated", id="no JSON"),
        pytest.param(b"[]", "object", id="no object"),
        pytest.param(b"\xff", "", id="no text"),
        pytest.param(b'{"plan_keys": "("}', "regular expression", id="no regular expression"),
    ],
)
def test_a_change_that_cannot_be_meant_changes_nothing(http: httpx.Client, body: bytes, says: str) -> None:
    before = http.get("/control/moods").json()
    answer = http.post("/control/moods", content=body)

    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]
    assert http.get("/control/moods").json() == before


def test_a_locked_account_is_unlocked_by_the_door_only(http: httpx.Client, server: ProviderProcess) -> None:
    server.set_moods(Moods(overload=Overload(answers=2), fair_use=FairUse(refusals=2)))
    codes = [http.post("/v1/chat/completions", json=ASK).json()["error"]["code"] for _ in range(3)]
    locked = server.accounts().accounts["none"].locked
    http.post("/reset")
    still = http.post("/v1/chat/completions", json=ASK).json()["error"]["code"]
    unlocked = server.unlock().accounts["none"].locked

    assert (codes, locked, still, unlocked) == (["1305", "1305", "1313"], True, "1313", False)
    assert http.post("/v1/chat/completions", json=ASK).status_code == 200


def test_the_control_doors_are_closed_to_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    from covey.bench.provider_http import Connection, Request, Response
    from covey.bench.provider_server import Provider
    from covey.bench.script import Script

    monkeypatch.setattr(Connection, "is_local", False)
    provider = Provider(ProviderOptions(), Script())
    client = Connection(provider._handle, set())
    request = Request("POST", "/control/unlock", {}, {}, b"")

    answer = provider._handle(request, client)
    assert isinstance(answer, Response)
    assert answer.status == 403
