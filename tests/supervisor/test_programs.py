"""Programs on a real fleet: forks, threads, and a broker that does not answer. Each program is a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from covey import Fleet, errors
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess

pytestmark = pytest.mark.kill


@dataclass
class Place:
    """A fleet, the provider behind it, and this process in it."""

    fleet: Fleet
    provider: ProviderProcess
    home: Path

    def slot(self, **how: Any) -> Any:
        """A slot for a call that is not made."""
        return self.fleet.slot(self.provider.base_url, model="m", accounted=False, **how)

    def run(self, program: str) -> str:
        """Run a program against this fleet to its end; what it prints."""
        lines = f"""\
            import os, sys
            from covey import Fleet, FleetTransport
            URL = {self.provider.base_url!r}
            """
        code = textwrap.dedent(lines) + textwrap.dedent(program)
        environ = {**os.environ, "COVEY_HOME": str(self.home)}
        # Newer Pythons warn of forks beside threads; that these forks work is what is tested.
        command = [sys.executable, "-P", "-W", "ignore::DeprecationWarning", "-c", code]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def budget(self) -> Any:
        """The provider's."""
        found = self.fleet.status(deadline_s=5.0).budgets
        assert found is not None
        return next(budget for budget in found if budget.provider == "sim")

    def pid_of(self, name: str) -> int:
        """The pid of a process of the tree."""
        return next(one.pid for one in self.fleet.status(deadline_s=5.0).processes if one.name == name and one.pid)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="cvp-", dir="/tmp") as folder, ExitStack() as stack:
        provider = stack.enter_context(ProviderProcess(ProviderOptions(limit=2, think_s=0.01)))
        home = Path(folder)
        home.joinpath("config.yaml").write_text(
            f"providers:\n  sim:\n    base_url: {provider.base_url}\n    max_concurrent: 2\n"
        )
        try:
            yield Place(stack.enter_context(Fleet.connect(home, name="test", timeout=30)), provider, home)
        finally:
            environ = {**os.environ, "COVEY_HOME": folder}
            subprocess.run([sys.executable, "-P", "-m", "covey", "down"], env=environ, check=True, capture_output=True)


# --- forks -----------------------------------------------------------------------------------------------------------

FORK_INSIDE = """
    import time

    def become(pids):
        deadline = time.monotonic() + 10
        while (seen := sorted(one.pid for two in fleet.status(deadline_s=5).budgets for one in two.holders)) != pids:
            if time.monotonic() > deadline:
                return seen
        return "as it should"

    with Fleet.connect(start=False, name="forks") as fleet:
        with fleet.slot(URL, model="m", accounted=False):
            child = os.fork()
            if child == 0:
                with fleet.slot(URL, model="m", timeout=5, accounted=False):
                    print("both:", become(sorted([os.getppid(), os.getpid()])), flush=True)
                print("parent:", become([os.getppid()]), flush=True)
                {end}
            print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            print("parent:", become([os.getpid()]))
        print("nobody:", become([]))
"""


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("os._exit(0)", id="ends at once"),
        pytest.param("sys.exit(0)", id="leaves the parent's with on its way out"),
    ],
)
def test_a_forked_child_joins_by_itself_and_does_not_give_back_what_its_parent_holds(place: Place, end: str) -> None:
    said = place.run(FORK_INSIDE.replace("{end}", end))

    assert said.splitlines() == [
        "both: as it should",
        "parent: as it should",
        "child: 0",
        "parent: as it should",
        "nobody: as it should",
    ]


def test_a_fork_beside_threads_that_use_the_fleet_does_not_hang(place: Place) -> None:
    said = place.run("""
        import threading
        done = threading.Event()

        def work():
            while not done.is_set():
                with fleet.slot(URL, model="m", accounted=False):
                    pass

        with Fleet.connect(start=False) as fleet:
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            children = []
            for _ in range(5):
                if not (pid := os.fork()):
                    with fleet.slot(URL, model="m", timeout=20, accounted=False):
                        os._exit(7)
                children.append(pid)
            print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
            done.set()
            for thread in threads:
                thread.join()
    """)

    assert said.strip() == "[7, 7, 7, 7, 7]"


def test_processes_of_multiprocessing_share_the_limit_and_every_call_is_in_the_books(place: Place) -> None:
    place.provider.reset()

    place.run("""
        import multiprocessing
        import httpx

        def work(number):
            answer = http.post(f"{URL}/chat/completions", timeout=30, json={
                "model": "m", "messages": [{"role": "user", "content": f"say: {number}"}]})
            assert answer.status_code == 200, answer.text
            fleet.flush()

        with Fleet.connect(start=False) as fleet, httpx.Client(transport=FleetTransport(fleet)) as http:
            work(0)
            with multiprocessing.get_context("fork").Pool(4) as pool:
                pool.map(work, range(1, 13), chunksize=1)
    """)

    stats, calls = place.provider.stats(), place.provider.calls()
    assert (stats.completed, stats.refused) == (13, {})
    assert stats.peak_in_flight <= 2
    rows = {row.record.call: row.record.usage for row in place.fleet.calls()}
    assert [rows[call.client_request_id].completion_tokens for call in calls] == [  # type: ignore[union-attr, index]
        call.completion_tokens for call in calls
    ]


# --- threads ---------------------------------------------------------------------------------------------------------


def test_threads_of_one_fleet_never_hold_more_than_there_is_and_interrupted_ones_lose_nothing(
    place: Place, until: Callable[[Callable[[], bool]], None]
) -> None:
    inside, most, lock = 0, 0, threading.Lock()
    entered: list[int] = []
    stops = [threading.Event() for _ in range(24)]

    def work(number: int) -> None:
        nonlocal inside, most
        for _ in range(5):
            try:
                with place.slot(interrupt=stops[number]):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                        entered.append(number)
                    stops[(number * 7 + len(entered)) % 24].set()  # somebody, at any moment: also at their grant
                    with lock:
                        inside -= 1
            except InterruptedError:
                stops[number].clear()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert not any(thread.is_alive() for thread in threads)
    assert entered
    assert most <= 2
    # The last ones are on their way to the broker yet.
    until(lambda: (place.budget().in_flight, place.budget().queued) == (0, 0))


# --- the broker does not answer --------------------------------------------------------------------------------------


@pytest.fixture
def silent_broker(place: Place) -> Iterator[int]:
    """The broker, stopped where it stands."""
    pid = place.pid_of("broker")
    os.kill(pid, signal.SIGSTOP)
    yield pid
    os.kill(pid, signal.SIGCONT)


def test_with_a_timeout_a_silent_broker_is_a_local_error_and_no_slot(place: Place, silent_broker: int) -> None:
    began = time.monotonic()

    with pytest.raises(errors.BrokerSilent) as silent, place.slot(timeout=0.2):
        pytest.fail("nobody granted it")

    assert isinstance(silent.value, errors.SlotTimeout)
    assert silent.value.budget.startswith("sim:")
    assert time.monotonic() - began < 5.0


def test_without_one_the_call_waits_and_gets_its_slot_when_the_broker_is_back(place: Place, silent_broker: int) -> None:
    outside, got = threading.Event(), threading.Event()

    def wait() -> None:
        outside.set()
        with place.slot():
            got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    outside.wait()
    was_early = got.wait(0.3)
    os.kill(silent_broker, signal.SIGCONT)
    thread.join(20)

    assert (was_early, got.is_set()) == (False, True)
