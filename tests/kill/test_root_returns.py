"""A root that was killed and started again: it knows what its predecessor had spent, and ends what that left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import House

pytestmark = pytest.mark.kill


def until(holds: Callable[[], bool], *, within_s: float, what: str) -> None:
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < within_s, f"{what}: not within {within_s} s"
        time.sleep(0.01)


def tree(house: House) -> dict[str, Any]:
    done = house.covey("tree", "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def child(house: House, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in tree(house)["tree"]["children"] if one["name"] == name)
    return found


def kill_and_await(house: House, name: str) -> None:
    pid = child(house, name)["pid"]
    os.kill(pid, signal.SIGKILL)
    until(
        lambda: (now := child(house, name))["state"] == "running" and now["pid"] not in (0, pid),
        within_s=10.0,
        what=f"{name} is back",
    )


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_root_that_is_started_again_grants_no_amnesty(house: House) -> None:
    root = house.up()
    for _ in range(3):
        kill_and_await(house, "broker")
    assert child(house, "broker")["restarts_left"] == 7

    os.kill(root, signal.SIGKILL)
    until(lambda: not is_alive(root), within_s=5.0, what="the root is gone")
    house.up()

    assert child(house, "broker")["restarts_left"] == 7
    assert child(house, "ledger")["restarts_left"] == 10
    kill_and_await(house, "broker")
    assert child(house, "broker")["restarts_left"] == 6


def test_a_restart_that_was_charged_right_before_the_root_died_is_remembered(house: House) -> None:
    """Nobody may have stored it yet: it waits in the dead root's spool."""
    root = house.up()
    os.kill(child(house, "ledger")["pid"], signal.SIGKILL)
    until(
        lambda: any("child_restarts child=ledger" in line for line in root_log(house)),
        within_s=10.0,
        what="the restart is charged",
    )
    os.kill(root, signal.SIGKILL)
    until(lambda: not is_alive(root), within_s=5.0, what="the root is gone")

    house.up()

    assert child(house, "ledger")["restarts_left"] == 9


def test_what_root_and_zygote_left_behind_together_is_ended_by_the_next_root(house: House) -> None:
    root = house.up()
    zygote = house.pid_of("zygote")
    goal = f"use: terminal {json.dumps({'command': 'setsid sleep 9891 & sleep 9892', 'timeout_s': 60})}\nsay: done"
    path = house.work / "swarm.yaml"
    path.write_text(f"tasks:\n  - goal: {json.dumps(goal)}\n")
    swarm = house.start("swarm", str(path))
    until(lambda: len(sleepers(house)) >= 2, within_s=20.0, what="the command runs")
    bystander = subprocess.Popen(["sleep", "9893"], env=house.environ(), start_new_session=True)

    # Stopped first, so that neither can act on the death of the other; the zygote dies first, because the kernel
    # continues a stopped process group when its last tie to the outside ends.
    for signo in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(zygote, signo)
        os.kill(root, signo)
    until(lambda: not is_alive(root) and not is_alive(zygote), within_s=5.0, what="both are gone")
    orphans = [pid for pid in sleepers(house) if pid != bystander.pid]
    assert orphans, "the kernel alone does not find the grandchildren"

    house.up()

    assert [pid for pid in orphans if is_alive(pid)] == []
    assert bystander.poll() is None
    assert any("leftovers_killed" in line for line in root_log(house))
    bystander.kill()
    bystander.wait()
    swarm.communicate(timeout=20)


def test_after_an_orderly_stop_there_is_nothing_to_look_for(house: House) -> None:
    house.up()
    register = house.path / "run" / "processes.jsonl"
    assert register.exists()

    house.covey("down")

    assert not register.exists()


def root_log(house: House) -> list[str]:
    return str((house.path / "logs" / "root.log").read_text()).splitlines()


def sleepers(house: House) -> list[int]:
    return [pid for pid in house.marked() if _command(pid) == "sleep"]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
