"""Sockets that somebody else opened for the fleet: used, left alone, or refused with the remedy."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey import Fleet
from covey.supervisor.home import Home

PARENT = """
import os, sys
count = int(sys.argv[1])
# As an init does it: descriptors from 3 on, and the pid of the process that exec makes of us.
for at, fd in enumerate(int(word) for word in sys.argv[2].split(",")):
    os.dup2(fd, 100 + at)
for at in range(count):
    os.dup2(100 + at, 3 + at)
os.closerange(3 + count, 200)
os.environ["LISTEN_PID"] = str(os.getpid() + int(os.environ.pop("OFF_BY", "0")))
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""

TAKE = """
import json, os, sys
from pathlib import Path
from covey.protocol.errors import CoveyError
from covey.supervisor.activation import inherited, VARIABLES
paths = {name: Path(sys.argv[1]) / f"{name}.sock" for name in ("root", "ledger", "broker")}
try:
    found = inherited(paths)
except CoveyError as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
else:
    print(json.dumps({
        "found": {name: listener.fileno() for name, listener in found.items()},
        "inheritable": [os.get_inheritable(listener.fileno()) for listener in found.values()],
        "left": [name for name in VARIABLES if name in os.environ],
    }))
    for listener in found.values():
        listener.remove()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cva-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def bind(folder: Path) -> Iterator[Callable[..., socket.socket]]:
    bound: list[socket.socket] = []

    def make(name: str, *, mode: int = 0o600, listens: bool = True) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(folder / name))
        os.chmod(folder / name, mode)
        if listens:
            sock.listen(8)
        bound.append(sock)
        return sock

    yield make
    for sock in bound:
        sock.close()


def activate(
    folder: Path, fds: list[int], names: str | None = None, *, program: tuple[str, ...] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    said = {"LISTEN_FDS": str(len(fds)), **({} if names is None else {"LISTEN_FDNAMES": names}), **environ}
    words = program or ("-P", "-c", TAKE, str(folder))
    listed = ",".join(str(fd) for fd in fds)
    return subprocess.run(
        [sys.executable, "-P", "-c", PARENT, str(len(fds)), listed, *words],
        env={**os.environ, **said},
        pass_fds=fds,
        capture_output=True,
        text=True,
        timeout=30,
    )


def taken(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_sockets_are_known_by_their_paths_whatever_their_order(
    folder: Path, bind: Callable[..., socket.socket]
) -> None:
    broker, root = bind("broker.sock"), bind("root.sock")

    answer = taken(activate(folder, [broker.fileno(), root.fileno()]))

    assert answer == {"found": {"broker": 3, "root": 4}, "inheritable": [False, False], "left": []}


def test_names_may_say_the_same(folder: Path, bind: Callable[..., socket.socket]) -> None:
    sockets = [bind("root.sock").fileno(), bind("ledger.sock").fileno()]

    assert taken(activate(folder, sockets, "root:covey.socket"))["found"] == {"root": 3, "ledger": 4}


def test_a_socket_of_an_init_stays_when_we_are_done(folder: Path, bind: Callable[..., socket.socket]) -> None:
    root = bind("root.sock")

    taken(activate(folder, [root.fileno()]))

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(folder / "root.sock"))


def test_what_was_meant_for_another_process_is_not_looked_at(folder: Path, bind: Callable[..., socket.socket]) -> None:
    elsewhere = bind("elsewhere.sock")

    answer = taken(activate(folder, [elsewhere.fileno()], OFF_BY="1"))

    assert answer == {"found": {}, "inheritable": [], "left": []}


def test_a_link_in_the_way_to_the_folder_does_no_harm(folder: Path, bind: Callable[..., socket.socket]) -> None:
    root = bind("root.sock")
    with tempfile.TemporaryDirectory(prefix="cva-", dir="/tmp") as other:
        (Path(other) / "link").symlink_to(folder)

        answer = taken(activate(Path(other) / "link", [root.fileno()]))

    assert answer["found"] == {"root": 3}


def refused(done: subprocess.CompletedProcess[str]) -> str:
    error = taken(done)["error"]
    assert isinstance(error, str)
    assert error.startswith("ActivationRefused: ")
    return error


def test_a_socket_at_another_path_is_refused_and_the_right_ones_named(
    folder: Path, bind: Callable[..., socket.socket]
) -> None:
    error = refused(activate(folder, [bind("elsewhere.sock").fileno()]))

    assert f"{folder}/elsewhere.sock" in error
    assert f"{folder}/root.sock" in error


def test_a_name_that_belongs_to_another_path_is_refused(folder: Path, bind: Callable[..., socket.socket]) -> None:
    error = refused(activate(folder, [bind("ledger.sock").fileno()], "root"))

    assert f"is bound to {folder}/ledger.sock; root listens at {folder}/root.sock" in error


def test_a_socket_that_is_open_to_others_is_refused(folder: Path, bind: Callable[..., socket.socket]) -> None:
    assert "mode 0666); set SocketMode=0600" in refused(activate(folder, [bind("root.sock", mode=0o666).fileno()]))


def test_a_socket_that_does_not_listen_is_refused(folder: Path, bind: Callable[..., socket.socket]) -> None:
    assert "does not listen" in refused(activate(folder, [bind("root.sock", listens=False).fileno()]))


def test_a_socket_whose_path_is_gone_is_refused(folder: Path, bind: Callable[..., socket.socket]) -> None:
    sock = bind("root.sock")
    (folder / "root.sock").unlink()

    assert "which is gone" in refused(activate(folder, [sock.fileno()]))


def test_a_socket_that_was_replaced_by_a_file_is_refused(folder: Path, bind: Callable[..., socket.socket]) -> None:
    sock = bind("root.sock")
    (folder / "root.sock").unlink()
    (folder / "root.sock").write_text("")

    assert "something else" in refused(activate(folder, [sock.fileno()]))


def test_a_network_socket_is_refused(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert "is not a Unix stream socket" in refused(activate(folder, [server.fileno()]))


def test_a_file_is_refused(folder: Path) -> None:
    with (folder / "file").open("w") as file:
        assert "is not a socket" in refused(activate(folder, [file.fileno()]))


def test_the_same_path_twice_is_refused(folder: Path, bind: Callable[..., socket.socket]) -> None:
    root = bind("root.sock")

    assert "second socket" in refused(activate(folder, [root.fileno(), root.fileno()]))


@pytest.mark.parametrize("count", ["three", "-1", "65", "٣"])
def test_a_count_that_is_none_is_refused(folder: Path, bind: Callable[..., socket.socket], count: str) -> None:
    assert "LISTEN_FDS" in refused(activate(folder, [bind("root.sock").fileno()], LISTEN_FDS=count))


def test_as_many_names_as_descriptors_are_needed(folder: Path, bind: Callable[..., socket.socket]) -> None:
    assert "2 names for 1 descriptors" in refused(activate(folder, [bind("root.sock").fileno()], "root:ledger"))


def test_more_descriptors_than_are_open_are_refused(folder: Path, bind: Callable[..., socket.socket]) -> None:
    assert "is not open" in refused(activate(folder, [bind("root.sock").fileno()], LISTEN_FDS="2"))


@pytest.mark.kill
def test_a_fleet_serves_on_the_sockets_of_its_parent(folder: Path) -> None:
    home = Home(folder / "home")
    home.prepare()
    sockets = {}
    for name in ("ledger", "root", "broker"):
        sockets[name] = socket.socket(socket.AF_UNIX)
        sockets[name].bind(str(home.run / f"{name}.sock"))
        (home.run / f"{name}.sock").chmod(0o600)
        sockets[name].listen(8)
    inodes = {name: (home.run / f"{name}.sock").stat().st_ino for name in sockets}
    fds = [sock.fileno() for sock in sockets.values()]
    command = [sys.executable, "-P", "-c", PARENT, "3", ",".join(map(str, fds))]
    root = subprocess.Popen(
        [*command, "-P", "-m", "covey", "up", "--home", str(home.path)],
        env={**os.environ, "LISTEN_FDS": "3", "LISTEN_FDNAMES": "ledger:root:broker"},
        pass_fds=fds,
        stdout=subprocess.PIPE,
    )
    assert root.stdout is not None
    try:
        assert root.stdout.readline().startswith(b"covey is up")
        with Fleet.connect(home.path, start=False) as fleet:
            with fleet.slot("https://api.z.ai/api/coding/paas/v4", model="glm", timeout=5.0):
                pass
            fleet.flush()
    finally:
        root.send_signal(signal.SIGTERM)
        root.wait(20)
        root.stdout.close()

    assert {name: (home.run / f"{name}.sock").stat().st_ino for name in sockets} == inodes
    assert root.returncode == 0
    for sock in sockets.values():
        sock.close()
