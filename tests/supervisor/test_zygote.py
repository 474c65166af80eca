from __future__ import annotations

import logging
import os
import random
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from covey.protocol.ids import Incarnation
from covey.supervisor import zygote
from covey.supervisor.exits import Exited, Signalled
from covey.supervisor.process import direct_children, wait_for_exit
from covey.supervisor.zygote_client import ZygoteClient, ZygoteLost, exec_zygote, start_zygote
from covey.supervisor.zygote_wire import ChildExited, ChildSpawned, SpawnFailed, StrangersKilled, ZygoteReady

PATIENCE_S = 20.0

LITTER = """
import os, subprocess
subprocess.Popen(["sleep", "300"])
subprocess.Popen(["sleep", "300"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "300"])
    os._exit(0)
os.wait()
print("littered", flush=True)
os.execvp("sleep", ["sleep", "300"])
"""


class Fleet:
    """A zygote in the current process, whose log files are in a folder."""

    def __init__(self, folder: Path, main: Any, **options: Any) -> None:
        self.folder = folder
        self.client = start_zygote(entry=main, preload=(), **options)
        self.use(self.client)

    def use(self, client: ZygoteClient) -> None:
        self.client = client
        self._seen: list[object] = []
        self.next(ZygoteReady)

    def spawn(self, name: str, **options: Any) -> ChildSpawned:
        self.ask(name, **options)
        spawned: ChildSpawned = self.next(ChildSpawned)
        return spawned

    def ask(self, name: str, **options: Any) -> None:
        log_path = str(self.folder / f"{name}.log")
        self.client.spawn(
            name=name, role="worker", incarnation=Incarnation(f"boot.{name}"), log_path=log_path, **options
        )

    def next(self, kind: Any) -> Any:
        """The next event of that kind; others stay for later."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for event in self._seen:
                if isinstance(event, kind):
                    self._seen.remove(event)
                    return event
            ready, _, _ = select.select([self.client], [], [], max(0.0, deadline - time.monotonic()))
            # Once the zygote is gone its socket is readable for ever: the time is looked at as well.
            if not ready or time.monotonic() >= deadline:
                pytest.fail(f"no {kind.__name__} within {PATIENCE_S} s, only {self._seen}")
            self._seen += self.client.receive()

    def wait_for_children(self, number: int) -> None:
        """Without reading a report: wait until the zygote has forked, has that many children, and has said so.

        It reports after it has reaped, and sleeps only when that is done; so it is looked at in this order.
        """
        deadline, has_forked = time.monotonic() + PATIENCE_S, False
        task = Path(f"/proc/{self.client.pid}/task/{self.client.pid}")
        while (
            not (has_forked := has_forked or self._has_word())
            or len((task / "children").read_text().split()) > number
            or (task / "stat").read_text().rpartition(")")[2].split()[0] != "S"
        ):
            assert time.monotonic() < deadline, "the zygote still has children"
            select.select([], [], [], 0.005)

    def _has_word(self) -> bool:
        return bool(select.select([self.client], [], [], 0)[0])

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def wait_for_log(self, name: str, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in (self.log(name) if (self.folder / f"{name}.log").exists() else ""):
            assert time.monotonic() < deadline, f"{text!r} is not in the log of {name}"
            select.select([], [], [], 0.005)


def pause(role: Any, arguments: Any, fds: Any) -> None:
    print("pausing", flush=True)
    while True:
        signal.pause()


# --- birth -----------------------------------------------------------------------------------------------------------


def test_a_child_gets_its_arguments_and_descriptors_and_its_code_is_reported(processes: Any, tmp_path: Path) -> None:
    def main(role: Any, arguments: Any, fds: Any) -> Any:
        words = f"{role} {arguments.name} {arguments.incarnation} {len(arguments.payload)} {sorted(fds)}"
        os.write(fds["answer"], words.encode())
        return 7

    def body() -> None:
        fleet = Fleet(tmp_path, main)
        told, telling = os.pipe()

        spawned = fleet.spawn("broker", payload=b"x" * 3_000_000, fds={"answer": telling, "other": told})
        exited = fleet.next(ChildExited)

        assert os.read(told, 1000) == b"worker broker boot.broker 3000000 ['answer', 'other']"
        assert (exited.pid, exited.incarnation) == (spawned.pid, "boot.broker")
        assert exited.reason == Exited(7)
        assert fleet.client.outstanding() == {}
        assert fleet.client.close(timeout_s=10).left == ()

    processes.run(body)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param(lambda: None, 0, id="returns nothing"),
        pytest.param(sys.exit, 0, id="sys.exit()"),
        pytest.param(lambda: sys.exit(9), 9, id="sys.exit(9)"),
        pytest.param(lambda: sys.exit("why"), 1, id="sys.exit with a text"),
        pytest.param(lambda: 1 / 0, 1, id="exception"),
    ],
)
def test_the_exit_code_is_what_the_interpreter_would_say(processes: Any, tmp_path: Path, end: Any, code: int) -> None:
    def body() -> None:
        fleet = Fleet(tmp_path, lambda role, arguments, fds: end())

        fleet.spawn("child")

        assert fleet.next(ChildExited).reason == Exited(code)
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_the_log_gets_everything_printed_and_the_traceback_and_is_private(processes: Any, tmp_path: Path) -> None:
    def main(role: Any, arguments: Any, fds: Any) -> None:
        print("without a newline, in no hurry", end="")
        raise RuntimeError("this went wrong")

    def body() -> None:
        (tmp_path / "child.log").touch(mode=0o600)
        (tmp_path / "child.log").write_text("from an earlier life\n")
        fleet = Fleet(tmp_path, main)

        fleet.spawn("child")
        fleet.next(ChildExited)
        fleet.spawn("fresh")
        fleet.next(ChildExited)

        log = fleet.log("child")
        assert log.startswith("from an earlier life\nwithout a newline, in no hurryTraceback")
        assert log.rstrip().endswith("RuntimeError: this went wrong")
        assert stat.S_IMODE((tmp_path / "fresh.log").stat().st_mode) == 0o600
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_what_a_child_logs_is_in_its_own_log_without_any_doing_of_its_own(processes: Any, tmp_path: Path) -> None:
    def main(role: Any, arguments: Any, fds: Any) -> None:
        logging.getLogger("covey.test").info("%s is here", arguments.name)
        logging.getLogger("httpx").info("every request")

    def body() -> None:
        fleet = Fleet(tmp_path, main)

        for name in ("first", "second"):
            fleet.spawn(name)
            fleet.next(ChildExited)

        assert fleet.log("first").endswith("Z info covey.test first is here\n")
        assert fleet.log("second").endswith("Z info covey.test second is here\n")
        assert fleet.log("second").count("\n") == 1
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_a_role_that_does_not_exist_ends_with_its_name_in_the_log(processes: Any, tmp_path: Path) -> None:
    def body() -> None:
        fleet = Fleet(tmp_path, "covey.supervisor.roles.none_such_{role}:main")

        fleet.spawn("child")

        assert fleet.next(ChildExited).reason == Exited(1)
        assert "none_such_worker" in fleet.log("child")
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_a_child_whose_log_cannot_be_opened_says_so_by_its_code(processes: Any, tmp_path: Path) -> None:
    def body() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        fleet = Fleet(tmp_path / "missing", pause)

        fleet.spawn("child")

        assert fleet.next(ChildExited).reason == Exited(70)
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_a_child_has_its_own_descriptors_and_no_others(processes: Any, tmp_path: Path) -> None:
    def main(role: Any, arguments: Any, fds: Any) -> None:
        found = {}
        for fd in os.listdir("/proc/self/fd"):
            try:
                found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
            except OSError:
                continue  # the folder itself
        mine = {0: "/dev/null", 1: arguments.payload.decode(), 2: arguments.payload.decode()}
        others = {fd: where for fd, where in found.items() if fd not in mine}
        assert {fd: found[fd] for fd in mine} == mine, found
        assert sorted(others) == sorted(fds.values()), found
        assert not any(os.get_inheritable(fd) for fd in fds.values()), "an exec would hand them on"
        signal.pause()

    def body() -> None:
        # Everything that could leak: a file of the root that even an exec would inherit, and a sibling's listener.
        secret = os.open(tmp_path / "secret", os.O_CREAT | os.O_RDWR)
        os.set_inheritable(secret, True)
        fleet = Fleet(tmp_path, main)
        for name in ("one", "two"):
            listener = socket.socket(socket.AF_UNIX)
            fleet.spawn(name, payload=str(tmp_path / f"{name}.log").encode(), fds={name: listener.fileno()})

        for name in ("one", "two"):
            assert fleet.client.signal(Incarnation(f"boot.{name}"), signal.SIGTERM)
            exited = fleet.next(ChildExited)
            assert exited.reason == Signalled(signal.SIGTERM), fleet.log(exited.name)
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_a_child_is_a_process_of_its_own(processes: Any, tmp_path: Path) -> None:
    def main(role: Any, arguments: Any, fds: Any) -> None:
        assert os.getpgid(0) == os.getpid(), "own process group"
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN, "Ctrl-C is for the root"
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        assert sys.stdin.read() == ""
        assert Path("/proc/self/cmdline").read_bytes().rstrip(b"\0") == b"covey:child"
        assert Path("/proc/self/comm").read_text() == "covey:child\n"

    def body() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        fleet = Fleet(tmp_path, main)

        fleet.spawn("child")

        assert fleet.next(ChildExited).reason == Exited(0), fleet.log("child")
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_children_do_not_share_their_randomness(processes: Any, tmp_path: Path) -> None:
    def main(role: Any, arguments: Any, fds: Any) -> None:
        print(random.random())

    def body() -> None:
        random.seed(1)
        fleet = Fleet(tmp_path, main)
        for name in ("one", "two"):
            fleet.spawn(name)
            fleet.next(ChildExited)

        assert fleet.log("one") != fleet.log("two")
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_a_hung_child_leaves_its_stacks_in_the_log(processes: Any, tmp_path: Path) -> None:
    def stuck_here() -> None:
        print("stuck", flush=True)
        while True:
            pass

    def body() -> None:
        fleet = Fleet(tmp_path, lambda role, arguments, fds: stuck_here())
        fleet.spawn("child")
        fleet.wait_for_log("child", "stuck")

        fleet.client.signal(Incarnation("boot.child"), signal.SIGUSR1)

        fleet.wait_for_log("child", "in stuck_here")
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_a_fork_that_fails_is_answered_and_the_next_one_works(processes: Any, tmp_path: Path) -> None:
    failures = [BlockingIOError(11, "Resource temporarily unavailable")]

    def fork() -> Any:
        if failures:
            raise failures.pop()
        return os.fork()

    def body() -> None:
        root = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            zygote.run(theirs, root=root, entry=pause, preload=(), fork=fork)
        theirs.close()
        fleet = Fleet.__new__(Fleet)
        fleet.folder = tmp_path
        fleet.use(ZygoteClient(ours, pid))

        fleet.ask("first")
        failed = fleet.next(SpawnFailed)

        assert (failed.incarnation, "temporarily unavailable" in failed.error) == ("boot.first", True)
        assert fleet.client.outstanding() == {}
        assert not fleet.client.signal(Incarnation("boot.first"), signal.SIGTERM)
        fleet.spawn("second")
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_more_requests_than_the_socket_holds_are_all_served(processes: Any, tmp_path: Path) -> None:
    def body() -> None:
        fleet = Fleet(tmp_path, lambda role, arguments, fds: 0)
        os.kill(fleet.client.pid, signal.SIGSTOP)
        told, telling = os.pipe()
        long_name = "x" * 30_000
        for number in range(20):
            fleet.ask(f"child-{number}", fds={long_name: telling})
        os.close(telling)

        os.kill(fleet.client.pid, signal.SIGCONT)

        assert {fleet.next(ChildExited).name for _ in range(20)} == {f"child-{number}" for number in range(20)}
        assert os.read(told, 1) == b"", "a copy of the descriptor is still open"
        fleet.client.close(timeout_s=10)

    processes.run(body)


# --- death -----------------------------------------------------------------------------------------------------------


def test_a_killed_child_is_reported_with_its_signal_and_cannot_be_signalled_again(
    processes: Any, tmp_path: Path
) -> None:
    def body() -> None:
        fleet = Fleet(tmp_path, pause)
        fleet.spawn("child")

        assert fleet.client.signal(Incarnation("boot.child"), signal.SIGKILL)

        assert fleet.next(ChildExited).reason == Signalled(signal.SIGKILL)
        assert not fleet.client.signal(Incarnation("boot.child"), signal.SIGKILL)
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_a_stopped_child_takes_sigterm_once_it_is_continued(processes: Any, tmp_path: Path) -> None:
    def body() -> None:
        fleet = Fleet(tmp_path, pause)
        fleet.spawn("child")
        fleet.client.signal(Incarnation("boot.child"), signal.SIGSTOP)

        fleet.client.signal(Incarnation("boot.child"), signal.SIGTERM)
        fleet.client.signal(Incarnation("boot.child"), signal.SIGCONT)

        assert fleet.next(ChildExited).reason == Signalled(signal.SIGTERM)
        fleet.client.close(timeout_s=10)

    processes.run(body)


def test_a_signal_sent_at_birth_is_not_lost(processes: Any, tmp_path: Path) -> None:
    """The zygote ignores SIGTERM, and for a moment its children are what it is."""

    def body() -> None:
        fleet = Fleet(tmp_path, pause)
        for number in range(20):
            fleet.spawn(f"child-{number}")

            fleet.client.signal(Incarnation(f"boot.child-{number}"), signal.SIGTERM)

            assert fleet.next(ChildExited).reason == Signalled(signal.SIGTERM)
        fleet.client.close(timeout_s=10)

    processes.run(body)


def litter(role: Any, arguments: Any, fds: Any) -> None:
    subprocess.run([sys.executable, "-c", LITTER], check=False)


@pytest.mark.kill
def test_what_a_killed_child_leaves_behind_is_killed_too(processes: Any, tmp_path: Path, until: Any) -> None:
    def body() -> None:
        fleet = Fleet(tmp_path, litter)
        fleet.spawn("messy")
        fleet.wait_for_log("messy", "littered")
        assert len(processes.survivors()) >= 4

        fleet.client.signal(Incarnation("boot.messy"), signal.SIGKILL)

        assert fleet.next(ChildExited).reason == Signalled(signal.SIGKILL)
        assert fleet.next(StrangersKilled).pids
        until(lambda: processes.survivors() == [], timeout_s=5)
        fleet.client.close(timeout_s=10)

    processes.run(body)


@pytest.mark.kill
def test_nobody_is_left_after_the_root_was_killed(processes: Any, tmp_path: Path, until: Any) -> None:
    def body() -> None:
        fleet = Fleet(tmp_path, lambda *given: litter(*given) if given[1].name == "messy" else pause(*given))
        for name in (f"{processes.tag}-1", f"{processes.tag}-2", "messy"):
            fleet.spawn(name)
            fleet.wait_for_log(name, "littered" if name == "messy" else "pausing")
        (tmp_path / "zygote").write_text(str(fleet.client.pid))
        (tmp_path / "ready").touch()
        signal.pause()

    root, _ = processes.fork(body)
    until((tmp_path / "ready").exists)
    zygote_pidfd = os.pidfd_open(int((tmp_path / "zygote").read_text()))
    assert len(processes.survivors()) >= 6

    processes.kill(root)

    until(lambda: processes.survivors() == [], timeout_s=5)
    assert wait_for_exit(zygote_pidfd, timeout_s=5)
    os.close(zygote_pidfd)


@pytest.mark.kill
def test_children_die_with_the_zygote_and_the_root_starts_anew(processes: Any, tmp_path: Path, until: Any) -> None:
    def body() -> None:
        warnings.simplefilter("ignore")
        fleet = Fleet(tmp_path, lambda *given: litter(*given) if given[1].name == "messy" else pause(*given))
        fleet.spawn(f"{processes.tag}-1")
        fleet.spawn("messy")
        fleet.wait_for_log("messy", "littered")

        os.kill(fleet.client.pid, signal.SIGKILL)
        lost = fleet.next(ZygoteLost)

        assert lost.pid == fleet.client.pid
        assert fleet.client.receive() == []
        assert sorted(fleet.client.outstanding().values()) == ["messy", f"{processes.tag}-1"]
        swept = fleet.client.bury(timeout_s=5)
        assert swept.left == ()
        assert direct_children() == []
        until(lambda: processes.survivors() == [], timeout_s=5)

        # By now a root has threads: a fork would not be safe any more.
        threading.Thread(target=signal.pause, daemon=True).start()
        fleet.use(exec_zygote(entry="covey.supervisor.roles.none_such_{role}:main", preload=("msgspec", "none_such")))
        fleet.spawn("anew")
        assert fleet.next(ChildExited).reason == Exited(1)
        fleet.client.close(timeout_s=10)

    processes.run(body)


@pytest.mark.kill
def test_children_are_dead_by_the_kernels_hand_when_nobody_sweeps(processes: Any, tmp_path: Path) -> None:
    def body() -> None:
        fleet = Fleet(tmp_path, pause)
        child = os.pidfd_open(fleet.spawn("child").pid)
        fleet.wait_for_log("child", "pausing")

        os.kill(fleet.client.pid, signal.SIGKILL)

        assert wait_for_exit(child, timeout_s=5)
        fleet.client.bury(timeout_s=5)

    processes.run(body)


def test_the_last_words_of_a_zygote_that_died_with_requests_unread_are_heard(processes: Any, tmp_path: Path) -> None:
    def body() -> None:
        fleet = Fleet(tmp_path, lambda role, arguments, fds: 3)
        fleet.ask("heard")
        # Its words are in our socket once it has nobody left to reap.
        fleet.wait_for_children(0)
        os.kill(fleet.client.pid, signal.SIGSTOP)
        fleet.ask("unread")

        os.kill(fleet.client.pid, signal.SIGKILL)
        assert wait_for_exit(os.pidfd_open(fleet.client.pid), timeout_s=10)

        assert fleet.next(ChildExited).reason == Exited(3)
        fleet.next(ZygoteLost)
        assert fleet.client.outstanding() == {"boot.unread": "unread"}
        fleet.client.bury(timeout_s=5)

    processes.run(body)


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_zygote_outlives_signals_that_are_meant_for_the_root(processes: Any, tmp_path: Path, signo: int) -> None:
    def body() -> None:
        fleet = Fleet(tmp_path, pause)

        os.kill(fleet.client.pid, signo)

        fleet.spawn("child")
        assert fleet.client.close(timeout_s=10).left == ()

    processes.run(body)


def test_closing_ends_every_child_and_leaves_no_descriptor_open(processes: Any, tmp_path: Path) -> None:
    def body() -> None:
        open_before = len(os.listdir("/proc/self/fd"))
        fleet = Fleet(tmp_path, pause)
        pidfds = [os.pidfd_open(fleet.spawn(f"child-{number}").pid) for number in range(5)]

        swept = fleet.client.close(timeout_s=10)

        assert swept.left == ()
        assert all(wait_for_exit(pidfd, timeout_s=0) for pidfd in pidfds)
        assert len(os.listdir("/proc/self/fd")) == open_before + len(pidfds)

    processes.run(body)
