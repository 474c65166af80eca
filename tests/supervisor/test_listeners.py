from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zmq

from covey.protocol.errors import HomeError
from covey.supervisor.listeners import Listener, SocketPathTooLong, check_length, listen

SERVICE = """
import os, sys, zmq
path, fd, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
context = zmq.Context()
context.linger = 0
router = context.socket(zmq.ROUTER)
router.setsockopt(zmq.USE_FD, os.dup(fd))
router.bind("ipc://" + path)
print("ready", flush=True)
while True:
    peer, text = router.recv_multipart()
    router.send_multipart([peer, text + b" answered by " + name.encode()])
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """Not pytest's own folder: its paths are too long for sockets."""
    with TemporaryDirectory(prefix="cv") as folder:
        yield Path(folder)


@pytest.fixture
def listener(short: Path) -> Iterator[Listener]:
    made = listen(short / "run" / "a.sock")
    yield made
    made.remove()


def serve(listener: Listener, name: str) -> subprocess.Popen[bytes]:
    fd = listener.fileno()
    command = [sys.executable, "-c", SERVICE, str(listener.path), str(fd), name]
    service = subprocess.Popen(command, pass_fds=[fd], stdout=subprocess.PIPE)
    assert service.stdout is not None
    assert service.stdout.readline() == b"ready\n"
    return service


def kill(service: subprocess.Popen[bytes]) -> None:
    service.kill()
    service.wait()
    assert service.stdout is not None
    service.stdout.close()


def ask(dealer: zmq.Socket[bytes], text: bytes) -> bytes:
    dealer.send(text)
    return answer(dealer)


def answer(dealer: zmq.Socket[bytes]) -> bytes:
    assert dealer.poll(10_000), "no answer within 10 s"
    return dealer.recv()


def test_a_socket_is_closed_to_others_whatever_the_umask(short: Path) -> None:
    before = os.umask(0)
    try:
        listener = listen(short / "run" / "a.sock")
    finally:
        os.umask(before)

    assert stat.S_IMODE(listener.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(listener.path.parent.stat().st_mode) == 0o700
    assert os.listdir(listener.path.parent) == ["a.sock"]
    listener.remove()


def test_a_folder_that_was_open_to_others_is_closed(short: Path) -> None:
    (short / "run").mkdir(mode=0o755)

    listen(short / "run" / "a.sock").remove()

    assert stat.S_IMODE((short / "run").stat().st_mode) == 0o700


def test_a_folder_that_is_a_link_is_refused(short: Path) -> None:
    (short / "elsewhere").mkdir()
    (short / "run").symlink_to(short / "elsewhere")

    with pytest.raises(HomeError, match="symbolic link"):
        listen(short / "run" / "a.sock")

    assert os.listdir(short / "elsewhere") == []


def test_a_listener_is_not_inherited_by_accident(listener: Listener) -> None:
    assert not os.get_inheritable(listener.fileno())


@pytest.mark.parametrize("letter", ["a", "ä", "群"])
def test_the_length_of_a_path_is_measured_in_bytes(letter: str) -> None:
    width = len(letter.encode())
    fits = "/" + "x" * (106 % width) + letter * (106 // width)

    check_length(Path(fits))

    with pytest.raises(SocketPathTooLong, match="108 bytes, at most 107"):
        check_length(Path(fits + "x"))


def test_the_longest_path_works_and_one_more_byte_makes_nothing(short: Path) -> None:
    folder = short / "run"
    longest = folder / ("x" * (107 - len(os.fsencode(folder)) - 1))

    listener = listen(longest)
    with pytest.raises(SocketPathTooLong):
        listen(longest.with_name(longest.name + "x"))

    assert os.listdir(folder) == [longest.name]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(longest))
    listener.remove()


def test_what_an_earlier_life_left_behind_is_replaced(short: Path) -> None:
    leftover = listen(short / "run" / "a.sock")

    listener = listen(short / "run" / "a.sock")

    assert listener.is_in_place()
    assert not leftover.is_in_place()
    leftover.remove()
    assert listener.is_in_place()
    listener.remove()
    assert os.listdir(short / "run") == []


def test_a_path_that_was_cleaned_away_is_noticed_and_removing_it_is_no_error(listener: Listener) -> None:
    listener.path.unlink()

    assert not listener.is_in_place()
    listener.remove()


@pytest.mark.kill
def test_a_message_sent_while_the_service_is_down_is_answered_by_its_successor(listener: Listener) -> None:
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    dealer.connect(f"ipc://{listener.path}")
    first = serve(listener, "the first")
    assert ask(dealer, b"one") == b"one answered by the first"
    monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    kill(first)
    assert monitor.poll(10_000), "the loss of the connection was not seen"

    dealer.send(b"two")
    second = serve(listener, "the second")

    assert answer(dealer) == b"two answered by the second"
    assert listener.is_in_place()
    kill(second)
    dealer.disable_monitor()
    monitor.close()
    dealer.close()
    context.term()


def test_closing_a_zeromq_socket_leaves_the_listener_and_its_path(listener: Listener) -> None:
    with zmq.Context() as context:
        router = context.socket(zmq.ROUTER)
        router.setsockopt(zmq.USE_FD, os.dup(listener.fileno()))
        router.bind(f"ipc://{listener.path}")
        router.close()

    assert listener.is_in_place()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(listener.path))


def test_a_removed_path_is_restored_for_everybody_while_the_service_goes_on(listener: Listener) -> None:
    service = serve(listener, "it")
    listener.path.unlink()

    listener.restore()

    assert listener.is_in_place()
    command = [
        sys.executable,
        "-c",
        "import sys, zmq; dealer = zmq.Context().socket(zmq.DEALER); dealer.linger = 0; dealer.connect(sys.argv[1]);"
        "dealer.send(b'a stranger'); dealer.poll(10_000); print(dealer.recv(zmq.NOBLOCK).decode()); dealer.close()",
        f"ipc://{listener.path}",
    ]
    answered = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert answered.stdout == "a stranger answered by it\n", answered.stderr
    kill(service)


def test_whatever_stands_in_the_place_of_a_socket_gives_way(listener: Listener) -> None:
    other = socket.socket(socket.AF_UNIX)
    listener.path.unlink()
    other.bind(str(listener.path))
    assert not listener.is_in_place()

    listener.restore()

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(listener.path))
    assert listener.is_in_place()
    other.close()


def test_a_restored_path_is_removed_like_the_first_one(short: Path) -> None:
    listener = listen(short / "run" / "a.sock")
    listener.path.unlink()
    listener.restore()

    listener.remove()
    listener.remove()

    assert os.listdir(short / "run") == []


def test_a_restored_path_of_a_dead_owner_is_replaced(short: Path) -> None:
    (short / "run").mkdir()
    (short / "run" / "a.sock").symlink_to("/proc/self/fd/9999")

    listener = listen(short / "run" / "a.sock")

    assert not listener.path.is_symlink()
    assert listener.is_in_place()
    listener.remove()
