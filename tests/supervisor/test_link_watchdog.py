"""The watchdog on a real fleet: a worker whose loop stands still is found, leaves its stacks, and is replaced."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey import Fleet
from covey.protocol.messages.fleet import ProcessView

pytestmark = pytest.mark.kill

WATCHDOG_S = 1.0

FLEET = """
import asyncio, os, signal, sys, time
from pathlib import Path
from covey.supervisor.home import Home
from covey.supervisor.root import run_root
from covey.supervisor.roles import worker

serve = worker._serve

def stand_still():
    time.sleep(3600)

async def serve_until_told_to_stand_still(service):
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, stand_still)
    await serve(service)

# The workers are forked from a zygote that is forked from here: they have it, too.
worker._serve = serve_until_told_to_stand_still
home, ready_fd, watchdog_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
sys.exit(run_root(Home(home), ready_fd=ready_fd, leash_fd=None, talk=False, watchdog_s=watchdog_s))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with a fleet in it whose watchdog bites after a second."""
    with tempfile.TemporaryDirectory(prefix="cvw-", dir="/tmp") as folder:
        home = Path(folder)
        (home / "config.yaml").write_text(
            "providers:\n  sim:\n    base_url: http://127.0.0.1:9/v1\n    max_concurrent: 1\n"
            "model:\n  provider: sim\n  name: sim-1\n"
        )
        ready, telling = os.pipe()
        with (home / "root.out").open("wb") as out:
            root = subprocess.Popen(
                [sys.executable, "-P", "-c", FLEET, folder, str(telling), str(WATCHDOG_S)],
                pass_fds=[telling],
                stdout=out,
                stderr=out,
            )
        os.close(telling)
        try:
            came = select.select([ready], [], [], 20.0)[0] and os.read(ready, 4096)
            assert came, (home / "root.out").read_text()
            yield home
        finally:
            os.close(ready)
            root.terminate()
            try:
                root.wait(15)
            except subprocess.TimeoutExpired:
                root.kill()
                root.wait()


def worker_of(fleet: Fleet) -> ProcessView:
    return next(process for process in fleet.status(deadline_s=2.0).processes if process.name == "worker-1")


def until(holds: Callable[[], bool], *, within_s: float) -> float:
    """Wait for what nobody sends a message about; how long it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < within_s
        select.select([], [], [], 0.05)
    return time.monotonic() - began


def replaced(fleet: Fleet, before: ProcessView) -> Callable[[], bool]:
    def holds() -> bool:
        now = worker_of(fleet)
        return now.state == "running" and now.pid not in (0, before.pid) and now.restarts == before.restarts + 1

    return holds


def test_a_worker_whose_loop_stands_still_leaves_its_stacks_and_is_replaced(home: Path) -> None:
    with Fleet.connect(home, start=False) as fleet:
        before = worker_of(fleet)

        os.kill(before.pid, signal.SIGUSR2)

        took = until(replaced(fleet, before), within_s=WATCHDOG_S + 6.0)
    log = (home / "logs" / "worker-1.log").read_text()
    assert "stand_still" in log, "faulthandler wrote where the loop stood"
    assert "Current thread" in log
    print(f"replaced {took:.2f} s after its loop stood still")


def test_a_stopped_worker_is_replaced(home: Path) -> None:
    with Fleet.connect(home, start=False) as fleet:
        before = worker_of(fleet)

        os.kill(before.pid, signal.SIGSTOP)

        until(replaced(fleet, before), within_s=WATCHDOG_S + 6.0)


def test_a_fleet_that_turns_is_left_alone(home: Path) -> None:
    with Fleet.connect(home, start=False) as fleet:
        before = {process.name: process.pid for process in fleet.status().processes}
        until(lambda: min(process.uptime_s for process in fleet.status().processes) > 3 * WATCHDOG_S, within_s=20.0)

        assert {process.name: process.pid for process in fleet.status().processes} == before
