"""The front door: which module is imported, and what an ending becomes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import covey
from covey.__main__ import main as covey_main
from covey.bench.cli import BENCHES
from covey.bench.cli import COMMANDS as BENCH_COMMANDS
from covey.protocol.version import VERSION
from covey.supervisor.cli.main import COMMANDS, EPILOG, Command, main
from covey.supervisor.cli.output import console, print_json, table

CHECKOUT = Path(__file__).parents[2]

FAKE = """
import os
from covey.protocol import errors

def add_arguments(parser):
    parser.add_argument("how")
    parser.add_argument("--json", action="store_true")

def run(args):
    match args.how:
        case "done": return 0
        case "parked": return 3
        case "failed": raise errors.NoFleet("/home")
        case "usage": raise errors.UsageError("not\\nso")
        case "config": raise errors.ConfigError("bad", file="f", line=1, key="k", valid="good")
        case "limit": raise errors.QueueFull("zai:1", 3)
        case "interrupt": raise KeyboardInterrupt
        case "exit": raise SystemExit("because")
        case "surrogate": raise errors.HomeError("/\\udcff", "odd")
        case "bug": raise ZeroDivisionError
        case "pipe":
            reader, writer = os.pipe()
            os.close(reader)
            try: os.write(writer, b"x")
            finally: os.close(writer)
        case "much":
            for _ in range(100_000): print("line")
