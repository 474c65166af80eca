"""A running fleet follows its configuration: limits change while calls are in flight, and what is held stays held."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from covey import Fleet
from covey.protocol.errors import SlotTimeout

if TYPE_CHECKING:
    from conftest import House

pytestmark = pytest.mark.kill

FOLLOWS_S = 2.0


@pytest.fixture
def wait() -> Callable[..., float]:
    from time import monotonic, sleep

    def until(holds: Callable[[], bool], *, within_s: float, what: str) -> float:
        started = monotonic()
        while not holds():
            assert monotonic() - started < within_s, f"{what}: not within {within_s} s"
            sleep(0.01)
        return monotonic() - started

    return until


@pytest.fixture
def fleet(house: House) -> Iterator[Fleet]:
    house.up()
    with Fleet.connect(house.path, start=False) as found:
        yield found


def budget(fleet: Fleet) -> Any:
    budgets = fleet.status().budgets
    assert budgets is not None, "the broker answers"
    return next(one for one in budgets if one.provider == "sim")


def test_a_limit_that_is_raised_lets_waiting_calls_out_and_one_that_is_lowered_takes_nothing_back(
    house: House, fleet: Fleet, wait: Callable[..., float]
) -> None:
    url = house.provider.base_url
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(fleet.slot(url, model="sim-1"))
        with pytest.raises(SlotTimeout), fleet.slot(url, model="sim-1", timeout=0.1):
            pass

        assert house.covey("config", "set", "providers.sim.max_concurrent", "3").returncode == 0
        third = held.enter_context(fleet.slot(url, model="sim-1", timeout=FOLLOWS_S + 1))
        assert third.waited_s < FOLLOWS_S

        assert house.covey("config", "set", "providers.sim.max_concurrent", "1").returncode == 0
        wait(lambda: budget(fleet).limit == 1, within_s=FOLLOWS_S, what="the lower limit")
        assert budget(fleet).in_flight == 3
        with pytest.raises(SlotTimeout), fleet.slot(url, model="sim-1", timeout=0.1):
            pass
    with fleet.slot(url, model="sim-1", timeout=5.0):
        assert budget(fleet).in_flight == 1


def test_a_bad_file_changes_nothing_and_status_says_what_is_wrong(
    house: House, fleet: Fleet, wait: Callable[..., float]
) -> None:
    config = house.path / "config.yaml"
    good = config.read_text()
    config.write_text(good.replace("max_concurrent: 2", "max_concurrent: many"))

    wait(lambda: fleet.status().config_problem is not None, within_s=FOLLOWS_S, what="the problem")

    assert "config.yaml:4: providers.sim.max_concurrent" in house.covey("status").stdout.replace("\n", "")
    assert budget(fleet).limit == 2
    config.write_text(good)
    wait(lambda: fleet.status().config_problem is None, within_s=FOLLOWS_S, what="its end")


def test_a_restarted_broker_and_new_agents_see_the_new_configuration(
    house: House, fleet: Fleet, wait: Callable[..., float]
) -> None:
    house.covey("config", "set", "providers.sim.max_concurrent", "5")
    house.covey("config", "set", "model.name", "sim-2")
    house.covey("config", "set", "fleet.workers", "1")
    wait(lambda: budget(fleet).limit == 5, within_s=FOLLOWS_S, what="the new limit")

    assert house.covey("restart", "broker").returncode == 0
    wait(lambda: budget(fleet).limit == 5, within_s=10.0, what="the heir's limit")
    result = fleet.spawn("say hello", workspace=house.work).result(timeout=30)

    assert result.outcome.value == "done", result.error
    assert {row.record.model for row in fleet.calls()} == {"sim-2"}
    assert len([one for one in fleet.status().processes if one.role == "worker"]) == 2
    assert "needs_restart=fleet.workers" in house.covey("logs", "root").stdout


def swarm(house: House, **more: Any) -> str:
    path = house.work / "swarm.yaml"
    tasks = [{"goal": f"say {number}"} for number in range(6)]
    path.write_text(json.dumps({"tasks": tasks, "tools": [], **more}))
    return str(path)


def test_a_swarm_ends_normally_where_its_budget_does(house: House) -> None:
    done = house.covey("swarm", swarm(house, budget={"max_tokens": 800}, max_answer_tokens=500), "--json")

    assert done.returncode == 3, done.stderr + done.stdout
    answer = json.loads(done.stdout)
    outcomes = [child["outcome"] for child in answer["results"]]
    assert set(outcomes) <= {"done", "cap_reached"}
    assert "cap_reached" in outcomes
    assert 0 < answer["budget"]["tokens"] <= 800
    assert answer["budget"]["max_tokens"] == 800


def test_a_swarm_within_its_budget_is_done(house: House) -> None:
    done = house.covey("swarm", swarm(house, budget={"max_tokens": 1_000_000}))

    assert done.returncode == 0, done.stderr + done.stdout
    assert "of 1000000 tokens spent" in done.stdout


def test_a_budget_in_money_without_prices_refuses_and_says_which(house: House) -> None:
    done = house.covey("swarm", swarm(house, budget={"max_cost_usd": 1.0}), "--json")

    assert done.returncode == 3, done.stderr + done.stdout
    assert "providers.sim.prices.sim-1" in json.loads(done.stdout)["results"][0]["error"]


def test_the_fleets_own_budget_ends_agents_and_a_higher_one_lets_the_next_go_on(
    house: House, fleet: Fleet, wait: Callable[..., float]
) -> None:
    house.covey("config", "set", "fleet.budget.max_tokens", "1")

    def refused() -> bool:
        return fleet.spawn("say hello", workspace=house.work).result(timeout=30).outcome.value == "cap_reached"

    wait(refused, within_s=15.0, what="an agent that ends by the fleet's budget")
    house.covey("config", "set", "fleet.budget.max_tokens", "1000000")
    wait(lambda: not refused(), within_s=15.0, what="an agent that is let on")


def test_up_warns_about_zai_without_a_limit(house: House) -> None:
    house.covey("config", "set", "providers.zai.max_concurrent", "0")

    up = house.covey("up", "--detach")

    assert up.returncode == 0
    assert "providers.zai.max_concurrent: no limit, but Z.AI refuses calls" in up.stderr
