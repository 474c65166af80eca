"""The terminal: real commands, real deadlines, and nothing alive afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey.actors.tools.base import ToolError
from covey.actors.tools.process_group import ProcessGroup
from covey.actors.tools.terminal import KEPT_HALF_BYTES, Terminal, scrubbed

pytestmark = pytest.mark.timeout(20)


async def terminal(workspace: Path, command: str, **more: Any) -> str:
    tool = Terminal(workspace, environment=scrubbed(os.environ))
    return await tool.run("c", json.dumps({"command": command, **more}))


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    return state_of(pid) not in (None, "Z")


def state_of(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def pid_in(file: Path) -> int | None:
    return int(file.read_text()) if file.exists() and file.read_text().endswith("\n") else None


async def test_output_errors_and_exit_code_come_back(tmp_path: Path) -> None:
    assert await terminal(tmp_path, "echo out; echo err >&2; exit 3") == "out\nerr\n\n[exit code 3]"


async def test_a_command_runs_in_the_workspace_without_input(tmp_path: Path) -> None:
    assert await terminal(tmp_path, "pwd; cat") == f"{tmp_path}\n\n[exit code 0]"


async def test_silence_is_said(tmp_path: Path) -> None:
    assert await terminal(tmp_path, "true") == "[no output; exit code 0]"


async def test_a_signal_is_said(tmp_path: Path) -> None:
    assert await terminal(tmp_path, "kill -9 $$") == "[no output; ended by signal 9]"


async def test_a_missing_workspace_is_an_error_for_the_model(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="could not be started"):
        await terminal(tmp_path / "gone", "true")


@pytest.mark.parametrize("timeout_s", [0, -1, 1e9])
async def test_a_deadline_out_of_bounds_is_refused(tmp_path: Path, timeout_s: float) -> None:
    with pytest.raises(ToolError, match="timeout_s"):
        await terminal(tmp_path, "true", timeout_s=timeout_s)


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("echo $$ > pid; echo early; sleep 60", id="sleeps"),
        pytest.param("echo $$ > pid; echo early; trap '' TERM; while :; do sleep 0.05; done", id="ignores SIGTERM"),
        pytest.param("echo $$ > pid; echo early; kill -STOP $$", id="is stopped"),
        pytest.param("echo early; exec >/dev/null 2>&1; sh -c 'echo $$ > pid; sleep 60'", id="closed its output"),
    ],
)
async def test_the_deadline_ends_the_command_and_keeps_what_it_printed(
    tmp_path: Path, command: str, until: Callable[..., Any]
) -> None:
    text = await terminal(tmp_path, command, timeout_s=0.3)

    assert text == "early\n\n[killed: it ran longer than 0.3 s]"
    pid = pid_in(tmp_path / "pid")
    assert pid is not None
    await until(lambda: not alive(pid))


async def test_a_stopped_command_gets_to_say_goodbye(tmp_path: Path) -> None:
    text = await terminal(tmp_path, "trap 'echo bye; exit 4' TERM; kill -STOP $$; sleep 60", timeout_s=0.3)

    assert text == "bye\n\n[killed: it ran longer than 0.3 s]"


@pytest.mark.parametrize(
    "background",
    [
        pytest.param("sh -c 'echo $$ > pid; exec sleep 60' &", id="holds the pipe"),
        pytest.param("sh -c 'echo $$ > pid; exec sleep 60' >/dev/null 2>&1 &", id="holds nothing"),
        pytest.param("(trap '' TERM; sh -c 'echo $$ > pid; exec sleep 60') &", id="ignores SIGTERM"),
    ],
)
async def test_what_runs_in_the_background_is_killed_and_delays_nobody(
    tmp_path: Path, background: str, until: Callable[..., Any]
) -> None:
    started = time.monotonic()
    text = await terminal(tmp_path, f"{background} while ! test -s pid; do sleep 0.01; done; echo ok", timeout_s=10)

    assert text == "ok\n\n[exit code 0]"
    assert time.monotonic() - started < 3
    pid = pid_in(tmp_path / "pid")
    assert pid is not None
    await until(lambda: not alive(pid))


async def test_a_process_that_left_the_group_with_the_pipe_delays_nobody(tmp_path: Path) -> None:
    text = await terminal(
        tmp_path, "setsid sh -c 'echo $$ > pid; exec sleep 60' & while ! test -s pid; do sleep 0.01; done", timeout_s=10
    )

    assert text == "[no output; exit code 0]"
    os.kill(pid_in(tmp_path / "pid") or 0, signal.SIGKILL)


async def test_a_cancelled_command_is_dead_when_the_cancel_returns(tmp_path: Path, until: Callable[..., Any]) -> None:
    task = asyncio.create_task(terminal(tmp_path, "sh -c 'echo $$ > pid; sleep 60' & wait"))
    await until(lambda: pid_in(tmp_path / "pid") is not None)

    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    await until(lambda: not alive(pid_in(tmp_path / "pid") or 0))


async def test_a_second_cancel_leaves_no_process_and_no_zombie(tmp_path: Path, until: Callable[..., Any]) -> None:
    task = asyncio.create_task(terminal(tmp_path, "echo $$ > pid; trap '' TERM; while :; do sleep 0.05; done"))
    await until(lambda: pid_in(tmp_path / "pid") is not None)
    pid = pid_in(tmp_path / "pid")

    task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_the_leader_is_not_reaped_before_its_group_was_killed(tmp_path: Path) -> None:
    group = ProcessGroup(["/bin/true"], cwd="/", env={}, output=2)
    await asyncio.wait([group.exited])

    assert state_of(group._process.pid) == "Z"  # so its number cannot be given to a stranger
    assert await group.end() == 0


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_long_output_keeps_head_and_tail(tmp_path: Path) -> None:
    text = await terminal(tmp_path, "echo begin; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end")

    assert text.startswith("begin\n")
    assert text.endswith("end\n\n[exit code 0]")
    assert len(text) < 2 * KEPT_HALF_BYTES + 200
    assert f"{1_000_011 - 2 * KEPT_HALF_BYTES} bytes left out" in text


async def test_a_flood_is_killed_and_takes_no_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    text = await terminal(tmp_path, "yes", timeout_s=15)

    assert text.endswith("[killed: it printed more than 64 MiB]")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8_000


async def test_no_thread_and_no_descriptor_per_command(tmp_path: Path) -> None:
    await terminal(tmp_path, "true")
    threads, handles = threading.active_count(), len(os.listdir("/proc/self/fd"))

    await asyncio.gather(*(terminal(tmp_path, "sleep 0.1") for _ in range(10)))

    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == handles


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_secrets_are_not_in_the_environment_of_commands() -> None:
    kept = scrubbed(
        {"PATH": "/bin", "OPENAI_API_KEY": "a", "gh_token": "b", "MY_SECRET_X": "c", "ODD": "d", "DB_PASSWORD": "e"},
        secret=("ODD",),
    )

    assert kept == {"PATH": "/bin"}
