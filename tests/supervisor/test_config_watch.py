"""A running fleet follows its config.yaml: on real files, with a loop and no more than it needs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from covey.protocol.errors import ConfigError
from covey.protocol.settings import BudgetSettings, FleetSettings, LimitSettings, Settings, builtin_providers
from covey.supervisor.config import Accepted, load
from covey.supervisor.config_watch import ConfigWatch, following, needs_restart

LOOK_S = 0.005
DEADLINE_S = 5.0


class Told:
    """What a watch said, and waits for its next word."""

    def __init__(self, file: Path, look_s: float = LOOK_S) -> None:
        self.limits: list[int | None] = []
        self.refused: list[tuple[ConfigError, ...]] = []
        self._word = asyncio.Event()
        self.watch = ConfigWatch(
            file, load(file).settings, on_change=self._changed, on_refused=self._refused, look_s=look_s
        )

    async def next(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self._word.wait()
        self._word.clear()

    async def looks(self, count: int = 6) -> None:
        """Let it look a few times: a later timer of the same loop runs after earlier ones."""
        await asyncio.sleep(count * LOOK_S)

    def _changed(self, accepted: Accepted) -> None:
        self.limits.append(accepted.settings.providers["zai"].max_concurrent)
        self._word.set()

    def _refused(self, errors: tuple[ConfigError, ...]) -> None:
        self.refused.append(errors)
        self._word.set()


def fill(file: Path, text: str) -> None:
    file.write_text(text)


def put_fifo(file: Path) -> None:
    beside = file.with_name("fifo")
    os.mkfifo(beside)
    os.replace(beside, file)


def write(file: Path, limit: str) -> None:
    beside = file.with_name("beside")
    beside.write_text(f"providers:\n  zai:\n    max_concurrent: {limit}\n")
    os.replace(beside, file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "config.yaml"
    write(found, "2")
    return found


def test_a_change_is_told_once(file: Path) -> None:
    async def body() -> None:
        told = Told(file)
        write(file, "3")
        await told.next()
        await told.looks()
        assert told.limits == [3]
        assert told.watch.settings.providers["zai"].max_concurrent == 3
        told.watch.close()

    asyncio.run(body())


def test_a_change_written_in_place_is_seen(file: Path) -> None:
    async def body() -> None:
        told = Told(file)
        fill(file, "providers: {zai: {max_concurrent: 5}}\n")
        await told.next()
        assert told.limits == [5]
        told.watch.close()

    asyncio.run(body())


def test_a_comment_is_no_change(file: Path) -> None:
    async def body() -> None:
        told = Told(file)
        write(file, "2 # still two")
        await told.looks()
        assert (told.limits, told.refused) == ([], [])
        told.watch.close()

    asyncio.run(body())


def test_a_bad_file_is_told_once_with_its_line_and_the_last_good_one_holds(file: Path) -> None:
    async def body() -> None:
        told = Told(file)
        write(file, "many")
        await told.next()
        os.utime(file)
        await told.looks()
        ((error,),) = told.refused
        assert (error.file, error.line, error.key) == (str(file), 3, "providers.zai.max_concurrent")
        assert list(told.watch.refused) == [error]
        assert told.watch.settings.providers["zai"].max_concurrent == 2

        write(file, "4")
        await told.next()
        assert told.limits == [4]
        assert not told.watch.refused
        told.watch.close()

    asyncio.run(body())


@pytest.mark.parametrize("spoil", [pytest.param(Path.unlink, id="gone"), pytest.param(put_fifo, id="fifo")])
def test_a_file_that_cannot_be_read_changes_nothing(file: Path, spoil: Callable[[Path], None]) -> None:
    async def body() -> None:
        told = Told(file)
        spoil(file)
        await told.looks()
        assert told.limits == []
        assert told.watch.settings.providers["zai"].max_concurrent == 2
        told.watch.close()

    asyncio.run(body())


def test_a_file_that_is_emptied_before_it_is_written_lifts_no_limit(file: Path) -> None:
    """An editor that truncates, then writes: what is seen once only is not read."""

    async def body() -> None:
        told = Told(file, look_s=0.04)  # longer than what a file system takes for one moment
        for limit in range(3, 20):
            fill(file, "")
            await asyncio.sleep(0.02)
            fill(file, f"providers: {{zai: {{max_concurrent: {limit}}}}}\n")
            await asyncio.sleep(0.02)
        fill(file, "providers: {zai: {max_concurrent: 77}}\n")
        while told.watch.settings.providers["zai"].max_concurrent != 77:
            await told.next()
        assert builtin_providers()["zai"].max_concurrent not in told.limits
        told.watch.close()

    asyncio.run(body())


def test_a_closed_watch_says_nothing(file: Path) -> None:
    async def body() -> None:
        told = Told(file)
        told.watch.close()
        write(file, "3")
        await told.looks()
        assert told.limits == []

    asyncio.run(body())


class TestWhatFollows:
    running = Settings(fleet=FleetSettings(workers=2, max_turns=5))

    def test_what_is_fixed_stays_and_is_named(self) -> None:
        wanted = Settings(fleet=FleetSettings(workers=9, listen="tcp://127.0.0.1:7000", max_turns=7))

        assert needs_restart(self.running, wanted) == ("fleet.workers", "fleet.listen")
        assert following(self.running, wanted) == Settings(fleet=FleetSettings(workers=2, max_turns=7))

    def test_what_follows_needs_no_restart(self) -> None:
        budget = BudgetSettings(max_tokens=5)
        limits = LimitSettings(fds_soft=0)
        wanted = Settings(fleet=FleetSettings(workers=2, max_turns=7, budget=budget, limits=limits))

        assert needs_restart(self.running, wanted) == ()
        assert following(self.running, wanted) == wanted

    def test_every_field_of_the_fleet_is_decided_about(self) -> None:
        follows = {"max_spawn_depth", "max_turns", "budget", "limits"}
        fixed = {"workers", "max_agents", "listen"}

        assert {field.name for field in msgspec.structs.fields(FleetSettings)} == follows | fixed
