"""A command whose output is a key: run without a shell, with a deadline, and no word of it in any log.

It prints the key alone, or a JSON object with the key (`key`, `api_key`, `token` or `access_token`) and, if it ends,
`expires_in` (seconds) or `expires_at` (Unix seconds, or a date).
"""

from __future__ import annotations

import asyncio
import os
import select
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

COMMAND_S: Final = 15.0
MOST_BYTES: Final = 65_536

PLAIN_MS: Final = 900_000
"""How long a key is good that comes without a word about its end."""

EARLY_MS: Final = 60_000
"""So long before its end another one is fetched; for a short life, a fifth of it."""

AT_ONCE: Final = 4
"""Commands that run at the same time, in threads of their own: one that hangs must not hold up files and look-ups."""

STOPPING: Final = "the fleet is stopping"

_REAP_S: Final = 1.0
_LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: what lies beyond is no time that anything could say or send."""

_NAMES: Final = ("key", "api_key", "token", "access_token")


def unix_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class CommandKey:
    """What a command printed."""

    secret: str = field(repr=False)
    until_ms: int
    """Unix time from which on the command is run again."""


class KeyCommands:
    """Runs commands; from any thread. `close` ends what still runs."""

    def __init__(self, *, wall_ms: Callable[[], int] = unix_ms) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="key command")
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._is_closed = False

    async def fetch(self, command: str, environ: Mapping[str, str]) -> CommandKey | str:
        """As `run`, beside the loop."""
        if self._is_closed:
            return STOPPING
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.run, command, environ)

    def run(self, command: str, environ: Mapping[str, str], *, deadline_s: float = COMMAND_S) -> CommandKey | str:
        """The key, or in words why there is none. Waits.

        `environ` is what the command gets: without the keys of other providers.
        """
        try:
            words = shlex.split(command)
        except ValueError as error:
            return f"api_key_command cannot be split into words: {error}"
        if not words:
            return "api_key_command is empty"
        output = self._output(words, environ, deadline_s)
        return output if isinstance(output, str) else read_output(output, now_ms=self._wall_ms())

    def close(self) -> None:
        """Kill what runs; nothing more is started."""
        with self._lock:
            self._is_closed = True
            for group in self._running:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
        self._threads.shutdown(wait=False)

    def _output(self, words: list[str], environ: Mapping[str, str], deadline_s: float) -> bytes | str:
        name = words[0]
        with self._lock:
            if self._is_closed:
                return STOPPING
            try:
                process = subprocess.Popen(
                    words,
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                return f"{name} cannot be run: {getattr(error, 'strerror', None) or 'not a command'}"
            self._running.add(process.pid)
        try:
            return _read(process, name, deadline_s)
        finally:
            # Reaped only with the number off the list: it might be a stranger's by the time of `close`.
            with self._lock:
                self._running.discard(process.pid)
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            # One that took another user's rights cannot be killed; it is reaped when it ends.
            with suppress(subprocess.TimeoutExpired):
                process.wait(_REAP_S)
            if process.stdout is not None:
                process.stdout.close()


def _read(process: subprocess.Popen[bytes], name: str, deadline_s: float) -> bytes | str:
    ended = os.pidfd_open(process.pid)
    try:
        output = _until_ended(process, ended, time.monotonic() + deadline_s)
    finally:
        os.close(ended)
    if output is None:
        return f"{name} was not done within {deadline_s:g} s"
    if len(output) > MOST_BYTES:
        return f"{name} printed more than {MOST_BYTES >> 10} KiB"
    code = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if code is not None and (code.si_code != os.CLD_EXITED or code.si_status != 0):
        how = "exit code" if code.si_code == os.CLD_EXITED else "signal"
        return f"{name} failed ({how} {code.si_status}); run it by hand to see why"
    return output


def _until_ended(process: subprocess.Popen[bytes], ended: int, deadline: float) -> bytes | None:
    """What it printed until it ended, or until that is too much; None if it takes longer than `deadline`."""
    assert process.stdout is not None, "it was asked for"
    descriptor, output = process.stdout.fileno(), bytearray()
    os.set_blocking(descriptor, False)
    poll = select.poll()  # `select` takes no number above 1023, and brokers have that many clients
    poll.register(descriptor, select.POLLIN)
    poll.register(ended, select.POLLIN)
    is_open, has_ended = True, False
    while (left_s := deadline - time.monotonic()) > 0:
        ready = {found for found, _ in poll.poll(left_s * 1000)}
        if descriptor in ready:
            piece = os.read(descriptor, 8192)
            output += piece
            is_open = bool(piece)
            if len(output) > MOST_BYTES or (has_ended and not is_open):
                return bytes(output)
            if not is_open:
                poll.unregister(descriptor)
        elif ended in ready:
            # What it left running may hold its output open for ever; but somebody has to have printed something.
            if output or not is_open:
                return bytes(output)
            has_ended = True
            poll.unregister(ended)
    return None


def read_output(output: bytes, *, now_ms: int) -> CommandKey | str:
    """The key that a command printed, or in words why that is none; the words hold nothing of it."""
    try:
        text = output.decode().strip()
    except UnicodeDecodeError:
        return "the output of api_key_command is no text"
    if text.startswith("{"):
        return _read_object(text, now_ms)
    if not _is_key(text):
        return "the output of api_key_command is no key: one word on one line, or a JSON object with `key`"
    return CommandKey(text, now_ms + PLAIN_MS)


def _read_object(text: str, now_ms: int) -> CommandKey | str:
    try:
        said = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return "the output of api_key_command begins like JSON and is none"
    key = next((value for name in _NAMES if isinstance(value := said.get(name), str)), "").strip()
    if not _is_key(key):
        return f"the JSON that api_key_command printed has no key in {', '.join(_NAMES)}"
    try:
        ends_ms = _end_ms(said, now_ms)
    except (ValueError, OverflowError):
        return "the JSON that api_key_command printed has an end that is no time"
    if ends_ms is None:
        return CommandKey(key, now_ms + PLAIN_MS)
    left_ms = ends_ms - now_ms
    if left_ms <= 0:
        return "api_key_command printed a key that has expired"
    return CommandKey(key, int(ends_ms - min(EARLY_MS, left_ms // 5)))


def _end_ms(said: Mapping[str, object], now_ms: int) -> int | None:
    match said.get("expires_in"):
        case int() | float() | str() as seconds:
            return _bounded(now_ms + int(float(seconds) * 1000))
    return unix_ms_of(said.get("expires_at"))


def unix_ms_of(value: object) -> int | None:
    """A time as other programs write it: Unix seconds or milliseconds, as a number or text, or a date; None for None.

    Raises `ValueError` (`OverflowError` for what is infinite) for anything else, and for what is no time of this age.
    """
    match value:
        case None:
            return None
        case bool():
            raise ValueError("not a time")
        case int() | float():
            # Seconds until the year 5138; beyond that they were milliseconds.
            return _bounded(int(value if value > 1e11 else value * 1000))
        case str():
            with suppress(ValueError):
                return unix_ms_of(float(value))
            at = datetime.fromisoformat(value)
            return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
        case _:
            raise ValueError("not a time")


def _bounded(unix_ms: int) -> int:
    if not 0 <= unix_ms <= _LATEST_MS:
        raise ValueError("not a time")
    return unix_ms


def _is_key(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
