"""`covey budget` on a real fleet with the simulated provider."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from covey.bench.provider_moods import Moods, Window
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess

COVEY = [sys.executable, "-P", "-m", "covey"]
QUOTA = b'{"data": {"limits": [{"type": "TOKENS_LIMIT", "unit": 3, "number": 5, "percentage": 100}]}}'


class House:
    """A home with two simulated accounts, and what is asked of it."""

    def __init__(self, home: Path, base_url: str) -> None:
        self.home, self.base_url = home, base_url
        home.mkdir(exist_ok=True)
        self.config = home / "config.yaml"
        self.config.write_text(
            f"providers:\n  sim:\n    base_url: {base_url}\n    max_concurrent: 2\n    api_key_env: SIM_KEY\n"
            "model:\n  provider: sim\n  name: sim-1\n"
        )

    def environ(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("ZAI_API_KEY", "SIM_KEY")}
        return {**kept, "COVEY_HOME": str(self.home), "SIM_KEY": "sk-sim", **more}

    def covey(self, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
        # Not here: an agent works in the folder that it is started in.
        place = {"cwd": self.home.parent, "env": self.environ(**more)}
        return subprocess.run([*COVEY, *args], **place, capture_output=True, text=True, timeout=60)

    def hold_a_slot(self) -> None:
        """Make the account known to the broker, without a call."""
        code = (
            "import sys; from covey import Fleet\n"
            "with Fleet.connect(sys.argv[1]) as fleet:\n"
            "    with fleet.slot(sys.argv[2], model='sim-1', api_key='sk-sim'): pass\n"
        )
        command = [sys.executable, "-P", "-c", code, str(self.home), self.base_url]
        subprocess.run(command, env=self.environ(), check=True, timeout=30)

    def json(self, *args: str, code: int = 0) -> dict[str, Any]:
        done = self.covey(*args, "--json")
        assert done.returncode == code, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with (
        tempfile.TemporaryDirectory(prefix="cvb-", dir="/tmp") as folder,
        ProviderProcess(ProviderOptions(limit=2, think_s=0.05)) as provider,
    ):
        found = House(Path(folder) / "h", provider.base_url)
        up = found.covey("up", "--detach")
        assert up.returncode == 0, up.stderr
        yield found
        found.covey("down", "--timeout", "5")


@pytest.fixture
def nowhere(tmp_path: Path) -> House:
    return House(tmp_path / "h", "http://127.0.0.1:1/v1")


def test_every_budget_is_listed_with_and_without_saying_list(house: House) -> None:
    said = house.json("budget")

    assert said["running"] is True
    assert {budget["provider"] for budget in said["budgets"]} == {"zai", "sim"}
    assert {budget["state"] for budget in said["budgets"]} == {"open"}
    assert house.json("budget", "list").keys() == said.keys()
    lines = house.covey("budget").stdout.splitlines()
    assert lines[0].split()[:2] == ["budget", "state"]
    assert "\x1b" not in "".join(lines)


def test_one_budget_is_shown_after_it_was_used(house: House) -> None:
    assert house.covey("run", "say hi").returncode == 0

    said = house.json("budget", "show", "sim:")

    assert said["granted"] >= 1
    assert (said["provider"], said["in_flight"], said["holders"]) == ("sim", 0, [])
    assert said["key"] in house.covey("budget", "show", said["key"]).stdout


def test_options_before_the_action_count_too(house: House) -> None:
    assert json.loads(house.covey("budget", "--json", "list").stdout)["running"] is True


def test_a_budget_nobody_knows_is_refused_with_the_known_ones(house: House) -> None:
    done = house.covey("budget", "show", "nobody")

    assert done.returncode == 2
    assert re.search(r"valid: .*zai:none", done.stderr)


def test_an_open_budget_is_unlocked_at_no_harm(house: House) -> None:
    said = house.json("budget", "unlock", "zai")

    assert said == {"budget": "zai:none", "state_before": "open"}
    assert house.covey("budget", "unlock", "nobody").returncode == 2


def test_a_limit_is_written_and_the_fleet_keeps_it(house: House) -> None:
    said = house.json("budget", "set-limit", "sim", "3")

    assert (said["provider"], said["limit"], said["in_effect"]) == ("sim", 3, True)
    assert "    max_concurrent: 3\n" in house.config.read_text()
    assert {one["limit"] for one in house.json("budget")["budgets"] if one["provider"] == "sim"} == {3}


def test_a_watch_goes_on_line_by_line_until_it_is_interrupted(house: House) -> None:
    command = [*COVEY, "budget", "--watch", "--interval", "0.1"]
    watching = subprocess.Popen(command, env=house.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    lines = [watching.stdout.readline() for _ in range(3)]
    watching.send_signal(signal.SIGINT)
    _, errors = watching.communicate(timeout=20)

    assert watching.returncode == 130
    assert errors == "covey: interrupted\n"
    for line in lines:
        assert re.match(r"\d\d:\d\d:\d\d .*zai:none open, 0 of 2, 0 queued", line)


def test_a_watch_for_programs_is_an_object_a_look(house: House) -> None:
    command = [*COVEY, "budget", "list", "--json", "--watch", "--interval", "0.1"]
    watching = subprocess.Popen(command, env=house.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=20)

    assert first["running"] is True
    assert second["at_ms"] > first["at_ms"]
    assert second["problem"] is None


# --- without a fleet -------------------------------------------------------------------------------------------------


def test_without_a_fleet_the_list_is_empty_and_nothing_can_be_unlocked(nowhere: House) -> None:
    assert nowhere.json("budget")["running"] is False
    assert "no fleet runs" in nowhere.covey("budget").stdout
    assert nowhere.covey("budget", "unlock", "zai").returncode == 1
    assert nowhere.covey("budget", "show", "zai").returncode == 1


def test_without_a_fleet_a_limit_is_written_for_the_next(nowhere: House) -> None:
    said = nowhere.json("budget", "set-limit", "zai:1f2e", "1", "--model", "glm-4.6")

    assert (said["provider"], said["model"], said["in_effect"]) == ("zai", "glm-4.6", None)
    assert '    max_concurrent: {"*": 2, glm-4.6: 1}\n' in nowhere.config.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nobody", "1"), "valid: zai, sim"),
        (("sim", "many"), "not a whole number"),
        (("sim", "-1"), "-1"),
    ],
)
def test_what_cannot_be_a_limit_is_refused_and_nothing_written(
    nowhere: House, words: tuple[str, ...], says: str
) -> None:
    before = nowhere.config.read_text()

    done = nowhere.covey("budget", "set-limit", *words)

    assert done.returncode == 2
    assert says in done.stderr
    assert nowhere.config.read_text() == before


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "often"])
def test_an_interval_that_cannot_be_kept_is_refused(nowhere: House, interval: str) -> None:
    assert nowhere.covey("budget", "--watch", f"--interval={interval}").returncode == 2


# --- quota -----------------------------------------------------------------------------------------------------------


class Quota(BaseHTTPRequestHandler):
    """A quota endpoint that knows one key."""

    def do_GET(self) -> None:
        knows = self.path == "/api/monitor/usage/quota/limit" and "sk-sim" in self.headers.get("authorization", "")
        self.send_response(200 if knows else 401)
        body = QUOTA if knows else b"{}"
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def planned(tmp_path: Path) -> Iterator[House]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Quota)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield House(tmp_path / "h", f"http://127.0.0.1:{server.server_port}/v1")
    server.shutdown()
    server.server_close()


def test_a_quota_is_read_without_a_fleet(planned: House) -> None:
    (account,) = planned.json("budget", "quota", "sim")["accounts"]

    assert re.fullmatch(r"sim:[0-9a-f]{12}", account.pop("budget"))
    assert account == {
        "provider": "sim",
        "key": "SIM_KEY",
        "windows": [{"name": "TOKENS_LIMIT 5 h", "used_percent": 100.0, "resets_at_ms": None, "blocks": True}],
        "is_blocked": True,
        "problem": None,
        "told_fleet": None,
    }
    assert "100 % used, reset not known, calls are refused" in planned.covey("budget", "quota", "sim").stdout


def test_a_quota_that_cannot_be_read_is_a_failure_without_the_key(planned: House) -> None:
    done = planned.covey("budget", "quota", "sim", SIM_KEY="sk-wrong")

    assert done.returncode == 1
    assert "401" in done.stdout
    assert "sk-wrong" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [((), "set ZAI_API_KEY"), (("nobody",), "valid: zai, sim"), (("zai",), "set ZAI_API_KEY")],
)
def test_without_a_key_there_is_no_quota_to_read(planned: House, words: tuple[str, ...], says: str) -> None:
    done = planned.covey("budget", "quota", *words)

    assert done.returncode == 2
    assert says in done.stderr


def test_a_running_fleet_is_told_and_parks_the_account(planned: House) -> None:
    try:
        assert planned.covey("up", "--detach").returncode == 0
        planned.hold_a_slot()
        (account,) = planned.json("budget", "quota", "sim")["accounts"]
        key = account["budget"]

        assert account["told_fleet"] is True
        deadline = time.monotonic() + 5
        while (found := planned.covey("budget", "show", key, "--json")).returncode != 3:
            assert time.monotonic() < deadline, found
        shown = json.loads(found.stdout)
        assert shown["state"] == "parked"
        assert shown["quota"] == account["windows"]
        assert planned.json("budget", "unlock", key) == {"budget": key, "state_before": "parked"}
    finally:
        planned.covey("down", "--timeout", "5")


def test_a_worker_reads_the_quota_after_a_call_and_the_account_says_what_is_left(tmp_path: Path) -> None:
    with ProviderProcess(ProviderOptions(limit=2, think_s=0.02)) as provider:
        house = House(tmp_path / "h", provider.base_url)
        house.config.write_text(
            house.config.read_text().replace("    api_key_env", "    quota_poll_seconds: 1\n    api_key_env")
        )
        provider.set_moods(Moods(windows=(Window(percentage=40), Window(type="TIME_LIMIT", unit=5, number=1))))
        try:
            assert house.covey("up", "--detach").returncode == 0
            assert house.covey("run", "say hi").returncode == 0

            deadline = time.monotonic() + 5
            while not (shown := house.json("budget", "show", "sim"))["quota"]:
                assert time.monotonic() < deadline, shown
            assert [(one["name"], one["used_percent"], one["blocks"]) for one in shown["quota"]] == [
                ("TOKENS_LIMIT 5 h", 40.0, True),
                ("TIME_LIMIT 1 month", 0.0, False),
            ]
            assert shown["state"] == "open"
        finally:
            house.covey("down", "--timeout", "5")
