"""What a fleet has on disk is removed under it, by a cleaner or a person: it is found again, or it gives way."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey import Fleet
from covey.protocol.ids import Incarnation
from covey.storage.locks import take
from covey.storage.owners import me
from covey.supervisor.home import SOCKET_NAMES, Home, RootInfo
from covey.supervisor.launch import launch
from covey.supervisor.listeners import Listener, listen
from covey.supervisor.presence import Displaced, Presence, socket_path
from covey.supervisor.running import running_root

SOON_S = 10.0
"""For what takes half a second; the machine may be busy."""


@pytest.fixture
def home() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="cvp-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Home(Path(folder) / "home")


@pytest.fixture
def presence(home: Home) -> Iterator[Presence]:
    made = make_presence(home)
    yield made
    made.close()


def make_presence(home: Home) -> Presence:
    home.prepare()
    lock = take(home.root_lock, create=True)
    assert lock is not None
    owner = me()
    info = RootInfo(
        pid=owner.pid,
        start_ticks=owner.start_ticks,
        boot_id=owner.boot_id,
        sockets=str(home.run),
        incarnation=Incarnation("life"),
        version="0",
        started_unix=0.0,
    )
    listeners: dict[str, Listener] = {name: listen(socket_path(home.run, name)) for name in SOCKET_NAMES}
    made = Presence(home, info, listeners, lock)
    made.announce()
    return made


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {SOON_S} s"
        time.sleep(0.01)


def test_nothing_is_restored_where_nothing_is_missing(presence: Presence) -> None:
    assert presence.restore() == ()


@pytest.mark.parametrize("name", [*(f"{name}.sock" for name in SOCKET_NAMES), "root.json"])
def test_a_removed_file_is_put_back(home: Home, presence: Presence, name: str) -> None:
    (home.run / name).unlink()

    assert presence.restore() == (name.removesuffix(".sock"),)

    assert (home.run / name).exists()
    assert presence.restore() == ()


def test_a_removed_folder_is_put_back_as_private_as_it_was(home: Home, presence: Presence) -> None:
    shutil.rmtree(home.run)

    assert presence.restore() == ("broker", "ledger", "lock", "root", "root.json")

    assert stat.S_IMODE(home.run.stat().st_mode) == 0o700
    assert take(home.root_lock, create=False) is None, "the home is locked again"
    assert home.root_lock.read_text() == f"{os.getpid()}\n"
    assert running_root(home) is not None


def test_a_home_that_somebody_else_took_meanwhile_is_left_to_them(home: Home, presence: Presence) -> None:
    shutil.rmtree(home.run)
    newcomer = make_presence(home)

    with pytest.raises(Displaced, match="another fleet"):
        presence.restore()
    presence.close()

    assert newcomer.restore() == ()
    newcomer.close()


def test_the_end_takes_everything_away_but_the_lock(home: Home) -> None:
    presence = make_presence(home)
    (home.run / "root.sock").unlink()
    presence.restore()

    presence.close()
    presence.close()

    assert {path.name for path in home.run.iterdir()} == {"root.lock", "outbox"}


def test_what_cannot_be_restored_is_tried_again(
    home: Home, presence: Presence, caplog: pytest.LogCaptureFixture
) -> None:
    def complaints() -> int:
        return sum("presence_not_restored" in str(vars(record)) for record in caplog.records)

    async def work() -> None:
        displaced: list[Displaced] = []
        presence.watch(displaced.append)
        shutil.rmtree(home.run)
        home.run.write_text("in the way")
        await asyncio.to_thread(until, lambda: complaints() > 0, "the complaint")
        home.run.unlink()
        await asyncio.to_thread(until, (home.run / "root.sock").exists, "the socket is back")
        assert complaints() == 1
        assert displaced == []

    asyncio.run(work())


# --- a real fleet ------------------------------------------------------------------------------------------------


@pytest.fixture
def fleet(home: Home) -> Iterator[Home]:
    ready = launch(home)
    yield home
    command = [sys.executable, "-P", "-m", "covey", "down", "--home", str(home.path), "--timeout", "5"]
    subprocess.run(command, capture_output=True, timeout=30)
    info = RootInfo.read(home.root_info)
    if info is not None:
        os.kill(ready.pid, signal.SIGKILL)


def use_everything(home: Home) -> None:
    """Root, broker and ledger, over new connections."""
    with Fleet.connect(home.path, start=False) as fleet:
        with fleet.slot("https://api.z.ai/api/coding/paas/v4", model="glm", api_key="k", timeout=5.0) as slot:
            slot.record_usage({"prompt_tokens": 1, "completion_tokens": 1})
        fleet.flush()
        assert fleet.status().ledger is not None


@pytest.mark.kill
def test_new_clients_get_in_after_each_socket_was_removed(fleet: Home) -> None:
    before = pids(fleet)

    for name in SOCKET_NAMES:
        (fleet.run / f"{name}.sock").unlink()
    until(lambda: all((fleet.run / f"{name}.sock").exists() for name in SOCKET_NAMES), "the sockets are back")

    use_everything(fleet)
    assert pids(fleet) == before, "no process was replaced for it"


@pytest.mark.kill
def test_new_clients_get_in_after_the_whole_run_folder_was_removed(fleet: Home) -> None:
    with Fleet.connect(fleet.path, start=False) as connected:
        before = pids(fleet)
        shutil.rmtree(fleet.run)
        until(lambda: running_root(fleet) is not None and fleet.outbox.is_dir(), "the fleet is found again")

        use_everything(fleet)
        assert connected.status().home == str(fleet.path), "who was connected still is"
    assert pids(fleet) == before
    second = subprocess.run(
        [sys.executable, "-P", "-m", "covey", "up", "--home", str(fleet.path)], capture_output=True, timeout=30
    )
    assert second.returncode == 1
    assert b"already owned" in second.stderr


def pids(home: Home) -> dict[str, int]:
    command = [sys.executable, "-P", "-m", "covey", "status", "--json", "--home", str(home.path)]
    status = json.loads(subprocess.run(command, capture_output=True, timeout=30, check=True).stdout)
    return {process["name"]: process["pid"] for process in status["processes"]}
