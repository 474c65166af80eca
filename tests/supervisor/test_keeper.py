"""The keeper on a real zygote: stops in order, in a hurry and by force, and what becomes of a zygote's death."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from covey.protocol.ids import Incarnation
from covey.protocol.peer import Peer
from covey.protocol.settings import Settings
from covey.storage.owners import me
from covey.supervisor.exits import ExitReason, Signalled
from covey.supervisor.home import Home
from covey.supervisor.keeper import HURRY_S, Keeper
from covey.supervisor.service import ServiceArguments
from covey.supervisor.spec import ChildSpec, TreeSpec, plan
from covey.supervisor.zygote_client import start_zygote

PATIENCE_S = 20.0


def stubborn(role: Any, arguments: Any, fds: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
    while True:
        signal.pause()


def obedient(role: Any, arguments: Any, fds: Any) -> None:
    print("deaf", flush=True)
    signal.pause()


class Kept:
    """A keeper of two ranks, and what it reported."""

    def __init__(self, folder: Path, zygote: Any, *, shutdown_s: float) -> None:
        self.home = Home(folder)
        self.home.prepare()
        children = (
            ChildSpec(name="a", role="worker", rank=1, shutdown_s=shutdown_s),
            ChildSpec(name="b", role="worker", rank=2, shutdown_s=shutdown_s),
        )
        self.ended: list[str] = []
        self.was_charged = asyncio.Event()
        self.charged: list[tuple[str, ExitReason]] = []
        self.keeper = Keeper(
            plan=plan(TreeSpec(children=children)),
            home=self.home,
            zygote=zygote,
            boot="boot",
            seed=1,
            arguments_for=self.arguments,
            listeners_for=lambda spec: {},
            on_ended=lambda spec, life: self.ended.append(spec.name),
            on_charged=self.note,
            past={},
        )

    def note(self, name: str, life: Incarnation, reason: ExitReason) -> None:
        self.charged.append((name, reason))
        self.was_charged.set()

    def arguments(self, spec: ChildSpec, life: Incarnation) -> ServiceArguments:
        return ServiceArguments(
            home=str(self.home.path),
            sockets="",
            fleet=Incarnation("boot"),
            role=spec.role,
            name=spec.name,
            incarnation=life,
            settings=Settings(),
        )

    async def up(self) -> None:
        """Everybody is there, and says so."""
        self.keeper.start()
        while not self.keeper.all_ready.is_set():
            for view in self.keeper.processes():
                if view.state == "starting" and self.is_deaf(view.name):
                    life = Incarnation(view.incarnation)
                    self.keeper.service_ready(Peer(role="worker", name=view.name, incarnation=life, owner=me()))
            await asyncio.sleep(0.005)

    def is_deaf(self, name: str) -> bool:
        log = self.home.logs / f"{name}.log"
        return log.exists() and "deaf" in log.read_text()

    async def down(self) -> float:
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            await self.keeper.all_stopped.wait()
        self.keeper.close()
        return time.monotonic() - began


@pytest.fixture
def kept(processes: Any, tmp_path: Path) -> Callable[..., None]:
    """Run a test's body around a keeper, in a process of its own."""

    def run(body: Callable[[Kept], Coroutine[Any, Any, None]], main: Any, *, shutdown_s: float) -> None:
        def alone() -> None:
            zygote = start_zygote(entry=main, preload=())

            async def inside() -> None:
                await body(Kept(tmp_path / "h", zygote, shutdown_s=shutdown_s))

            asyncio.run(inside())

        (tmp_path / "h").mkdir()
        processes.run(alone)

    return run


def test_an_orderly_stop_goes_down_the_ranks(kept: Callable[..., None]) -> None:
    async def body(found: Kept) -> None:
        await found.up()
        found.keeper.stop("test")
        await found.down()
        assert found.ended == ["b", "a"]
        assert found.charged == []
        assert not found.home.processes.exists()

    kept(body, obedient, shutdown_s=60.0)


def test_in_a_hurry_everybody_goes_at_once_and_is_killed_after_a_moment(kept: Callable[..., None]) -> None:
    async def body(found: Kept) -> None:
        await found.up()
        found.keeper.stop("test")
        found.keeper.hurry()
        took = await found.down()
        assert HURRY_S * 0.9 < took < HURRY_S + 5
        assert sorted(found.ended) == ["a", "b"]

    kept(body, stubborn, shutdown_s=60.0)


def test_by_force_nobody_is_waited_for(kept: Callable[..., None]) -> None:
    async def body(found: Kept) -> None:
        await found.up()
        found.keeper.stop("test")
        found.keeper.kill()
        assert await found.down() < HURRY_S

    kept(body, stubborn, shutdown_s=60.0)


def test_a_stopped_process_is_continued_so_that_it_can_end(kept: Callable[..., None]) -> None:
    async def body(found: Kept) -> None:
        await found.up()
        for view in found.keeper.processes():
            if view.name in "ab":
                os.kill(view.pid, signal.SIGSTOP)
        found.keeper.stop("test")
        assert await found.down() < 10.0

    kept(body, obedient, shutdown_s=60.0)


def test_a_killed_child_is_charged_with_its_reason(kept: Callable[..., None]) -> None:
    async def body(found: Kept) -> None:
        await found.up()
        [pid] = [view.pid for view in found.keeper.processes() if view.name == "a"]
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            await found.was_charged.wait()
        assert found.charged == [("a", Signalled(signal.SIGKILL))]
        [view] = [view for view in found.keeper.processes() if view.name == "a"]
        assert (view.last_exit, view.restarts_left) == ("SIGKILL", 9)
        found.keeper.stop("test")
        found.keeper.kill()
        await found.down()

    kept(body, obedient, shutdown_s=60.0)


def test_restarting_somebody_unknown_touches_nobody(kept: Callable[..., None]) -> None:
    async def body(found: Kept) -> None:
        await found.up()
        assert found.keeper.restart("stranger") == ()
        assert found.keeper.restart("worker") == ("a", "b")
        found.keeper.stop("test")
        await found.down()
        assert found.charged == []

    kept(body, obedient, shutdown_s=60.0)