"""
FAKES = {"fake": Command("front_door_fake", "does it"), "other": Command("front_door_missing", "is never imported")}


@pytest.fixture(autouse=True)
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.joinpath("front_door_fake.py").write_text(FAKE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "front_door_fake", raising=False)
    return tmp_path


def python(code: str, *, stdout: int = subprocess.PIPE, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", code]
    env = {**os.environ, **environ}
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=30, env=env, check=False)


def beside(folder: Path) -> str:
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        pytest.param("done", 0, "", id="done"),
        pytest.param("parked", 3, "", id="the command's own code"),
        pytest.param("failed", 1, "covey: no fleet runs in /home; start one with `covey up`\n", id="failed"),
        pytest.param("usage", 2, "covey: not so\n", id="usage, on one line"),
        pytest.param("config", 2, "covey: f:1: k: bad; valid: good\n", id="config"),
        pytest.param("limit", 3, "covey: the queue of budget zai:1 is full (3 waiting)\n", id="limit"),
        pytest.param("interrupt", 130, "covey: interrupted\n", id="interrupted"),
        pytest.param("exit", 1, "covey: because\n", id="exit with a text"),
    ],
)
def test_endings_become_exit_codes(capsys: pytest.CaptureFixture[str], how: str, code: int, said: str) -> None:
    assert main(["fake", how], FAKES) == code

    assert capsys.readouterr() == ("", said)


def test_every_code_is_documented() -> None:
    assert [line.split()[0] for line in EPILOG.splitlines()[1:6]] == ["0", "1", "2", "3", "130"]


def test_an_error_is_an_object_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fake", "limit", "--json"], FAKES) == 3

    shown = capsys.readouterr()
    message = "the queue of budget zai:1 is full (3 waiting)"
    assert json.loads(shown.out) == {"error": {"kind": "QueueFull", "message": message}}
    assert shown.err == f"covey: {message}\n"


def test_a_command_line_that_cannot_be_read_is_an_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fake", "--json"], FAKES) == 2

    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "UsageError"


def test_a_message_that_is_no_unicode_is_still_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fake", "surrogate", "--json"], FAKES) == 1

    assert json.loads(capsys.readouterr().out)["error"]["message"] == "/\\udcff: odd"


def test_a_bug_is_not_dressed_up() -> None:
    with pytest.raises(ZeroDivisionError):
        main(["fake", "bug"], FAKES)


def test_a_broken_pipe_of_the_command_s_own_is_not_taken_for_ours() -> None:
    with pytest.raises(BrokenPipeError):
        main(["fake", "pipe"], FAKES)


@pytest.mark.parametrize("words", [["fake", "much"], ["--help"]], ids=["much output", "little output"])
def test_a_reader_that_leaves_is_no_news(fake: Path, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code = (
        "import sys; from covey.supervisor.cli.main import *; "
        f"sys.exit(main({words}, {{'fake': Command('front_door_fake', '')}}))"
    )

    ended = python(code, stdout=writer, PYTHONPATH=beside(fake), PYTHONUNBUFFERED="")
    os.close(writer)

    assert (ended.returncode, ended.stderr) == (1, "")


def test_control_c_is_130_without_a_traceback(fake: Path) -> None:
    fake.joinpath("front_door_wait.py").write_text(
        "import signal\ndef add_arguments(parser): pass\n"
        "def run(args):\n    print('waiting', flush=True)\n    signal.pause()\n"
    )
    code = (
        "import sys; from covey.supervisor.cli.main import *; "
        "sys.exit(main(['wait'], {'wait': Command('front_door_wait', '')}))"
    )
    environ = {**os.environ, "PYTHONPATH": beside(fake)}
    command = [sys.executable, "-P", "-c", code]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "waiting\n"
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=10)

    assert (waiting.returncode, said) == (130, "covey: interrupted\n")


def test_only_the_chosen_command_is_imported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fake", "--help"], FAKES) == 0

    assert "front_door_missing" not in sys.modules
    assert "--json" in capsys.readouterr().out


def test_help_lists_commands_without_importing_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], FAKES) == 0

    assert "is never imported" in capsys.readouterr().out
    assert "front_door_fake" not in sys.modules


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["bench", "--help"]], ids=" ".join)
def test_help_and_version_are_quick(words: list[str]) -> None:
    heavy = ["zmq", "msgspec", "rich", "yaml", "ruamel", "asyncio", "httpx", "apsw", "psutil", "covey.supervisor.home"]
    code = (
        f"import sys, covey.__main__ as door; assert door.main({words}) == 0; "
        f"print('HEAVY', sorted(set({heavy}) & set(sys.modules)))"
    )

    assert python(code).stdout.splitlines()[-1] == "HEAVY []"


def test_an_unknown_command_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"], FAKES) == 2

    assert "see `covey --help`" in capsys.readouterr().err


def test_commands_and_benches_are_all_there() -> None:
    words = "up down status budget tree restart logs run swarm auth keys config models usage sessions db doctor"
    assert " ".join(COMMANDS) == words
    assert list(BENCH_COMMANDS) == ["demo", "bench"]
    assert set(BENCHES) == {"provider", "link", "ledger", "broker", "calls", "storm", "actors", "restart", "fanout"}


def test_the_fleet_s_commands_do_not_live_in_the_bench() -> None:
    assert all(command.module.startswith("covey.supervisor.cli.") for command in COMMANDS.values())


def test_a_bench_is_reached_through_two_doors(capsys: pytest.CaptureFixture[str]) -> None:
    assert covey_main(["bench", "provider", "--help"]) == 0

    assert "--limit" in capsys.readouterr().out


def test_there_is_one_version(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]

    assert covey_main(["--version"]) == 0

    assert capsys.readouterr().out == f"covey {VERSION}\n"
    assert project["version"] == covey.__version__ == VERSION


class TestOutput:
    def test_a_pipe_gets_no_colour_and_no_wrapped_lines(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")

        console().print("[red]" + "word " * 100 + "[/red]")

        assert capsys.readouterr().out == "word " * 100 + "\n"

    def test_a_table_is_aligned(self, capsys: pytest.CaptureFixture[str]) -> None:
        rows = table("name", ">count")
        rows.add_row("a", "1")

        console().print(rows)

        assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == ["name  count", "a         1"]

    def test_json_is_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        print_json({"text": "a\nb ü"})

        assert capsys.readouterr().out == '{"text":"a\\nb ü"}\n'
