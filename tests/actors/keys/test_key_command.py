"""Commands that print keys: real ones, and what their output means."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from covey.actors.keys.key_command import EARLY_MS, MOST_BYTES, PLAIN_MS, CommandKey, KeyCommands, read_output

NOW_MS = 1_800_000_000_000


def ran(code: str, *, deadline_s: float = 10.0, environ: dict[str, str] | None = None) -> CommandKey | str:
    command = shlex.join([sys.executable, "-c", code])
    return KeyCommands().run(command, environ if environ is not None else os.environ, deadline_s=deadline_s)


@pytest.mark.parametrize(
    ("output", "secret", "until_ms"),
    [
        pytest.param(b"sk-1\n", "sk-1", NOW_MS + PLAIN_MS, id="the key alone"),
        pytest.param(b'{"key": "sk-1"}', "sk-1", NOW_MS + PLAIN_MS, id="JSON without an end"),
        pytest.param(b'{"access_token": "t", "expires_in": 3600}', "t", NOW_MS + 3_600_000 - EARLY_MS, id="seconds"),
        pytest.param(b'{"token": "t", "expires_in": "100"}', "t", NOW_MS + 80_000, id="a short life"),
        pytest.param(
            b'{"api_key": "t", "expires_at": 1800003600}', "t", NOW_MS + 3_600_000 - EARLY_MS, id="Unix seconds"
        ),
        pytest.param(
            b'{"key": "t", "expires_at": 1800003600000}', "t", NOW_MS + 3_600_000 - EARLY_MS, id="Unix milliseconds"
        ),
        pytest.param(
            b'{"key": "t", "expires_at": "2027-01-15T09:00:00Z"}', "t", NOW_MS + 3_600_000 - EARLY_MS, id="a date"
        ),
    ],
)
def test_a_key_and_its_end_are_read(output: bytes, secret: str, until_ms: int) -> None:
    assert read_output(output, now_ms=NOW_MS) == CommandKey(secret, until_ms)


@pytest.mark.parametrize(
    "output",
    [b"", b"\n", b"two words-secret", b"line-secret\nline", b"\xff\xfe", b'{"secret', b"{}", b'{"key": 5}']
    + [json.dumps({"key": "word-secret", **end}).encode() for end in (
        {"expires_at": "soon"}, {"expires_at": 1.0}, {"expires_in": -1}, {"expires_in": "x"}, {"expires_at": [1]},
        {"expires_in": 1e400}, {"expires_in": 1e30}, {"expires_at": 1e300}, {"expires_at": -1e300},
    )],
    ids=repr,
)  # fmt: skip
def test_what_is_no_key_is_said_without_repeating_it(output: bytes) -> None:
    said = read_output(output, now_ms=NOW_MS)

    assert isinstance(said, str)
    assert "secret" not in said


def test_a_command_is_split_like_a_shell_would_and_run_without_one(tmp_path: Path) -> None:
    found = KeyCommands().run(f"printf %s 'sk-$HOME;touch${{IFS}}{tmp_path}/x'", os.environ)

    assert isinstance(found, CommandKey)
    assert found.secret.startswith("sk-$HOME;touch")
    assert list(tmp_path.iterdir()) == []


def test_a_command_gets_the_environment_it_is_given_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "sk-other")

    found = ran("import os; print(os.environ.get('OTHER_KEY', 'none'))", environ={"PATH": os.environ["PATH"]})

    assert isinstance(found, CommandKey)
    assert found.secret == "none"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("", "empty"),
        ("'open", "cannot be split"),
        ("/nowhere/at-all", "No such file"),
        ("sh -c 'echo secret-word >&2; exit 3'", "exit code 3"),
        ("sh -c 'kill -9 $$'", "signal 9"),
        (f"head -c {MOST_BYTES + 1} /dev/zero", "more than"),
    ],
)
def test_a_command_that_fails_is_named_and_its_words_are_not(command: str, says: str) -> None:
    said = KeyCommands().run(command, os.environ)

    assert isinstance(said, str)
    assert says in said
    assert "secret-word" not in said


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import time; time.sleep(60)", id="it hangs"),
        pytest.param("import os; os.close(1); import time; time.sleep(60)", id="it closed its output and hangs"),
        pytest.param("import os, time\nif os.fork(): os._exit(0)\ntime.sleep(60)", id="its child holds the output"),
    ],
)
def test_a_command_has_a_deadline_and_leaves_nothing_behind(code: str) -> None:
    began = time.monotonic()

    said = ran(code, deadline_s=0.3)

    assert isinstance(said, str)
    assert "0.3 s" in said
    assert time.monotonic() - began < 5


def test_what_a_command_leaves_running_does_not_hold_up_its_key() -> None:
    found = ran("import os, time\nprint('sk-1', flush=True)\nif os.fork() == 0: time.sleep(60)", deadline_s=10.0)

    assert isinstance(found, CommandKey)


def test_a_process_with_many_open_files_can_run_one() -> None:
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        assert isinstance(KeyCommands().run("printf sk-1", os.environ), CommandKey)
    finally:
        for descriptor in held:
            os.close(descriptor)


def test_commands_that_hang_take_no_thread_from_others() -> None:
    async def scene() -> str:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        commands = KeyCommands()
        hanging = [asyncio.ensure_future(commands.fetch("sleep 60", os.environ)) for _ in range(2)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            found = await asyncio.to_thread(lambda: "in time")
        commands.close()
        await asyncio.gather(*hanging)
        return found

    assert asyncio.run(scene()) == "in time"


def test_closing_ends_what_runs() -> None:
    commands = KeyCommands()
    said: list[object] = []
    runner = threading.Thread(target=lambda: said.append(commands.run("sleep 60", os.environ, deadline_s=30.0)))
    runner.start()
    deadline = time.monotonic() + 10
    while not commands._running:
        assert time.monotonic() < deadline

    commands.close()
    runner.join(timeout=10)

    assert said == ["sleep failed (signal 9); run it by hand to see why"]
    assert commands.run("printf x", os.environ) == "the fleet is stopping"
