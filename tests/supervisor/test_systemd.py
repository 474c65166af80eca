"""systemd hears that the fleet is ready, alive and stopping: on a real datagram socket, from a real fleet."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.supervisor.systemd import Notifier

PATIENCE_S = 20.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cvs-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture(params=["a path", "an abstract name"])
def systemd(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[str, socket.socket]]:
    """The name for NOTIFY_SOCKET, and the socket behind it."""
    name = str(folder / "notify") if request.param == "a path" else f"@covey-test-{os.getpid()}-{folder.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name[1:] if name.startswith("@") else name)
        sock.settimeout(PATIENCE_S)
        yield name, sock


def heard(sock: socket.socket) -> list[str]:
    return sock.recv(4096).decode().splitlines()


def test_a_fleet_says_that_it_is_ready_alive_and_stopping(systemd: tuple[str, socket.socket], folder: Path) -> None:
    name, sock = systemd
    root = subprocess.Popen(
        ["sh", "-c", 'WATCHDOG_PID=$$ exec "$0" -P -m covey up', sys.executable],
        env={**os.environ, "COVEY_HOME": str(folder / "h"), "NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        ready = heard(sock)
        assert ready[0] == "READY=1"
        assert f"MAINPID={root.pid}" in ready
        assert heard(sock) == heard(sock) == ["WATCHDOG=1"]

        root.send_signal(signal.SIGTERM)

        while (words := heard(sock)) == ["WATCHDOG=1"]:
            continue
        assert words == ["STOPPING=1", "STATUS=stops: SIGTERM"]
        assert root.wait(PATIENCE_S) == 0
    finally:
        root.kill()
        root.wait()


def test_a_loop_that_stands_still_is_not_fed(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(folder / "notify"))
        sock.setblocking(False)

        async def stand_still() -> None:
            notifier = Notifier(str(folder / "notify"), watchdog_s=0.02)
            notifier.ready("")
            sock.recv(4096), sock.recv(4096)
            # Nothing of the loop runs here, however long it takes.
            with pytest.raises(BlockingIOError):
                sock.recv(4096)
            notifier.close()

        asyncio.run(stand_still())


@pytest.mark.parametrize(
    ("usec", "pid", "feeds"),
    [
        ("1000000", "7", True),
        ("1000000", "", True),
        ("1000000", "8", False),
        ("0", "7", False),
        ("-5", "7", False),
        ("much", "7", False),
        ("", "", False),
    ],
)
def test_the_watchdog_is_fed_only_where_it_watches_us(usec: str, pid: str, feeds: bool, folder: Path) -> None:
    environ = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": usec, "WATCHDOG_PID": pid, "OTHER": "stays"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(folder / "notify"))
        sock.setblocking(False)

        async def begin() -> None:
            notifier = Notifier.take(environ, pid=7)
            notifier.ready("")
            notifier.close()

        asyncio.run(begin())

        assert heard(sock)[0] == "READY=1"
        if feeds:
            assert heard(sock) == ["WATCHDOG=1"]
        with pytest.raises(BlockingIOError):
            sock.recv(4096)
    assert environ == {"OTHER": "stays"}


def test_without_systemd_nothing_is_said_and_nothing_fails(folder: Path) -> None:
    async def begin() -> None:
        for notifier in (Notifier.take({}, pid=7), Notifier(str(folder / "nobody"), watchdog_s=1.0)):
            notifier.ready("up")
            notifier.stopping("x")
            notifier.close()

    asyncio.run(begin())
