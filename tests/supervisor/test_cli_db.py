"""`covey db` as it is called: on a home without a fleet, beside a running one, and on damage."""

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

import apsw
import pytest

COVEY = [sys.executable, "-P", "-m", "covey"]
SESSIONS, MESSAGES = 40, 50


def covey(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "COVEY_HOME": str(home)}
    return subprocess.run([*COVEY, *args], env=environ, capture_output=True, text=True, timeout=60)


def said(home: Path, *args: str) -> Any:
    """What a command that has to succeed says as JSON."""
    done = covey(home, *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def make_hermes(path: Path, *, sessions: int = SESSIONS, messages: int = MESSAGES) -> Path:
    """A database with the names that hermes-agent has."""
    connection = apsw.Connection(str(path))
    for statement in (
        "PRAGMA journal_mode = WAL",
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, started_at REAL NOT NULL,"
        " ended_at REAL, input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0, api_call_count INTEGER)",
        "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,"
        " content TEXT, timestamp REAL NOT NULL, active INTEGER NOT NULL DEFAULT 1, compacted INTEGER DEFAULT 0)",
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {sessions})"
        " INSERT INTO sessions SELECT 's' || i, 'cli', 'glm', 1.75e9 + i, 1.75e9 + i + 5, 100, 10, 2 FROM n",
        f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {sessions * messages - 1})"
        f" INSERT INTO messages (session_id, role, content, timestamp) SELECT 's' || (1 + i % {sessions}), 'user',"
        " 'message ' || i || printf('%.300c', 'x'), 1.75e9 FROM n",
    ):
        connection.execute(statement).fetchall()
    connection.close()
    return path


def sums(home: Path) -> tuple[int, int, int]:
    rows = said(home, "db", "stats")["rows"]
    return rows["sessions"], rows["messages"], rows["calls"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "h"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def filled(home: Path, tmp_path: Path) -> Path:
    """A home with what an import brought."""
    said(home, "db", "import", "hermes", str(make_hermes(tmp_path / "hermes.db")))
    return home


# --- without a fleet -------------------------------------------------------------------------------------------------


def test_a_rehearsal_says_what_would_come_and_makes_nothing(home: Path, tmp_path: Path) -> None:
    source = make_hermes(tmp_path / "hermes.db")

    found = said(home, "db", "import", "hermes", str(source), "--dry-run")

    assert (found["dry_run"], found["sessions_new"], found["messages_new"]) == (True, SESSIONS, SESSIONS * MESSAGES)
    assert list(home.iterdir()) == []


def test_an_import_is_the_same_as_its_rehearsal_and_the_second_one_is_empty(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "their home"
    folder.mkdir()
    make_hermes(folder / "state.db")

    first, second = (said(home, "db", "import", "hermes", str(folder)) for _ in range(2))

    assert (first["sessions_new"], first["messages_new"], first["calls_new"]) == (
        SESSIONS,
        SESSIONS * MESSAGES,
        SESSIONS,
    )
    assert (second["sessions_new"], second["messages_new"], second["calls_new"]) == (0, 0, 0)
    assert sums(home) == (SESSIONS, SESSIONS * MESSAGES, SESSIONS)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("import", "hermes", "/nowhere/state.db"), id="import of nothing"),
        pytest.param(("export", "--json"), id="JSON beside the sessions"),
        pytest.param(("export", "--sessions", "ses_x", "--", "-"), id="a session that nobody knows"),
        pytest.param(("backup", "/nowhere/copy.db"), id="a folder that is not there"),
        pytest.param(("backup", "/tmp/copy.db", "--keep", "3"), id="rotation of names that are not ours"),
        pytest.param(("backup", "--keep", "0"), id="no backup kept"),
        pytest.param(("repair", "--timeout", "0"), id="no time"),
    ],
)
def test_what_cannot_be_meant_is_2(filled: Path, words: tuple[str, ...]) -> None:
    done = covey(filled, "db", *words)

    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("covey: ")


def test_the_database_of_this_home_is_nothing_to_import(filled: Path) -> None:
    assert covey(filled, "db", "import", "hermes", str(filled)).returncode == 2


@pytest.mark.parametrize("action", ["check", "stats", "backup", "repair", "vacuum", "export"])
def test_a_home_without_a_database_is_told_so(home: Path, action: str) -> None:
    done = covey(home, "db", action)

    assert done.returncode == 1
    assert "does not exist" in done.stderr


def test_lines_are_sessions_each_followed_by_its_messages_and_calls(filled: Path) -> None:
    done = covey(filled, "db", "export")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["part"] for line in lines[: MESSAGES + 3]] == ["session", *["message"] * MESSAGES, "call", "session"]
    assert len(lines) == SESSIONS * (MESSAGES + 2)


