"""Restarts of earlier roots, in our time: stamps of the wall clock are converted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.protocol.ids import Incarnation
from covey.protocol.messages.ledger import ChildRestarted
from covey.storage.outbox import Outbox
from covey.supervisor.home import Home
from covey.supervisor.restart_log import read_past
from covey.supervisor.restarts import RestartLimit, ages_to_times, left, newest
from covey.supervisor.spec import ChildSpec, TreeSpec, plan

PLAN = plan(
    TreeSpec(
        children=(
            ChildSpec(name="a", role="r", rank=0, limit=RestartLimit(restarts=3, within_s=10.0)),
            ChildSpec(name="b", role="r", rank=0, limit=RestartLimit(restarts=3, within_s=10.0)),
        ),
        limit=RestartLimit(restarts=5, within_s=10.0),
    )
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.prepare()
    return found


def write(home: Home, *restarts: tuple[str, int]) -> None:
    box = Outbox(home.outbox, role="root", incarnation=Incarnation("before"))
    for seq, (child, at_ms) in enumerate(restarts, 1):
        life = Incarnation(f"before.{seq}")
        box.append(seq, ChildRestarted(child=child, incarnation=life, reason="SIGKILL", at_ms=at_ms))
    box.close()


def test_the_age_of_a_restart_is_kept_and_what_no_limit_counts_is_left_out(home: Home) -> None:
    write(home, ("a", 900_000), ("a", 999_000), ("b", 990_000), ("a", 995_000))

    past = read_past(home, PLAN, wall_ms=1_000_000, now=50.0)

    assert past == {"a": (45.0, 49.0), "b": (40.0,)}


def test_a_home_without_restarts_has_no_past(home: Home) -> None:
    assert read_past(home, PLAN, wall_ms=1_000_000, now=50.0) == {}


def test_a_stamp_of_the_future_counts_as_just_now() -> None:
    """The clock was set back in between: that is no amnesty either."""
    assert ages_to_times([2_000, 500], wall_ms=1_000, now=10.0) == (9.5, 10.0)


def test_a_limit_remembers_its_newest_restarts() -> None:
    assert newest([3.0, 1.0, 2.0], RestartLimit(restarts=2)) == (2.0, 3.0)
    assert newest([1.0], RestartLimit(restarts=2)) == (1.0,)
    assert newest([1.0], RestartLimit(restarts=0)) == ()


def test_what_is_left_of_a_limit_counts_only_its_window() -> None:
    limit = RestartLimit(restarts=3, within_s=10.0)

    assert left((1.0, 5.0), limit, now=11.0) == 2
    assert left((5.0, 6.0, 7.0, 8.0), limit, now=11.0) == 0
