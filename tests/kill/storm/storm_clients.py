"""Programs that make call after call under the fleet's limit, one process each, forked from this one.

    python -P storm_clients.py HOME PROVIDER_URL SEED

Reads lines `fork NUMBER` and `enough`; writes `born NUMBER PID`, what becomes of each call (`served NUMBER`, …), `left
NUMBER` and `died NUMBER STATUS`. When its input ends, all of them end.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from covey import Fleet, FleetTransport
from covey.protocol.errors import SlotTimeout

MODEL = "sim-1"
KEY = "one-key-for-all"
NICENESS = 10
"""The provider is on another machine in real life: here it at least comes first."""

PACES = ("quick", "middling", "slow", "long"), (6, 6, 6, 2)
"""25, 25, 80 and 420 ms; the long ones outlive a broker."""

IMPATIENT_S = 0.5
IMPATIENT, CUT = 0.15, 0.2
"""Shares of the calls that give up waiting, and that are broken off in the middle of the answer."""


class BrokenOff(Exception):
    """The program wants no more of this answer."""


def say(*words: object) -> None:
    """One line in one write, so that no two programs' lines mix."""
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


class Client:
    """One program. Even ones speak chat completions, odd ones Anthropic; half hold slots by hand, half by transport."""

    def __init__(self, fleet: Fleet, url: str, number: int, chance: random.Random) -> None:
        self._fleet, self._chance = fleet, chance
        self._url = f"{url}/api/anthropic/v1" if number % 2 else f"{url}/api/coding/paas/v4"
        self._path = "messages" if number % 2 else "chat/completions"
        self._is_by_hand = number % 4 < 2
        self._plain = httpx.Client(timeout=60.0)
        self._patient = httpx.Client(timeout=60.0, transport=FleetTransport(fleet))
        self._impatient = httpx.Client(timeout=60.0, transport=FleetTransport(fleet, timeout=IMPATIENT_S))

    def call(self) -> str:
        """Make one call; what became of it."""
        try:
            with self._by_hand() if self._is_by_hand else self._by_transport() as answer:
                if answer.status_code != httpx.codes.OK:
                    return f"refused:{answer.status_code}"
                self._read(answer)
        except BrokenOff:
            return "cut"
        except (SlotTimeout, InterruptedError):
            return "gave_up"
        return "served"

    def _read(self, answer: httpx.Response) -> None:
        is_cut = self._chance.random() < CUT
        for _ in answer.iter_bytes():
            if is_cut:
                raise BrokenOff

    @contextmanager
    def _by_hand(self) -> Iterator[httpx.Response]:
        give_up_at = time.monotonic() + IMPATIENT_S
        interrupt: Callable[[], bool] | None = (lambda: time.monotonic() > give_up_at) if self._is_impatient() else None
        with (
            self._fleet.slot(self._url, model=MODEL, api_key=KEY, interrupt=interrupt) as slot,
            self._ask(self._plain, slot.call) as answer,
        ):
            yield answer

    @contextmanager
    def _by_transport(self) -> Iterator[httpx.Response]:
        with self._ask(self._impatient if self._is_impatient() else self._patient, None) as answer:
            yield answer

    @contextmanager
    def _ask(self, client: httpx.Client, call: str | None) -> Iterator[httpx.Response]:
        prompt = f"{self._chance.choices(*PACES)[0]}\nsay: done"
        body = {"model": MODEL, "stream": True, "max_tokens": 64, "messages": [{"role": "user", "content": prompt}]}
        headers = {"authorization": f"Bearer {KEY}"} | ({"x-client-request-id": call} if call else {})
        with client.stream("POST", f"{self._url}/{self._path}", content=json.dumps(body), headers=headers) as answer:
            yield answer

    def _is_impatient(self) -> bool:
        return self._chance.random() < IMPATIENT


def live(home: str, url: str, number: int, chance: random.Random, enough: mmap.mmap) -> None:
    """Make calls until it is enough."""
    with Fleet.connect(home, start=False, name=f"storm-{number}", timeout=60.0) as fleet:
        client = Client(fleet, url, number, chance)
        while not enough[0]:
            say(client.call(), number)
    say("left", number)


def herd(home: str, url: str, seed: str) -> None:
    """Do as we are told until our input ends."""
    enough = mmap.mmap(-1, mmap.PAGESIZE)
    living: dict[int, tuple[int, int]] = {}
    watched = select.poll()
    watched.register(0, select.POLLIN)
    forks, unread = 0, b""
    while True:
        for fd, _ in watched.poll():
            if fd != 0:
                number, pid = living.pop(fd)
                watched.unregister(fd)
                os.close(fd)
                say("died", number, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                continue
            told = os.read(0, 4096)
            if not told:
                for pidfd in living:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return
            *lines, unread = (unread + told).split(b"\n")
            for line in lines:
                if line == b"enough":
                    enough[0] = 1
                    continue
                number, forks = int(line.split()[1]), forks + 1
                pid = os.fork()
                if pid == 0:
                    _child(home, url, number, random.Random(f"{seed} {number} {forks}"), enough)
                pidfd = os.pidfd_open(pid)
                living[pidfd] = number, pid
                watched.register(pidfd, select.POLLIN)
                say("born", number, pid)


def _child(home: str, url: str, number: int, chance: random.Random, enough: mmap.mmap) -> None:
    code = 1
    try:
        os.nice(NICENESS)
        live(home, url, number, chance, enough)
        code = 0
    except BaseException as error:  # noqa: BLE001 - the end of this process, told to whoever reads
        say("failed", number, repr(error))
    finally:
        os._exit(code)


if __name__ == "__main__":
    herd(*sys.argv[1:])
