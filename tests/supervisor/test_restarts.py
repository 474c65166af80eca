from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.errors import UsageError
from covey.supervisor.restarts import BackOff, RestartLimit, Spent, delay_s, roll, spend, was_stable
from covey.supervisor.spec import AutoShutdown, ChildSpec, RestartType, TreeSpec, plan


def test_the_limit_is_the_number_of_restarts_that_are_granted() -> None:
    limit = RestartLimit(restarts=2, within_s=10.0)

    first = spend((), limit, 0.0)
    assert first is not None
    second = spend(first, limit, 1.0)

    assert second == (0.0, 1.0)
    assert spend(second, limit, 2.0) is None


def test_a_restart_is_forgotten_once_it_is_as_old_as_the_window() -> None:
    limit = RestartLimit(restarts=1, within_s=10.0)

    assert spend((0.0,), limit, 9.999) is None
    assert spend((0.0,), limit, 10.0) == (10.0,)


def test_no_restarts_means_none() -> None:
    assert spend((), RestartLimit(restarts=0), 0.0) is None


@given(
    gaps=st.lists(st.floats(0, 20), max_size=60),
    restarts=st.integers(0, 5),
    within_s=st.floats(0.5, 30),
)
def test_no_window_ever_holds_more_than_the_limit(gaps: Any, restarts: Any, within_s: Any) -> None:
    limit, now = RestartLimit(restarts=restarts, within_s=within_s), 0.0
    spent: Spent = ()
    granted: list[float] = []
    for gap in gaps:
        now += gap
        if (charged := spend(spent, limit, now)) is not None:
            spent = charged
            granted.append(now)

    assert len(spent) <= restarts
    for start in granted:
        assert sum(0 <= at - start < within_s for at in granted) <= restarts


@pytest.mark.parametrize(
    ("attempt", "waits_s"),
    [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.4), (9, 25.6), (10, 30.0), (5000, 30.0)],
)
def test_the_wait_starts_at_nothing_then_doubles_up_to_the_cap(attempt: int, waits_s: float) -> None:
    assert delay_s(BackOff(base_s=0.1, cap_s=30.0), attempt, 0.0) == pytest.approx(waits_s)


@given(attempt=st.integers(1, 100), at=st.floats(0, 1, exclude_max=True), jitter=st.floats(0, 1))
def test_jitter_only_ever_shortens_the_wait(attempt: int, at: float, jitter: float) -> None:
    back_off = BackOff(base_s=0.1, cap_s=30.0, jitter=jitter)

    waits_s, longest_s = delay_s(back_off, attempt, at), delay_s(back_off, attempt, 0.0)

    assert longest_s * (1 - jitter) <= waits_s <= longest_s <= 30.0


def test_rolls_differ_by_child_and_start_but_not_by_day() -> None:
    assert roll(7, "worker-1", 3) == roll(7, "worker-1", 3)
    assert len({roll(7, "worker-1", 3), roll(7, "worker-2", 3), roll(7, "worker-1", 4), roll(8, "worker-1", 3)}) == 4
    assert 0 <= roll(7, "worker-1", 3) < 1


def test_stable_means_to_have_run_for_the_whole_time() -> None:
    back_off = BackOff(stable_s=30.0)

    assert was_stable(back_off, since=100.0, now=130.0)
    assert not was_stable(back_off, since=100.0, now=129.9)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        pytest.param([{"name": "a"}, {"name": "a"}], "called a", id="a name twice"),
        pytest.param([{"name": ""}], "needs a name", id="no name"),
        pytest.param([{"role": ""}], "needs a name and a role", id="no role"),
        pytest.param([{"shutdown_s": -1.0}], "shutdown_s", id="negative shutdown"),
        pytest.param([{"shutdown_s": float("nan")}], "shutdown_s", id="shutdown that is no number"),
        pytest.param([{"start_deadline_s": 0.0}], "start_deadline_s", id="no time to start"),
        pytest.param([{"start_deadline_s": float("inf")}], "start_deadline_s", id="start without a deadline"),
        pytest.param([{"back_off": BackOff(base_s=2.0, cap_s=1.0)}], "back-off", id="cap below base"),
        pytest.param([{"back_off": BackOff(base_s=-0.1)}], "back-off", id="negative wait"),
        pytest.param([{"back_off": BackOff(jitter=1.5)}], "back-off", id="jitter over 1"),
        pytest.param([{"limit": RestartLimit(restarts=-1)}], "0 or more", id="negative limit"),
        pytest.param([{"limit": RestartLimit(within_s=0.0)}], "0 or more", id="no window"),
        pytest.param([{"limit": RestartLimit(restarts=31)}], "more often than", id="a child's limit over the tree's"),
        pytest.param(
            [{"limit": RestartLimit(within_s=59.0)}], "more often than", id="a child's window under the tree's"
        ),
    ],
)
def test_a_specification_that_cannot_be_meant_is_refused(changes: Any, names: Any) -> None:
    children = tuple(ChildSpec(**{"name": "x", "role": "r", "rank": 1, **change}) for change in changes)

    with pytest.raises(UsageError, match=names):
        plan(TreeSpec(children=children))


@pytest.mark.parametrize(
    ("restart", "auto", "names"),
    [
        (RestartType.PERMANENT, AutoShutdown.ANY_SIGNIFICANT, "significant and permanent"),
        (RestartType.PERMANENT, AutoShutdown.ALL_SIGNIFICANT, "significant and permanent"),
        (RestartType.TRANSIENT, AutoShutdown.NEVER, "auto_shutdown is never"),
        (RestartType.TEMPORARY, AutoShutdown.NEVER, "auto_shutdown is never"),
    ],
)
def test_significance_that_can_mean_nothing_is_refused_as_in_otp(
    restart: RestartType, auto: AutoShutdown, names: str
) -> None:
    child = ChildSpec(name="x", role="r", rank=1, restart=restart, is_significant=True)

    with pytest.raises(UsageError, match=names):
        plan(TreeSpec(children=(child,), auto_shutdown=auto))


@pytest.mark.parametrize("restart", [RestartType.TRANSIENT, RestartType.TEMPORARY])
@pytest.mark.parametrize("auto", [AutoShutdown.ANY_SIGNIFICANT, AutoShutdown.ALL_SIGNIFICANT])
def test_significance_that_means_something_is_accepted(restart: RestartType, auto: AutoShutdown) -> None:
    child = ChildSpec(name="x", role="r", rank=1, restart=restart, is_significant=True)

    assert plan(TreeSpec(children=(child,), auto_shutdown=auto)).significant == (0,)


def test_levels_follow_the_ranks_and_keep_the_declared_order() -> None:
    ranks = {"late": 7, "first": -1, "second": 3, "also": 3}
    children = tuple(ChildSpec(name=name, role="r", rank=rank) for name, rank in ranks.items())

    made = plan(TreeSpec(children=children))

    assert made.levels == ((1,), (2, 3), (0,))
    assert made.level_of == (2, 0, 1, 1)
    assert made.place == {"late": 0, "first": 1, "second": 2, "also": 3}
