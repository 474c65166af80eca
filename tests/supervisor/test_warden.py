"""The warden on a tree and agents that only take notes: who is closed to agents, who is replaced, and once."""

from __future__ import annotations

import asyncio
import math

import msgspec
import pytest

from covey.protocol.ids import Incarnation
from covey.protocol.messages.fleet import ProcessView
from covey.protocol.settings import LimitSettings
from covey.supervisor import warden
from covey.supervisor.exits import OverLimit
from covey.supervisor.growth import Sample
from covey.supervisor.headroom import Reading
from covey.supervisor.placement import Standing
from covey.supervisor.warden import Gauges, Warden

LIMITS = LimitSettings(rss_mb_soft=100, rss_mb_hard=200, memory_headroom_mb=1000, memory_pressure_percent=50.0)


class World:
    """Two workers, what they use, and what the warden had to say."""

    def __init__(self, limits: LimitSettings = LIMITS) -> None:
        self.lives = {"worker-1": (11, Incarnation("a")), "worker-2": (12, Incarnation("b"))}
        self.rss_mb = {11: 50.0, 12: 50.0}
        self.reading = Reading(available_mb=5000.0)
        self.busy = {"worker-1", "worker-2"}
        self.said: list[tuple[str, Standing | OverLimit]] = []
        self.rooms: list[float] = []
        self.looks: list[int] = []
        self.has_looked = asyncio.Event()
        self.warden = Warden(
            limits,
            workers=["worker-1", "worker-2"],
            tree=self,
            agents=self,
            gauges=Gauges(sample=self.sample, memory=lambda: self.reading),
        )

    def sample(self, pid: int) -> Sample:
        self.looks.append(pid)
        self.has_looked.set()
        return Sample(rss_mb=self.rss_mb[pid])

    def running(self, name: str) -> tuple[int, Incarnation] | None:
        return self.lives.get(name)

    def overgrown(self, name: str, life: Incarnation, reason: OverLimit) -> None:
        self.said.append((name, reason))

    def has_agents(self, name: str, life: Incarnation) -> bool:
        return name in self.busy

    def set_standing(self, name: str, life: Incarnation, standing: Standing) -> None:
        self.said.append((name, standing))

    def set_room(self, agents: float) -> None:
        self.rooms.append(agents)

    def look(self, rounds: int = 1) -> list[tuple[str, Standing | OverLimit]]:
        """Look at everybody; what was said meanwhile."""
        before = len(self.said)
        for _ in range(2 * rounds):
            self.warden.look_at_worker()
        return self.said[before:]


def test_workers_take_turns_one_a_tick() -> None:
    world = World()

    assert world.look(2) == []
    assert world.looks == [11, 12, 11, 12]


def test_a_full_worker_is_closed_to_new_agents_and_opened_again() -> None:
    world = World()
    world.rss_mb[11] = 120.0

    assert world.look(2) == [("worker-1", Standing.FULL)]
    world.rss_mb[11] = 80.0
    assert world.look(2) == [("worker-1", Standing.OPEN)]


def test_a_worker_over_a_hard_limit_is_replaced_once_with_the_figures() -> None:
    world = World()
    world.rss_mb[12] = 250.0

    reason = OverLimit(what="rss_mb", value=250, limit=200)
    assert world.look(3) == [("worker-2", Standing.LEAVING), ("worker-2", reason)]


def test_a_full_worker_without_agents_is_replaced() -> None:
    world = World()
    world.rss_mb[11] = 120.0
    world.look()

    world.busy.clear()

    reason = OverLimit(what="rss_mb", value=120, limit=100)
    assert world.look(3) == [("worker-1", Standing.LEAVING), ("worker-1", reason)]


def test_the_next_life_of_a_worker_begins_with_a_clean_sheet() -> None:
    world = World()
    world.rss_mb[11] = 250.0
    world.look()

    world.lives["worker-1"] = (13, Incarnation("c"))
    world.rss_mb[13] = 50.0

    assert world.look(2) == []
    world.rss_mb[13] = 150.0
    assert world.look() == [("worker-1", Standing.FULL)]


def test_a_worker_that_does_not_serve_is_not_looked_at() -> None:
    world = World()
    del world.lives["worker-1"]

    world.look()

    assert world.looks == [12]


def test_views_say_what_is_over_its_limit() -> None:
    world = World()
    world.rss_mb[11] = 120.4
    world.look()
    views = [
        ProcessView(role="worker", name=name, pid=pid, uptime_s=1, restarts=0, rss_mb=1, threads=1, incarnation=life)
        for name, (pid, life) in world.lives.items()
    ]

    assert [view.over_limit for view in world.warden.marked(views)] == ["rss_mb 120 > 100", None]


def test_agents_get_room_by_what_is_available() -> None:
    world = World()

    for available_mb in (1500.0, 900.0, 1050.0, 1200.0):
        world.reading = Reading(available_mb=available_mb)
        world.warden.look_at_memory()

    assert world.rooms == [500, 0, 0, 100]


def test_other_limits_hold_from_the_next_look_on() -> None:
    async def body() -> None:
        world = World()
        world.rss_mb |= {11: 120.0, 12: 250.0}
        world.look()
        world.reading = Reading(available_mb=900.0)
        world.warden.look_at_memory()
        world.said.clear()

        world.warden.configure(msgspec.structs.replace(LIMITS, rss_mb_soft=110, memory_headroom_mb=500))
        world.warden.configure(msgspec.structs.replace(LIMITS, rss_mb_soft=110, memory_headroom_mb=500))

        assert world.said == [("worker-1", Standing.OPEN)], "worker-2 goes on leaving"
        assert world.look() == [("worker-1", Standing.FULL)]
        assert world.rooms == [0, math.inf, 400]
        world.warden.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("limits", "looks", "rooms"),
    [
        pytest.param(LIMITS, True, True, id="all"),
        pytest.param(
            LimitSettings(
                rss_mb_soft=0, rss_mb_hard=0, fds_soft=0, fds_hard=0, threads_soft=0, threads_hard=0,
                memory_headroom_mb=0, memory_pressure_percent=0,
            ),
            False,
            False,
            id="none",
        ),
    ],
)  # fmt: skip
def test_what_is_not_limited_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, limits: LimitSettings, looks: bool, rooms: bool
) -> None:
    monkeypatch.setattr(warden, "ROUND_S", 0.02)

    async def body() -> World:
        world = World(limits)
        world.warden.start()
        if looks:
            async with asyncio.timeout(10.0):
                await world.has_looked.wait()
        else:
            loop = asyncio.get_running_loop()
            assert not vars(loop)["_scheduled"], "a timer without a reason"
        world.warden.close()
        return world

    world = asyncio.run(body())

    assert bool(world.looks) == looks
    assert bool(world.rooms) == rooms
    assert not rooms or world.rooms[0] < math.inf
