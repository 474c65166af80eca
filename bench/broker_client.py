"""A client process of the broker benchmark: lanes that take a slot, hold it and give it back, over and over.

It is told what to do by lines of JSON on its standard input, one `Work` at a time, and answers each line with one. It
ends when that input does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Final, TypeVar

import msgspec

from ..protocol.messages.broker import Acquire, Destination
from ..supervisor.client import AsyncFleet, new_call_id
from ..supervisor.home import Home
from ..supervisor.loops import run
from .broker_spans import Spans

MODEL: Final = "sim-1"
READY_S: Final = 30.0
WAVE: Final = 50

Line = TypeVar("Line", bound=msgspec.Struct)


class Work(msgspec.Struct, frozen=True, kw_only=True, tag="work"):
    """Let so many lanes run against this account until `Rest`. Answered by `Standing` once all have asked."""

    base_url: str
    lanes: int = 1
    hold_s: float = 0.0


class Rest(msgspec.Struct, frozen=True, kw_only=True, tag="rest"):
    """End the lanes. Answered by their `Spans`."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The broker has heard every lane; none lanes means that the process has joined the fleet."""

    lanes: int


class ClientProcess:
    """One client in a process of its own. Blocking; owned by one thread."""

    def __init__(self, home: Home, *, name: str) -> None:
        code = f"from covey.bench.broker_client import main; main({str(home.path)!r}, {name!r})"
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def joined(self) -> None:
        """Wait until it has joined the fleet."""
        self._read(Standing)

    def begin(self, work: Work) -> None:
        """Have it begin; `standing` waits until it did."""
        self._write(work)

    def standing(self) -> None:
        """Wait until the broker has heard all its lanes."""
        self._read(Standing)

    def rest(self) -> None:
        """Have it end its lanes; `spans` waits for them."""
        self._write(Rest())

    def spans(self) -> Spans:
        """What its lanes did."""
        return self._read(Spans)

    def end(self) -> None:
        """Let it leave the fleet, and wait for its end. Idempotent."""
        assert self._child.stdin is not None, "opened as a pipe"
        assert self._child.stdout is not None, "opened as a pipe"
        self._child.stdin.close()
        try:
            self._child.wait(READY_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    def _write(self, line: Work | Rest) -> None:
        assert self._child.stdin is not None, "opened as a pipe"
        self._child.stdin.write(msgspec.json.encode(line) + b"\n")

    def _read(self, kind: type[Line]) -> Line:
        assert self._child.stdout is not None, "opened as a pipe"
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"a client ended with {self._child.wait()} before it answered")
        return msgspec.json.decode(line, type=kind)


def main(home: str, name: str) -> None:
    """Join the fleet of that home and do what the lines say."""
    run(_serve(Home.locate(home), name))


async def _serve(home: Home, name: str) -> None:
    fleet = await AsyncFleet.join(home, name=name, timeout_s=READY_S)
    try:
        _say(Standing(lanes=0))
        while line := await asyncio.to_thread(sys.stdin.readline):
            work = msgspec.json.decode(line, type=Work)
            granted: list[float] = []
            released: list[float] = []
            tasks: list[asyncio.Task[None]] = []
            while len(tasks) < work.lanes:
                # In waves, as a queue grows: what a flood of asks takes for a moment is not what waiters take.
                wave = min(WAVE, work.lanes - len(tasks))
                tasks += [asyncio.create_task(_lane(fleet, work, granted, released)) for _ in range(wave)]
                await asyncio.sleep(0)  # each of them has asked when this returns,
                await fleet.slots.caps()  # and the broker has heard it when this does
            _say(Standing(lanes=work.lanes))
            await asyncio.to_thread(sys.stdin.readline)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await fleet.slots.caps()
            _say(Spans(granted=tuple(granted), released=tuple(released)))
    finally:
        await fleet.close()


async def _lane(fleet: AsyncFleet, work: Work, granted: list[float], released: list[float]) -> None:
    # One lane, one tree: so many that wait are as many strangers to each other.
    slots, tree = fleet.slots, str(new_call_id())
    destination = Destination(base_url=work.base_url)
    while True:
        request = Acquire(call=new_call_id(), destination=destination, model=MODEL, tree=tree, accounted=False)
        grant = await slots.acquire(request)
        granted.append(time.perf_counter())
        try:
            if work.hold_s:
                await asyncio.sleep(work.hold_s)
        finally:
            released.append(time.perf_counter())
            slots.release(request, grant)


def _say(line: Standing | Spans) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()
