"""`covey doctor` as it is called: on a running fleet, on nothing, and with providers that answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

COVEY = [sys.executable, "-P", "-m", "covey"]


def doctor(home: Path, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    return covey(home, "doctor", *args, **more)


def covey(home: Path, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "ZAI_API_KEY"}
    environ = {**kept, "COVEY_HOME": str(home), **more}
    return subprocess.run([*COVEY, *args], env=environ, capture_output=True, text=True, timeout=60)


def checks(done: subprocess.CompletedProcess[str], check: str) -> list[dict[str, Any]]:
    return [finding for finding in json.loads(done.stdout)["checks"] if finding["check"] == check]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "h"
    folder.mkdir(mode=0o700)
    return folder


def test_a_finding_is_a_line_and_what_to_do_stands_below_it(home: Path) -> None:
    (home / "config.yaml").write_text("providers:\n  zai:\n    max_concurrent: 1\n")

    done = doctor(home)

    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "ZAI_API_KEY is not set" in line)
    assert done.returncode == 0
    assert lines[at].startswith("warn  keys")
    assert lines[at + 1].strip() == "→ `covey auth add zai`, or export ZAI_API_KEY=… where covey is started"
    assert lines[-1].endswith("0 to mend")
    assert "\x1b" not in done.stdout


def test_something_that_fails_is_1_and_programs_get_all_of_it(home: Path) -> None:
    (home / "config.yaml").write_text("fleet: 7\n")

    done = doctor(home, "--json")

    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert said["home"] == str(home)
    assert said["fail"] == len([finding for finding in said["checks"] if finding["level"] == "fail"]) == 1
    assert set(said["checks"][0]) == {"check", "level", "says", "to_do"}


def test_a_running_fleet_is_asked_and_its_variables_are_looked_at_by_name() -> None:
    with tempfile.TemporaryDirectory(prefix="cvd-", dir="/tmp") as folder:
        home = Path(folder) / "h"
        home.mkdir(mode=0o700)
        (home / "config.yaml").write_text("model:\n  provider: zai\n  name: glm-4.6\n")
        try:
            assert covey(home, "up", "--detach").returncode == 0

            done = doctor(home, "--json", ZAI_API_KEY="sk-very-secret")

            assert [one["level"] for one in checks(done, "fleet")] == ["ok"]
            assert checks(done, "state.db")[0]["says"].startswith("owned by the running ledger")
            assert checks(done, "keys")[0]["says"] == "zai: the running fleet was started without ZAI_API_KEY"
            assert done.returncode == 1
            assert "sk-very-secret" not in done.stdout + done.stderr
        finally:
            covey(home, "down", "--timeout", "5")


class Provider(BaseHTTPRequestHandler):
    """Knows one key, and its models."""

    def do_GET(self) -> None:
        knows = self.path == "/v1/models" and self.headers.get("authorization") == "Bearer sk-good"
        body = b'{"object": "list", "data": []}' if knows else b"{}"
        self.send_response(200 if knows else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("key", "level", "says"),
    [
        ("sk-good", "ok", "sim answers and takes the key"),
        ("sk-bad", "fail", "sim does not take the key (HTTP 401)"),
    ],
)
def test_online_a_provider_is_asked_once(home: Path, provider: str, key: str, level: str, says: str) -> None:
    (home / "config.yaml").write_text(f"providers:\n  sim:\n    base_url: {provider}\n    api_key_env: SIM_KEY\n")

    (finding,) = checks(doctor(home, "--json", "--online", SIM_KEY=key), "online")

    assert (finding["level"], finding["says"]) == (level, says)


def test_offline_nobody_is_asked(home: Path) -> None:
    (home / "config.yaml").write_text("providers:\n  sim:\n    base_url: http://127.0.0.1:1/v1\n")

    assert checks(doctor(home, "--json"), "online") == []
    (finding,) = checks(doctor(home, "--json", "--online"), "online")
    assert finding["says"].startswith("sim cannot be reached: ConnectError")
