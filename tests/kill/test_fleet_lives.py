"""The fleet as a whole, on real processes: it comes up once, is killed in every place, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from covey import Fleet
from covey.protocol.errors import FleetLost, NoFleet, SlotTimeout

if TYPE_CHECKING:
    from conftest import House

pytestmark = pytest.mark.kill

NOBODY_LEFT_S = 5.0


def until(holds: Callable[[], bool], *, within_s: float, what: str) -> float:
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < within_s, f"{what}: not within {within_s} s"
        time.sleep(0.01)
    return time.monotonic() - started


def swarm_file(house: House, goals: list[str]) -> str:
    path = house.work / "swarm.yaml"
    path.write_text("tasks:\n" + "".join(f"  - goal: {json.dumps(goal)}\n" for goal in goals))
    return str(path)


def test_up_says_what_it_did_and_down_leaves_nothing(house: House) -> None:
    up = house.covey("up", "--detach")
    status = house.covey("status")
    down = house.covey("down")

    assert up.returncode == status.returncode == down.returncode == 0
    assert "6 processes" in up.stdout
    for name in ("root", "zygote", "ledger", "broker", "worker-1", "worker-2"):
        assert name in status.stdout
    assert "stopped the fleet" in down.stdout
    assert "6 processes" in down.stdout
    assert house.marked() == []


def test_nothing_runs_is_said_and_no_error(house: House) -> None:
    status, as_json, down = house.covey("status"), house.covey("status", "--json"), house.covey("down")

    assert status.returncode == as_json.returncode == down.returncode == 0
    assert "no fleet runs" in status.stdout
    assert json.loads(as_json.stdout)["running"] is False
    assert "nothing to stop" in down.stdout


@pytest.mark.parametrize("how", [(), ("--detach",)], ids=["in the foreground", "detached"])
def test_a_second_up_is_refused_and_names_the_owner(house: House, how: tuple[str, ...]) -> None:
    pid = house.up()

    second = house.covey("up", *how)

    assert second.returncode == 1
    assert f"process {pid}" in second.stderr
    assert house.pid_of("root") == pid


def test_status_has_the_documented_keys(house: House) -> None:
    house.up()

    status = house.status()

    assert status["running"] is True
    assert status["home"] == str(house.path)
    assert {process["role"] for process in status["processes"]} == {"root", "zygote", "ledger", "broker", "worker"}
    for process in status["processes"]:
        assert process.keys() >= {"role", "name", "pid", "uptime_s", "restarts", "rss_mb", "threads"}
        assert process["rss_mb"] > 0
    sim = next(budget for budget in status["budgets"] if budget["provider"] == "sim")
    assert sim.keys() >= {"key", "provider", "limit", "in_flight", "queued", "oldest_wait_s"}
    assert sim["limit"] == 2
    assert status["ledger"].keys() >= {"rows", "backlog"}
    assert status["agents"] == []


@pytest.mark.parametrize("name", ["ledger", "broker", "worker-1", "zygote"])
def test_a_killed_process_is_started_again(house: House, name: str) -> None:
    house.up()
    pid = house.pid_of(name)

    os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        found = {process["name"]: process for process in house.status()["processes"]}
        return (
            all(process["state"] == "running" and process["pid"] not in (0, pid) for process in found.values())
            and len(found) == 6
        )

    until(is_back, within_s=10.0, what=f"{name} is back")


def test_nobody_is_left_after_the_root_was_killed(house: House) -> None:
    """Grandchildren too, that left their session and their parent behind."""
    root = house.up()
    commands = [
        "setsid sleep 9871 & sleep 9872",
        "(setsid sh -c 'sleep 9873 & sleep 9874' &) ; sleep 9875",
    ]
    goals = [f"use: terminal {json.dumps({'command': command, 'timeout_s': 60})}\nsay: done" for command in commands]
    swarm = house.start("swarm", swarm_file(house, goals))
    sleeping = lambda: sum(_is_sleep(pid) for pid in house.marked())  # noqa: E731 - read twice right below
    until(lambda: sleeping() >= 5, within_s=20.0, what="the commands run")

    os.kill(root, signal.SIGKILL)

    took = until(lambda: set(house.marked()) <= {swarm.pid}, within_s=NOBODY_LEFT_S, what="nobody is left")
    print(f"nobody was left after {took:.2f} s")
    out, _ = swarm.communicate(timeout=10)
    assert swarm.returncode == 1
    assert "ended" in out


def test_what_a_killed_worker_leaves_behind_is_killed(house: House) -> None:
    house.up()
    goal = f"use: terminal {json.dumps({'command': 'setsid sleep 9876 & sleep 9877', 'timeout_s': 2})}\nsay: done"
    swarm = house.start("swarm", swarm_file(house, [goal]), "--json")
    until(lambda: sum(_is_sleep(pid) for pid in house.marked()) >= 2, within_s=20.0, what="the command runs")
    [agent] = house.status()["agents"]

    os.kill(house.pid_of(agent["worker"]), signal.SIGKILL)

    until(lambda: not any(_is_sleep(pid) for pid in house.marked()), within_s=5.0, what="its commands are gone")
    out, _ = swarm.communicate(timeout=30)
    [result] = json.loads(out)["results"]
    assert result["outcome"] == "done"


def test_a_killed_worker_loses_no_child_and_repeats_no_finished_call(make_house: Callable[..., House]) -> None:
    house = make_house(limit=4, think_s=0.15)
    house.up()
    goals = [f"child {number}\n" + 'use: list_files {"path": "."}\n' * 3 + f"say: {number}" for number in range(8)]
    swarm = house.start("swarm", swarm_file(house, goals), "--json")
    until(lambda: house.provider.stats().completed >= 8, within_s=20.0, what="a quarter of the calls")

    for name in ("worker-1", "worker-2"):
        os.kill(house.pid_of(name), signal.SIGKILL)

    out, err = swarm.communicate(timeout=60)
    assert swarm.returncode == 0, out + err
    results = json.loads(out)["results"]
    assert [result["text"] for result in results] == [str(number) for number in range(8)]
    stats = house.provider.stats()
    # 32 calls were needed; only those in flight at the two deaths (at most four each time) are made twice.
    assert stats.completed <= 32 + 8
    assert stats.peak_in_flight <= 4
    assert not stats.refused


def test_a_tree_of_agents_finishes_with_one_slot(make_house: Callable[..., House]) -> None:
    house = make_house(limit=1, think_s=0.02)
    leaf = 'use: list_files {"path": "."}\nsay: leaf'
    middle = f"use: delegate_task {json.dumps({'tasks': [{'goal': leaf}, {'goal': leaf}]})}\nsay: middle"
    top = f"use: delegate_task {json.dumps({'tasks': [{'goal': middle}, {'goal': middle}]})}\nsay: top"

    done = house.covey("run", top, "--json")

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["text"] == "top"
    stats = house.provider.stats()
    assert stats.peak_in_flight == 1
    assert stats.calls == 2 + 2 * 2 + 4 * 2


def test_one_failing_child_does_not_lose_the_others(house: House) -> None:
    goals = ["say: fine", "use: no_such_tool {}\nuse: no_such_tool {}\nsay: fine too"]
    path = house.work / "swarm.yaml"
    path.write_text(
        f"tasks:\n  - goal: {json.dumps(goals[0])}\n  - goal: {json.dumps(goals[0])}\n    model: nowhere/none\n"
        f"  - goal: {json.dumps(goals[1])}\n"
    )
    config = house.path / "config.yaml"
    config.write_text(
        config.read_text().replace(
            "model:\n", "  nowhere:\n    base_url: http://127.0.0.1:9/v1\n    api_key_env: NOWHERE_KEY\nmodel:\n"
        )
    )

    done = house.covey("swarm", str(path), "--json")

    assert done.returncode == 1
    results = json.loads(done.stdout)["results"]
    assert [result["outcome"] for result in results] == ["done", "failed", "done"]
    assert "NOWHERE_KEY is not set" in results[1]["error"]


def test_the_fleet_of_a_killed_command_ends_with_it(house: House) -> None:
    goal = f"use: terminal {json.dumps({'command': 'sleep 9878', 'timeout_s': 60})}\nsay: done"
    command = house.start("run", goal)
    until(lambda: any(_is_sleep(pid) for pid in house.marked()), within_s=20.0, what="the agent works")

    command.kill()
    command.communicate()

    until(lambda: house.marked() == [], within_s=15.0, what="the fleet has ended")


def test_ctrl_c_stops_the_agent_and_says_130(house: House) -> None:
    house.up()
    goal = f"use: terminal {json.dumps({'command': 'sleep 9879', 'timeout_s': 60})}\nsay: done"
    command = house.start("run", goal)
    until(lambda: any(_is_sleep(pid) for pid in house.marked()), within_s=20.0, what="the agent works")

    command.send_signal(signal.SIGINT)
    command.communicate(timeout=20)

    assert command.returncode == 130
    until(lambda: not any(_is_sleep(pid) for pid in house.marked()), within_s=5.0, what="its command is gone")
    assert {agent["state"] for agent in house.status()["agents"]} == {"stopped"}


def test_stopping_an_agent_stops_its_subtree_and_no_call_starts_later(make_house: Callable[..., House]) -> None:
    house = make_house(limit=2, think_s=0.05)
    house.up()
    leaf = 'use: list_files {"path": "."}\n' * 40 + "say: leaf"
    top = f"use: delegate_task {json.dumps({'tasks': [{'goal': leaf}] * 6})}\nsay: top"

    with Fleet.connect(house.path, start=False) as fleet:
        agent = fleet.spawn(top, workspace=house.work)
        until(lambda: house.provider.stats().calls > 10, within_s=20.0, what="the children work")
        agent.stop()
        after_stop = house.provider.stats().calls
        result = agent.result(timeout=10)
        until(
            lambda: all(one.state.is_final for one in fleet.agents()), within_s=10.0, what="the whole subtree has ended"
        )
        states = {one.state.value for one in fleet.agents()}

    assert result.outcome.value == "stopped"
    assert states == {"stopped"}
    assert house.provider.stats().calls == after_stop
    assert not house.provider.stats().refused


# --- the client library ----------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from covey import Fleet
with Fleet.connect(start=False) as fleet:
    with fleet.slot(sys.argv[1], model="m") as slot:
        print(slot.call, flush=True)
        time.sleep(600)
"""


