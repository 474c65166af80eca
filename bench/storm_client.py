"""A program of the storm: some clients that call a provider at the same time, each call with the retries of an SDK.

It is the same program on both sides. Alone, it has a limit of its own, the one its owner read in the provider's terms;
through a fleet, its HTTP client has the fleet's transport and nothing else is different.

One line of JSON on standard input says what to do, another one when; one line on standard output says that it is
ready, another one what came of it.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    import httpx

MODEL: Final = "sim-1"
ATTEMPTS: Final = 6
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 8.0
JITTER: Final = 0.25
"""As the two best known SDKs do: half a second, doubled up to eight, shortened at random by up to a quarter."""
READY_S: Final = 60.0

Line = TypeVar("Line", bound=msgspec.Struct)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one program is to do."""

    base_url: str
    key: str
    clients: int
    calls: int
    """Of each client, one after the other."""
    prompt_chars: int
    home: str | None = None
    """The fleet's; None: alone."""
    own_limit: int | None = None
    """Calls this program has in flight at once; None: no limit of its own."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """It may begin at any moment."""

    clients: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One call: when its answer, or its last refusal, had come, on the clock of all processes of this host."""

    ended: float
    attempts: int
    is_answered: bool


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one program."""

    calls: tuple[Outcome, ...]


def pause_s(refusals: int, chance: float) -> float:
    """How long an SDK waits after so many refusals of one call; `chance` is random, from 0 to 1."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (refusals - 1)) * (1 - JITTER * chance)


class ProgramProcess:
    """One program in a process of its own. Blocking; owned by one thread."""

    def __init__(self, part: Part) -> None:
        code = "from covey.bench.storm_client import main; main()"
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._write(msgspec.json.encode(part))

    def ready(self) -> None:
        """Wait until it may begin."""
        self._read(Ready)

    def go(self) -> None:
        """Let it begin."""
        self._write(b"go")

    def outcomes(self) -> tuple[Outcome, ...]:
        """Wait until all its calls have ended."""
        return self._read(Outcomes).calls

    def kill(self) -> None:
        """SIGKILL, and wait for its end. Idempotent."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None, "opened as a pipe"
            pipe.close()

    def _write(self, line: bytes) -> None:
        assert self._child.stdin is not None, "opened as a pipe"
        self._child.stdin.write(line + b"\n")

    def _read(self, kind: type[Line]) -> Line:
        assert self._child.stdout is not None, "opened as a pipe"
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"a program of the storm ended with {self._child.wait()} before it answered")
        return msgspec.json.decode(line, type=kind)


def main() -> None:
    """Do what the line says."""
    asyncio.run(_play(msgspec.json.decode(sys.stdin.readline(), type=Part)))


async def _play(part: Part) -> None:
    import httpx

    async with AsyncExitStack() as stack:
        transport = await _transport(part, stack)
        client = httpx.AsyncClient(transport=transport, timeout=600.0, trust_env=False, verify=False)
        await stack.enter_async_context(client)
        _say(Ready(clients=part.clients))
        await asyncio.to_thread(sys.stdin.readline)
        gate = nullcontext() if part.own_limit is None else asyncio.Semaphore(part.own_limit)
        outcomes: list[Outcome] = []

        async def one() -> None:
            for _ in range(part.calls):
                async with gate:
                    outcomes.append(await _call(client, part))

        await asyncio.gather(*(one() for _ in range(part.clients)))
        _say(Outcomes(calls=tuple(outcomes)))


async def _transport(part: Part, stack: AsyncExitStack) -> httpx.AsyncBaseTransport | None:
    if part.home is None:
        return None
    from ..supervisor.client import AsyncFleet
    from ..supervisor.home import Home
    from ..supervisor.transport import AsyncFleetTransport

    fleet = await AsyncFleet.join(Home.locate(Path(part.home)), name="storm", timeout_s=READY_S)
    stack.push_async_callback(fleet.close)
    transport: httpx.AsyncBaseTransport = AsyncFleetTransport(fleet)
    return transport


async def _call(client: httpx.AsyncClient, part: Part) -> Outcome:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x" * part.prompt_chars}]}
    headers = {"authorization": f"Bearer {part.key}"}
    for attempt in range(1, ATTEMPTS + 1):
        response = await client.post(f"{part.base_url}/chat/completions", json=body, headers=headers)
        if response.is_success or attempt == ATTEMPTS:
            break
        await asyncio.sleep(pause_s(attempt, random.random()))
    return Outcome(ended=time.perf_counter(), attempts=attempt, is_answered=response.is_success)


def _say(line: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()
