"""`covey tree` and `covey restart` on a real fleet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

COVEY = [sys.executable, "-P", "-m", "covey"]


class Fleet:
    """A running fleet in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def covey(self, *args: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "COVEY_HOME": str(self.home)}
        return subprocess.run([*COVEY, *args], env=environ, capture_output=True, text=True, timeout=60)

    def tree(self) -> dict[str, Any]:
        done = self.covey("tree", "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def child(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.tree()["tree"]["children"] if one["name"] == name)
        return found


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="cvt-", dir="/tmp") as folder:
        found = Fleet(Path(folder) / "h")
        up = found.covey("up", "--detach")
        assert up.returncode == 0, up.stderr
        yield found
        found.covey("down", "--timeout", "5")


def test_the_tree_has_every_process_with_its_life_and_what_becomes_of_it(fleet: Fleet) -> None:
    said = fleet.tree()

    assert said["running"] is True
    assert said["strategy"] == "one_for_one"
    assert said["tree"]["name"] == "root"
    assert said["tree"]["zygote"]["pid"] > 0
    assert [child["name"] for child in said["tree"]["children"]] == ["ledger", "broker", "worker-1", "worker-2"]
    for child in said["tree"]["children"]:
        assert child["incarnation"]
        assert (child["restart"], child["state"], child["agents"]) == ("permanent", "running", [])
    assert [child["rank"] for child in said["tree"]["children"]] == [1, 1, 2, 2]


def test_people_see_the_same_tree(fleet: Fleet) -> None:
    done = fleet.covey("tree")

    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("root, pid ")
    assert "one_for_one" in lines[0]
    assert [line.split("── ")[1].split(",")[0] for line in lines[1:]] == [
        "zygote",
        "rank 1",
        "ledger",
        "broker",
        "rank 2",
        "worker-1",
        "worker-2",
    ]


def test_a_process_is_replaced_by_name_at_no_cost(fleet: Fleet) -> None:
    before = fleet.child("broker")

    done = fleet.covey("restart", "broker")

    after = fleet.child("broker")
    assert done.returncode == 0, done.stderr
    assert f"broker: pid {before['pid']} is now pid {after['pid']}" in done.stdout
    assert after["incarnation"] != before["incarnation"]
    assert after["restarts"] == before["restarts"] + 1
    assert after["restarts_left"] == before["restarts_left"]
    assert after["last_exit"] == "restart was asked for"


def test_a_role_is_replaced_as_a_whole_and_nobody_else(fleet: Fleet) -> None:
    before = {child["name"]: child["pid"] for child in fleet.tree()["tree"]["children"]}

    done = fleet.covey("restart", "worker", "--json")

    after = {child["name"]: child["pid"] for child in fleet.tree()["tree"]["children"]}
    said = json.loads(done.stdout)
    assert {one["name"]: (one["pid_before"], one["pid"]) for one in said["processes"]} == {
        name: (before[name], after[name]) for name in ("worker-1", "worker-2")
    }
    assert {name for name in before if before[name] != after[name]} == {"worker-1", "worker-2"}


@pytest.mark.parametrize(("target", "says"), [("nobody", "worker-2"), ("root", "covey down"), ("zygote", "covey down")])
def test_who_cannot_be_replaced_is_said_with_what_can_be_done(fleet: Fleet, target: str, says: str) -> None:
    done = fleet.covey("restart", target)

    assert done.returncode == 2
    assert says in done.stderr


def test_without_a_fleet_there_is_no_tree_and_nothing_to_replace(tmp_path: Path) -> None:
    nowhere = Fleet(tmp_path)

    assert "no fleet runs" in nowhere.covey("tree").stdout
    assert nowhere.tree()["running"] is False
    assert nowhere.covey("restart", "broker").returncode == 1
