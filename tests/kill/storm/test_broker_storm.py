"""Fifty programs at one account while they, and the broker, are killed: the limit holds, nothing leaks, all are served.

60 seconds; 10 minutes by `make kill` (COVEY_KILL_STORM_S). The seed is in the test's id.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from under_fire import MakeFleet, UnderFire, until

pytestmark = [pytest.mark.kill, pytest.mark.slow]

STORM_S = float(os.environ.get("COVEY_KILL_STORM_S", "60"))
CLIENTS = 50
LIMIT = 3
KILL_EVERY_S, STOP_EVERY_S, STOPPED_S, BROKER_EVERY_S = 0.4, 0.3, (0.02, 0.8), 3.0
CALM_S = 60.0
"""How long it may take until all have been served once, before and after the storm: fifty, three at a time."""


class Herd:
    """The programs. Whoever is killed is replaced by another of the same number."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout.fileno()
        self._unread = b""
        self._killed: set[int] = set()
        self.pids: dict[int, int] = {}
        self.left: set[int] = set()
        self.outcomes: Counter[str] = Counter()
        self.served: Counter[int] = Counter()
        self.problems: list[str] = []

    def fork(self, number: int) -> None:
        """One more program."""
        self._stdin.write(b"fork %d\n" % number)
        self._stdin.flush()

    def enough(self) -> None:
        """Every program leaves after the call it is at."""
        self._stdin.write(b"enough\n")
        self._stdin.flush()

    def kill(self, number: int) -> None:
        """SIGKILL, whatever it is doing, also while it is stopped."""
        self._killed.add(number)
        self._signal(number, signal.SIGKILL)

    def stop(self, number: int) -> None:
        """SIGSTOP."""
        self._signal(number, signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        """SIGCONT."""
        self._signal(number, signal.SIGCONT)

    def listen(self, until_s: float) -> None:
        """Take in what they say, until that moment at most."""
        wait_s = max(0.0, until_s - time.monotonic())
        if not select.select([self._stdout], [], [], wait_s)[0]:
            return
        *lines, self._unread = (self._unread + os.read(self._stdout, 1 << 16)).split(b"\n")
        for line in lines:
            self._take(*line.decode().split(" ", 2))

    def listen_until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Take in what they say until this is so, or there is a problem; whether it is so in time."""
        deadline = time.monotonic() + within_s
        while not holds() and not self.problems and time.monotonic() < deadline:
            self.listen(deadline)
        return holds()

    def _take(self, what: str, name: str, more: str = "") -> None:
        number = int(name)
        match what:
            case "born":
                self.pids[number] = int(more)
            case "left":
                self.left.add(number)
            case "died" if number in self._killed:
                self._killed.discard(number)
                self.fork(number)
            case "died" if more == "0":
                self.pids.pop(number)
            case "died" | "failed":
                self.problems.append(f"{what} {number}: {more}")
            case _:
                self.outcomes[what] += 1
                self.served[number] += what == "served"

    def _signal(self, number: int, signum: int) -> None:
        try:
            os.kill(self.pids[number], signum)
        except ProcessLookupError:
            return


@contextmanager
def herd(fire: UnderFire, seed: int) -> Iterator[Herd]:
    program = Path(__file__).with_name("storm_clients.py")
    arguments = [str(fire.path), fire.provider.root_url, str(seed)]
    process = subprocess.Popen(
        [sys.executable, "-P", str(program), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield Herd(process)
    finally:
        process.communicate(timeout=30)


class Storm:
    """What happens to them, by a seed: each kind of blow at random moments, so often on average."""

    def __init__(self, fire: UnderFire, herd: Herd, chance: random.Random) -> None:
        self._fire, self._herd, self._chance = fire, herd, chance
        self._stopped: dict[int, float] = {}
        self.blows: Counter[str] = Counter()

    def blow(self, seconds: float) -> None:
        """Let it last so long."""
        began = time.monotonic()
        kinds: dict[str, tuple[float, Callable[[], None]]] = {
            "client killed": (KILL_EVERY_S, self._kill),
            "client stopped": (STOP_EVERY_S, self._stop),
            "broker killed": (BROKER_EVERY_S, self._fire.kill_broker),
        }
        due = {kind: began + self._chance.expovariate(1 / every_s) for kind, (every_s, _) in kinds.items()}
        while (now := time.monotonic()) < began + seconds:
            self._let_go(now)
            for kind, (every_s, do) in kinds.items():
                if now >= due[kind]:
                    do()
                    self.blows[kind] += 1
                    due[kind] = now + self._chance.expovariate(1 / every_s)
            self._herd.listen(min(*due.values(), *self._stopped.values(), now + 0.1))
        self._let_go(float("inf"))

    def _kill(self) -> None:
        self._herd.kill(self._chance.randrange(CLIENTS))

    def _stop(self) -> None:
        number = self._chance.randrange(CLIENTS)
        self._herd.stop(number)
        self._stopped[number] = time.monotonic() + self._chance.uniform(*STOPPED_S)

    def _let_go(self, now: float) -> None:
        for number in [number for number, at in self._stopped.items() if at <= now]:
            del self._stopped[number]
            self._herd.go_on(number)


@pytest.mark.timeout(STORM_S + 240)
@pytest.mark.parametrize("seed", [1])
def test_fifty_programs_and_a_broker_that_is_killed_keep_the_limit_and_all_are_served(
    seed: int, make_fleet: MakeFleet
) -> None:
    fire = make_fleet(limit=LIMIT)
    with herd(fire, seed) as programs:
        for number in range(CLIENTS):
            programs.fork(number)
        assert programs.listen_until(lambda: len(programs.served) == CLIENTS, CALM_S), programs.problems
        storm = Storm(fire, programs, random.Random(seed))

        storm.blow(STORM_S)

        programs.enough()
        all_left = programs.listen_until(lambda: not programs.pids, CALM_S)
        assert all_left, f"{sorted(programs.pids)} wait for ever; {programs.problems}; {fire.budget()}"
    [account] = fire.provider.accounts().accounts.values()
    figures = f"{dict(storm.blows)}, {dict(programs.outcomes)}, {account}"
    print(figures)
    assert programs.problems == []
    assert programs.left == set(range(CLIENTS))
    assert account.peak_in_flight <= LIMIT, figures
    assert not account.refused
    assert not [outcome for outcome in programs.outcomes if outcome.startswith("refused")]
    assert account.answered > 2 * STORM_S, "slots turned over all the time"
    until(lambda: fire.budget().in_flight == 0, "the slots of the last calls are free")
    budget = fire.budget()
    assert (budget.queued, budget.holders, fire.leases()) == (0, (), [])
    assert budget.limit == LIMIT
    assert budget.peak_in_flight <= LIMIT
