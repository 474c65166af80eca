"""`covey usage` and `covey sessions` on real fleets with the simulated provider, and after them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess

COVEY = [sys.executable, "-P", "-m", "covey"]
PATIENCE_S = 20.0


class House:
    """A home with a priced model of a simulated provider, and what is asked of it."""

    def __init__(self, home: Path, base_url: str) -> None:
        self.home, self.session = home, ""
        home.mkdir()
        (home / "work").mkdir()
        (home / "config.yaml").write_text(
            f"providers:\n  sim:\n    base_url: {base_url}\n    max_concurrent: 2\n"
            "    prices:\n      sim-1: {input: 1, output: 10}\n"
            "    credits:\n      sim-1: {input: 0, output: 0, request: 1}\n"
            "model:\n  provider: sim\n  name: sim-1\n"
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        environ = {**os.environ, "COVEY_HOME": str(self.home)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*COVEY, *args], env=environ, cwd=self.home / "work", text=True, **pipes)

    def covey(self, *args: str) -> subprocess.CompletedProcess[str]:
        with self.start(*args) as child:
            out, err = child.communicate(timeout=60)
        return subprocess.CompletedProcess(args, child.returncode, out, err)

    def json(self, *args: str, code: int = 0) -> dict[str, Any]:
        done = self.covey(*args, "--json")
        assert done.returncode == code, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    with ProviderProcess(ProviderOptions(limit=2, think_s=0.02)) as provider:
        yield provider


@pytest.fixture(scope="module")
def house(provider: ProviderProcess) -> Iterator[House]:
    with tempfile.TemporaryDirectory(prefix="cvu-", dir="/tmp") as folder:
        found = House(Path(folder) / "h", provider.base_url)
        up = found.covey("up", "--detach")
        assert up.returncode == 0, up.stderr
        found.session = found.json("run", "count the geese")["session"]
        yield found
        found.covey("down", "--timeout", "5")


@pytest.fixture(scope="module")
def session(house: House) -> str:
    """One that ran to its end."""
    return house.session


@pytest.fixture
def nowhere(tmp_path: Path) -> House:
    return House(tmp_path / "h", "http://127.0.0.1:1/v1")


# --- usage -----------------------------------------------------------------------------------------------------------


def test_usage_is_what_the_provider_counted_and_costs_what_the_prices_say(
    house: House, provider: ProviderProcess
) -> None:
    total = house.json("usage")["total"]
    stats = provider.stats()

    tokens_in, tokens_out = stats.prompt_tokens, stats.completion_tokens
    assert (total["calls"], total["prompt_tokens"], total["completion_tokens"]) == (stats.calls, tokens_in, tokens_out)
    assert total["cost_usd"] == pytest.approx((tokens_in + 10 * tokens_out) / 1_000_000)
    assert (total["cost_known_calls"], total["credits"]) == (stats.calls, stats.calls)
    assert total["coverage"] == 1.0


@pytest.mark.parametrize("by", ["model", "session", "tree", "day", "profile"])
def test_every_grouping_adds_up_to_the_total(house: House, by: str) -> None:
    said = house.json("usage", "--by", by)

    assert (said["by"], said["running"], said["is_complete"]) == (by, True, True)
    for field in ("calls", "prompt_tokens", "completion_tokens"):
        assert sum(row[field] for row in said["rows"]) == said["total"][field]


def test_people_see_a_table_and_a_chart(house: House) -> None:
    table, chart = house.covey("usage"), house.covey("usage", "--plot")

    assert table.stdout.splitlines()[0].split()[:3] == ["model", "calls", "reported"]
    assert "sim/sim-1" in table.stdout
    assert "████" in chart.stdout
    assert "\x1b" not in table.stdout + chart.stdout


def test_calls_before_a_time_are_left_out(house: House) -> None:
    assert house.json("usage", "--since", "1h")["total"]["calls"] > 0
    assert house.json("usage", "--since", "2999-01-01")["rows"] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--since", "soon"), "24h"),
        (("--plot", "chart.gif"), ".png"),
        (("--plot", "nowhere/chart.png"), "no folder"),
        (("--by", "moon"), "profile"),
        (("--limit", "0"), "at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(nowhere: House, words: tuple[str, ...], says: str) -> None:
    done = nowhere.covey("usage", *words)

    assert done.returncode == 2
    assert says in done.stderr


def test_where_nothing_was_kept_there_is_nothing_to_show(nowhere: House) -> None:
    assert nowhere.json("usage")["rows"] == []
    assert nowhere.json("sessions") == {"sessions": [], "next": None}
    assert nowhere.json("sessions", "search", "geese")["hits"] == []
    assert nowhere.covey("sessions", "show", "ses_x").returncode == 2
    assert not (nowhere.home / "state.db").exists()


# --- sessions --------------------------------------------------------------------------------------------------------


def test_sessions_are_listed_page_by_page(house: House, session: str) -> None:
    second = house.json("run", "count the swans")["session"]

    first_page = house.json("sessions", "list", "--limit", "1", "--source", "run")
    second_page = house.json("sessions", "--limit", "1", "--after", second, "list", "--source", "run")

    assert ([one["session"] for one in first_page["sessions"]], first_page["next"]) == ([second], second)
    assert [one["session"] for one in second_page["sessions"]] == [session]
    assert f"--after {second}" in house.covey("sessions", "--limit", "1").stdout


def test_a_session_is_shown_with_its_end_its_cost_and_all_that_was_said(house: House, session: str) -> None:
    said = house.json("sessions", "show", session[:10])
    text = house.covey("sessions", "show", session).stdout

    assert (said["session"], said["state"], said["goal"]) == (session, "done", "count the geese")
    assert said["tree"]["calls"] == sum(message["role"] == "assistant" for message in said["transcript"])
    assert [message["index"] for message in said["transcript"]] == list(range(said["messages"]))
    assert "→ write_file(" in text
    assert "tool write_file" in text
    assert said["result"] in text


def test_words_are_found_with_their_places(house: House, session: str) -> None:
    found = house.json("sessions", "search", "geese", "--session", session)

    first = found["hits"][-1]
    assert (first["session"], first["index"], first["role"]) == (session, 0, "user")
    assert [first["snippet"][begin:end] for begin, end in first["matches"]] == ["geese"]
    assert "count the geese" in house.covey("sessions", "search", "gee*").stdout
    assert house.covey("sessions", "search", "albatross").stdout == "nothing was found\n"


def test_an_export_has_the_session_its_messages_and_its_calls(house: House, session: str, tmp_path: Path) -> None:
    file = tmp_path / "geese.jsonl"

    done = house.covey("sessions", "export", session, "--out", str(file))

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    shown = house.json("sessions", "show", session)
    assert done.returncode == 0, done.stderr
    assert {line["session"] for line in lines} == {session}
    assert [line["part"] for line in lines].count("message") == shown["messages"]
    assert [line["part"] for line in lines].count("call") == shown["tree"]["calls"]
    assert all(line["cost_estimated_nusd"] > 0 for line in lines if line["part"] == "call")
    assert file.stat().st_mode & 0o777 == 0o600
    assert house.covey("sessions", "export", session, "--out", str(file)).returncode == 2


def test_a_session_that_ended_is_gone_on_with_in_a_new_one(house: House, session: str) -> None:
    result = house.json("sessions", "resume", session, "and the swans")

    old, new = house.json("sessions", "show", session), house.json("sessions", "show", result["session"])
    count = old["messages"]
    assert result["session"] != session
    assert (new["conversation"], new["source"], new["state"]) == (session, "resume", "done")
    assert [one["content"] for one in new["transcript"][:count]] == [one["content"] for one in old["transcript"]]
    assert (new["transcript"][count]["role"], new["transcript"][count]["content"]) == ("user", "and the swans")
    assert "and the swans" in result["text"]


def test_a_last_word_needs_another_one(house: House, session: str) -> None:
    done = house.covey("sessions", "resume", session)

    assert done.returncode == 2
    assert "TEXT" in done.stderr


def test_without_a_fleet_the_books_say_the_same(tmp_path: Path) -> None:
    with ProviderProcess(ProviderOptions(limit=2, think_s=0.02)) as provider:
        house = House(tmp_path / "h", provider.base_url)
        session = house.json("run", "count the ducks")["session"]  # a fleet for as long as that takes

    usage = house.json("usage", "--by", "session")
    assert (usage["running"], [row["key"] for row in usage["rows"]]) == (False, [session])
    assert house.json("sessions", "show", session)["state"] == "done"
    assert house.json("sessions", "search", "ducks")["hits"]


@pytest.mark.kill
@pytest.mark.parametrize("text", [None, "be quick"], ids=["as it was", "with a new word"])
def test_a_session_whose_fleet_was_killed_goes_on_as_itself(tmp_path: Path, text: str | None) -> None:
    with ProviderProcess(ProviderOptions(limit=2, think_s=0.3)) as provider:
        house = House(tmp_path / "h", provider.base_url)
        with house.start("run", "count the cranes") as child:
            wait_for(lambda: provider.stats().completed >= 2)
            child.kill()
            os.kill(json.loads((house.home / "run" / "root.json").read_text())["pid"], signal.SIGKILL)
        wait_for(lambda: provider.stats().in_flight == 0)
        before = provider.stats()
        (left,) = house.json("sessions")["sessions"]

        result = house.json("sessions", "resume", left["session"], *([text] if text else []))

        shown = house.json("sessions", "show", left["session"])
        assert left["state"] == "open"
        assert (result["session"], result["outcome"], shown["state"]) == (left["session"], "done", "done")
        assert [message["index"] for message in shown["transcript"]] == list(range(shown["messages"]))
        assert (text in [message["content"] for message in shown["transcript"]]) is (text is not None)
        assert before.completed < provider.stats().completed


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.01)
