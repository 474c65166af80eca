"""Limits on a real fleet: workers that grow are closed to new agents or replaced, and without memory agents take turns.

A worker grows when it gets SIGUSR2: by what the file `grow` in its home says.
"""

from __future__ import annotations

import json
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
from covey.bench.provider_options import ProviderOptions
from covey.bench.provider_process import ProviderProcess
from covey.protocol.messages.fleet import AgentState, AgentView, ProcessView
from covey.storage.history import recent_restarts
from covey.supervisor.home import Home

pytestmark = pytest.mark.kill

PATIENCE_S = 20.0

FLEET = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from covey.supervisor.home import Home
from covey.supervisor.root import run_root
from covey.supervisor.roles import worker

serve = worker._serve
held = []

def grow(home):
    for word in (Path(home) / "grow").read_text().split():
        what, number = word.split("=")
        for _ in range(int(number)):
            if what == "rss_mb":
                held.append(os.urandom(1) * (1 << 20))
            elif what == "fds":
                held.append(os.open("/dev/null", os.O_RDONLY))
            else:
                threading.Thread(target=threading.Event().wait, daemon=True).start()

async def serve_and_grow(service):
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, grow, service.home.path)
    await serve(service)

# The workers are forked from a zygote that is forked from here: they have it, too.
worker._serve = serve_and_grow
sys.exit(run_root(Home(Path(sys.argv[1])), ready_fd=int(sys.argv[2]), leash_fd=None, talk=False))
"""


class Den:
    """A fleet of two workers in a home of its own."""

    def __init__(self, path: Path, fleet: Fleet) -> None:
        self.path = path
        self.fleet = fleet
        self.began_ms = int(time.time() * 1000)

    def grow(self, worker: ProcessView, by: str) -> None:
        """Have the worker use more."""
        (self.path / "grow").write_text(by)
        os.kill(worker.pid, signal.SIGUSR2)

    def worker(self, name: str) -> ProcessView:
        """A worker as status shows it."""
        return next(one for one in self.fleet.status(deadline_s=2.0).processes if one.name == name)

    def living(self) -> list[AgentView]:
        """Agents that have not ended."""
        return [agent for agent in self.fleet.agents() if not agent.state.is_final]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for what nobody sends a message about."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, f"{what}: not in time; {self.fleet.agents()}"
            select.select([], [], [], 0.02)

    def wait_for(self, file: str) -> str:
        """A goal that ends once there is such a file in the workspace."""
        command = f"touch began-{file}; while [ ! -e {file} ]; do sleep 0.05; done"
        return f"use: terminal {json.dumps({'command': command, 'timeout_s': 60})}\nsay: done"

    def is_replaced(self, before: ProcessView) -> bool:
        now = self.worker(before.name)
        return now.state == "running" and now.pid != before.pid and now.restarts == before.restarts + 1

    def reasons(self) -> list[tuple[str, str]]:
        """Who was restarted and why, as the history has it."""
        home = Home(self.path)
        found = recent_restarts(home.state_db, home.outbox, role="root", since_ms=self.began_ms)
        return [(record.child, record.reason) for record in found]


@pytest.fixture
def den(request: pytest.FixtureRequest) -> Iterator[Den]:
    """A den whose `fleet.limits` are the test's parameter."""
    with (
        tempfile.TemporaryDirectory(prefix="cvl-", dir="/tmp") as folder,
        ProviderProcess(ProviderOptions(limit=8, think_s=0.02, chunk_pace_s=0.001)) as provider,
    ):
        path = Path(folder)
        (path / "config.yaml").write_text(
            f"providers:\n  sim:\n    base_url: {provider.base_url}\n    max_concurrent: 8\n"
            f"model:\n  provider: sim\n  name: sim-1\nfleet:\n  limits: {request.param}\n"
        )
        (path / "work").mkdir()
        ready, telling = os.pipe()
        with (path / "root.out").open("wb") as out:
            root = subprocess.Popen(
                [sys.executable, "-P", "-c", FLEET, folder, str(telling)], pass_fds=[telling], stdout=out, stderr=out
            )
        os.close(telling)
        try:
            came = select.select([ready], [], [], PATIENCE_S)[0] and os.read(ready, 4096)
            assert came, (path / "root.out").read_text()
            with Fleet.connect(path, start=False) as fleet:
                yield Den(path, fleet)
        finally:
            os.close(ready)
            root.terminate()
            try:
                root.wait(15)
            except subprocess.TimeoutExpired:
                root.kill()
                root.wait()