def test_a_document_has_the_sessions_that_were_asked_for(filled: Path, tmp_path: Path) -> None:
    names = [json.loads(line)["session"] for line in covey(filled, "db", "export").stdout.splitlines()][:1]
    dest = tmp_path / "out.json"

    done = said(filled, "db", "export", str(dest), "--format", "json", "--sessions", *names)

    document = json.loads(dest.read_text())
    assert (done["sessions"], done["messages"], done["calls"]) == (1, MESSAGES, 1)
    assert [one["session"] for one in document["sessions"]] == names
    assert [message["idx"] for message in document["sessions"][0]["messages"]] == list(range(MESSAGES))
    assert dest.stat().st_mode & 0o777 == 0o600
    assert covey(filled, "db", "export", str(dest)).returncode == 2


def test_backups_without_a_name_are_kept_up_to_a_number(filled: Path) -> None:
    names = [Path(said(filled, "db", "backup", "--keep", "2")["path"]).name for _ in range(3)]

    assert sorted(path.name for path in (filled / "backups").iterdir()) == names[1:]


def test_damage_is_1_and_after_a_repair_0_with_the_originals_beside(filled: Path) -> None:
    connection = apsw.Connection(str(filled / "state.db"))
    leaf = connection.execute("SELECT max(pageno) FROM dbstat WHERE name = 'messages'").fetchall()[0][0]
    connection.close()
    with open(filled / "state.db", "r+b") as file:
        file.seek((int(str(leaf)) - 1) * 4096)
        file.write(os.urandom(4096))

    checked = covey(filled, "db", "check")
    repaired = covey(filled, "db", "repair")

    assert checked.returncode == 1
    assert "covey db repair" in checked.stdout
    assert repaired.returncode == 0, repaired.stderr
    assert "the files as they were: " in repaired.stdout
    assert covey(filled, "db", "check", "--full").returncode == 0
    assert len(list(filled.glob("state.db.damaged-*/state.db"))) == 1
    assert sums(filled)[0] == SESSIONS


# --- beside a running fleet ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cvd-", dir="/tmp") as folder:
        home = Path(folder) / "h"
        home.mkdir(mode=0o700)
        (home / "config.yaml").write_text("providers:\n  sim:\n    base_url: http://127.0.0.1:1/v1\n")
        try:
            done = covey(home, "up", "--detach")
            assert done.returncode == 0, done.stderr
            yield home
        finally:
            covey(home, "down", "--timeout", "5")


def ledger(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = said(home, "status")["ledger"]
    return found


@pytest.mark.kill
def test_an_import_that_is_killed_in_the_middle_is_whole_after_the_next(fleet: Path, tmp_path: Path) -> None:
    source = make_hermes(tmp_path / "hermes.db", sessions=100, messages=100)
    environ = {**os.environ, "COVEY_HOME": str(fleet)}
    with subprocess.Popen(
        [*COVEY, "db", "import", "hermes", str(source)], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as importing:
        deadline = time.monotonic() + 30
        while sums(fleet)[1] == 0 and importing.poll() is None:
            assert time.monotonic() < deadline
        importing.send_signal(signal.SIGKILL)

    found = said(fleet, "db", "import", "hermes", str(source))

    assert found["messages"] == 10_000
    assert sums(fleet) == (100, 10_000, 100)
    assert said(fleet, "db", "import", "hermes", str(source))["messages_new"] == 0


@pytest.mark.kill
def test_a_check_a_backup_and_an_export_do_not_disturb_the_ledger(fleet: Path, tmp_path: Path) -> None:
    checked = said(fleet, "db", "check", "--full")
    backed_up = said(fleet, "db", "backup", str(tmp_path / "copy.db"))
    exported = said(fleet, "db", "export", str(tmp_path / "out.jsonl"))

    rows = sums(fleet)
    assert checked["is_sound"]
    assert checked["owner_pid"] is not None
    assert (backed_up["rows"]["sessions"], backed_up["rows"]["messages"], backed_up["rows"]["calls"]) == rows
    assert (exported["sessions"], exported["messages"], exported["calls"]) == rows
    found = ledger(fleet)
    assert (found["foreign_writes"], found["fault"]) == (0, None)


@pytest.mark.kill
@pytest.mark.parametrize("action", ["repair", "vacuum"])
def test_what_needs_the_database_alone_is_refused_with_what_to_do(fleet: Path, action: str) -> None:
    done = covey(fleet, "db", action)

    assert done.returncode == 1
    assert "covey down" in done.stderr
