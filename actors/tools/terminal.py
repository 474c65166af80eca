"""terminal: one shell command in the workspace, with a deadline, bounded output and nothing left behind."""

from __future__ import annotations

import asyncio
import fnmatch
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from ...protocol.dialects.base import ToolSpec
from .base import ToolError, parse, spec
from .output import Drain, Kept
from .process_group import ProcessGroup

DEFAULT_S: Final = 120.0
LONGEST_S: Final = 3600.0
KEPT_HALF_BYTES: Final = 16_000
FLOOD_BYTES: Final = 64 << 20
PIPE_GRACE_S: Final = 0.2

SECRET_NAMES: Final = ("*_API_KEY", "*_TOKEN", "*SECRET*", "*PASSWORD*", "*_CREDENTIALS")


class _Command(msgspec.Struct, frozen=True):
    command: str
    timeout_s: float = DEFAULT_S


class Terminal:
    """A shell command, run to its end in a process group that is killed afterwards in all cases."""

    is_repeatable = False
    spec: ToolSpec = spec(
        "terminal",
        "Run a shell command in the workspace. No input; output and errors together. Processes left in the background"
        f" are killed when the command ends. `timeout_s` is {DEFAULT_S:g} by default.",
        {
            "command": {"type": "string"},
            "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_S},
        },
        required=("command",),
    )

    def __init__(self, workspace: Path, *, environment: Mapping[str, str]) -> None:
        """`environment` is the commands' whole environment, see `scrubbed`."""
        self._workspace, self._environment = workspace, environment

    async def run(self, call_id: str, arguments: str) -> str:
        """What the command printed and how it ended; a failed command is a result too."""
        asked = parse(_Command, arguments)
        if not 0 < asked.timeout_s <= LONGEST_S:
            raise ToolError(f"timeout_s must be above 0 and at most {LONGEST_S:g}")
        if "\0" in asked.command:
            raise ToolError("a command cannot contain a NUL character")
        kept = Kept(KEPT_HALF_BYTES)
        end = await self._execute(asked, kept)
        return f"{kept.text()}\n[{end}]" if kept.total else f"[no output; {end}]"

    async def _execute(self, asked: _Command, kept: Kept) -> str:
        """Run it to its end, deadline or flood; nothing of it is alive afterwards. How it ended, in words."""
        reading, writing = os.pipe()
        drain = Drain(reading, kept, limit=FLOOD_BYTES)
        try:
            group = self._start(asked.command, writing)
            try:
                late = await _watch(group, drain, kept, asked.timeout_s)
            finally:
                code = await group.end()
            return late or _ending(code)
        finally:
            drain.close()

    def _start(self, command: str, output: int) -> ProcessGroup:
        try:
            return ProcessGroup(
                ["/bin/sh", "-c", command], cwd=str(self._workspace), env=self._environment, output=output
            )
        except OSError as refused:
            raise ToolError(f"the command could not be started: {refused.strerror or refused}") from refused
        finally:
            os.close(output)


def scrubbed(environment: Mapping[str, str], *, secret: Iterable[str] = ()) -> dict[str, str]:
    """`environment` without what looks like a secret and without the names in `secret`."""
    named = frozenset(secret)
    return {name: value for name, value in environment.items() if name not in named and not _looks_secret(name)}


def _looks_secret(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name.upper(), pattern) for pattern in SECRET_NAMES)


async def _watch(group: ProcessGroup, drain: Drain, kept: Kept, timeout_s: float) -> str | None:
    """Wait until the command has ended and its output was read; what stopped it before, if something did."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    await asyncio.wait([group.exited, drain.ended], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if kept.total > FLOOD_BYTES:
        return f"killed: it printed more than {FLOOD_BYTES >> 20} MiB"
    await asyncio.wait([group.exited], timeout=max(deadline - loop.time(), 0))
    if not group.exited.done():
        return f"killed: it ran longer than {timeout_s:g} s"
    # Something in the background may hold the pipe open for ever: it gets a moment to end.
    if not drain.ended.done():
        group.ask_to_end()
        await asyncio.wait([drain.ended], timeout=PIPE_GRACE_S)
    return None


def _ending(code: int | None) -> str:
    match code:
        case None:
            return "killed, but it hangs in the kernel"
        case _ if code < 0:
            return f"ended by signal {-code}"
        case _:
            return f"exit code {code}"