def hold_slot(house: House) -> subprocess.Popen[str]:
    """A program that holds a slot; returns once it does."""
    program = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD, house.provider.base_url],
        env=house.environ(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline().startswith("call_")
    return program


def test_a_killed_clients_slot_is_free_within_a_second(make_house: Callable[..., House]) -> None:
    house = make_house(limit=1)
    house.up()
    holder = hold_slot(house)

    with Fleet.connect(house.path, start=False) as fleet:
        with pytest.raises(SlotTimeout), fleet.slot(house.provider.base_url, model="m", timeout=0.2):
            pytest.fail("there is no slot")
        holder.kill()
        started = time.monotonic()
        with fleet.slot(house.provider.base_url, model="m", timeout=5.0):
            took = time.monotonic() - started

    holder.communicate()
    assert took < 1.0
    status = house.status()
    [budget] = [budget for budget in status["budgets"] if budget["provider"] == "sim"]
    assert budget["peak_in_flight"] == 1


def test_a_held_slot_survives_the_brokers_death(make_house: Callable[..., House]) -> None:
    house = make_house(limit=1)
    house.up()
    holder = hold_slot(house)

    os.kill(house.pid_of("broker"), signal.SIGKILL)

    with Fleet.connect(house.path, start=False) as fleet:
        with pytest.raises(SlotTimeout), fleet.slot(house.provider.base_url, model="m", timeout=1.0):
            pytest.fail("the slot was given out twice")
        holder.kill()
        holder.communicate()
        with fleet.slot(house.provider.base_url, model="m", timeout=5.0):
            pass


def test_a_client_without_a_fleet_is_told_which_home_has_none(house: House) -> None:
    with pytest.raises(NoFleet, match=str(house.path)), Fleet.connect(house.path, start=False):
        pytest.fail("there is no fleet")


def test_a_client_brings_a_fleet_up_and_it_stays(house: House) -> None:
    with Fleet.connect(house.path) as fleet:
        assert len(fleet.status().processes) == 6

    assert house.status()["running"] is True


def test_a_client_hears_that_the_fleet_has_ended(house: House) -> None:
    root = house.up()

    with Fleet.connect(house.path, start=False) as fleet:
        agent = fleet.spawn(f"use: terminal {json.dumps({'command': 'sleep 9880'})}\nsay: done", workspace=house.work)
        os.kill(root, signal.SIGKILL)
        with pytest.raises(FleetLost):
            agent.result(timeout=20)


def test_usage_that_was_recorded_is_in_the_ledger(house: House) -> None:
    house.up()
    report = {"prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}

    with Fleet.connect(house.path, start=False) as fleet:
        with fleet.slot(house.provider.base_url, model="m") as slot:
            slot.record_usage(report)
        with fleet.slot(house.provider.base_url, model="m"):
            pass  # nobody said what it cost
        fleet.flush()
        totals = fleet.totals()

    assert (totals.calls, totals.unknown_calls) == (2, 1)
    assert (totals.prompt_tokens, totals.completion_tokens, totals.cache_read_tokens) == (20, 5, 8)


def test_records_of_a_killed_client_are_adopted(house: House) -> None:
    """It died before the ledger had them: the ledger was stopped at that moment."""
    house.up()
    ledger = house.pid_of("ledger")
    program = (
        "import sys, time\nfrom covey import Fleet\n"
        "with Fleet.connect(start=False) as fleet:\n"
        "    fleet.record_usage({'prompt_tokens': 3, 'completion_tokens': 4}, base_url='http://x/v1', model='m')\n"
        "    print('kept', flush=True)\n    time.sleep(600)\n"
    )
    os.kill(ledger, signal.SIGSTOP)
    client = subprocess.Popen(
        [sys.executable, "-P", "-c", program], env=house.environ(), stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "kept\n"
    client.kill()
    client.communicate()
    os.kill(ledger, signal.SIGKILL)

    with Fleet.connect(house.path, start=False) as fleet:
        until(lambda: fleet.totals().prompt_tokens == 3, within_s=10.0, what="the record is adopted")
        assert fleet.totals().calls == 1


def _is_sleep(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as file:
            return file.read().strip() == "sleep"
    except OSError:
        return False