TIGHT = "{rss_mb_soft: 200, rss_mb_hard: 400, fds_soft: 200, fds_hard: 400, threads_soft: 32, threads_hard: 64}"
NO_MEMORY = "{memory_headroom_mb: 1048576}"


@pytest.mark.parametrize("den", [TIGHT], indirect=True, ids=[""])
@pytest.mark.parametrize(("what", "by"), [("rss_mb", 500), ("fds", 500), ("threads", 80)])
def test_a_worker_over_a_hard_limit_is_replaced_and_its_agent_resumes(den: Den, what: str, by: int) -> None:
    agent = den.fleet.spawn(den.wait_for("go"), workspace=str(den.path / "work"))
    den.until((den.path / "work" / "began-go").exists, "it runs")
    [view] = den.living()
    before = den.worker(view.worker or "")

    den.grow(before, f"{what}={by}")

    den.until(lambda: den.is_replaced(before), "the worker is replaced")
    after = den.worker(before.name)
    assert after.last_exit is not None
    assert after.last_exit.startswith(f"over its limit: {what} ")
    assert after.restarts_left == 9
    assert den.reasons() == [(before.name, after.last_exit)]
    root = (den.path / "root.out").read_text()
    assert f"child_over_limit child={before.name}" in root
    assert f"what={what}" in root
    (den.path / "work" / "go").touch()
    assert agent.result(timeout=PATIENCE_S).outcome is AgentState.DONE


@pytest.mark.parametrize("den", [TIGHT], indirect=True, ids=[""])
def test_a_full_worker_gets_no_new_agents_and_is_replaced_once_it_has_none(den: Den) -> None:
    work = str(den.path / "work")
    first = den.fleet.spawn(den.wait_for("go"), workspace=work)
    den.until((den.path / "work" / "began-go").exists, "it runs")
    before = den.worker(den.living()[0].worker or "")
    den.grow(before, "fds=250")
    den.until(lambda: den.worker(before.name).over_limit is not None, "it is known to be full")
    assert (den.worker(before.name).over_limit or "").startswith("fds 2")

    others = [den.fleet.spawn(den.wait_for("stop"), workspace=work) for _ in range(4)]
    elsewhere = {agent.worker for agent in den.living() if agent.id != first.id}

    assert elsewhere == {"worker-1", "worker-2"} - {before.name}
    assert den.worker(before.name).pid == before.pid, "it was not disturbed"
    (den.path / "work" / "go").touch()
    assert first.result(timeout=PATIENCE_S).outcome is AgentState.DONE
    den.until(lambda: den.is_replaced(before), "the empty worker is replaced")
    assert (den.worker(before.name).last_exit or "").startswith("over its limit: fds ")
    assert den.worker(before.name).over_limit is None
    (den.path / "work" / "stop").touch()
    assert {agent.result(timeout=PATIENCE_S).outcome for agent in others} == {AgentState.DONE}


@pytest.mark.parametrize("den", [NO_MEMORY], indirect=True, ids=[""])
def test_without_memory_one_agent_runs_at_a_time_and_all_finish(den: Den) -> None:
    work = str(den.path / "work")
    agents = [den.fleet.spawn(den.wait_for(f"go-{number}"), workspace=work) for number in range(3)]

    for number, agent in enumerate(agents):
        began = den.path / "work" / f"began-go-{number}"
        den.until(began.exists, f"agent {number} runs")
        assert [view.id for view in den.living() if view.worker is not None] == [agent.id]
        waiting = [(view.state, view.waits_for) for view in den.living() if view.worker is None]
        assert waiting == [(AgentState.QUEUED, "memory")] * (2 - number)
        (den.path / "work" / f"go-{number}").touch()
        assert agent.result(timeout=PATIENCE_S).outcome is AgentState.DONE
    assert "memory_short" in (den.path / "root.out").read_text()


@pytest.mark.parametrize("den", [NO_MEMORY], indirect=True, ids=[""])
def test_without_memory_a_tree_of_agents_finishes(den: Den) -> None:
    leaf = {"goal": "say: leaf"}
    branch = {"goal": f"use: delegate_task {json.dumps({'tasks': [leaf, leaf]})}\nsay: branch"}
    goal = f"use: delegate_task {json.dumps({'tasks': [branch, branch, leaf]})}\nsay: top"

    results = [den.fleet.spawn(goal).result(timeout=PATIENCE_S) for _ in range(2)]

    assert [(result.outcome, result.text) for result in results] == [(AgentState.DONE, "top")] * 2
    assert len(den.fleet.agents()) == 2 * 8
    assert {agent.state for agent in den.fleet.agents()} == {AgentState.DONE}
