from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey.storage.owners import me, open_pidfd
from covey.supervisor.process import (
    become_subreaper,
    die_with_parent,
    direct_children,
    kill_strangers,
    send_signal,
    set_title,
    start_ticks,
    sweep,
    wait_for_exit,
)

LITTER = """
import os, subprocess, sys
subprocess.Popen(["sleep", "300"])
subprocess.Popen(["sleep", "300"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "300"])
    os._exit(0)
os.wait()
print("ready", flush=True)
sys.stdin.read()
"""
"""A program with a child, a child in a session of its own, and a daemon (forked twice)."""


def litter() -> subprocess.Popen[bytes]:
    program = subprocess.Popen([sys.executable, "-c", LITTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdout is not None
    assert program.stdout.readline() == b"ready\n"
    return program


def pausing_child(before: Any) -> int:
    pid = os.fork()
    if pid == 0:
        before()
        signal.pause()
        os._exit(0)
    return pid


def tied_to(parent: int, telling: int) -> None:
    die_with_parent(parent)
    os.write(telling, b"%d" % os.getpid())


def test_this_process_is_found_again_by_its_own_description() -> None:
    owner = me()

    pidfd = open_pidfd(owner)

    assert pidfd is not None
    assert not wait_for_exit(pidfd, timeout_s=0)
    os.close(pidfd)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"start_ticks": 1}, id="same pid, started at another time"),
        pytest.param({"boot_id": "another"}, id="same pid, another boot"),
        pytest.param({"pid": 2**22 - 1}, id="no such pid"),
    ],
)
def test_a_pidfd_of_another_process_is_refused_and_none_is_left_open(change: Any) -> None:
    owner = msgspec.structs.replace(me(), **change)
    open_before = len(os.listdir("/proc/self/fd"))

    assert open_pidfd(owner) is None

    assert len(os.listdir("/proc/self/fd")) == open_before


def test_the_start_time_is_found_whatever_the_process_calls_itself(processes: Any) -> None:
    def body() -> None:
        before = start_ticks(os.getpid())
        set_title("a) R 1 (b")
        assert start_ticks(os.getpid()) == before

    processes.run(body)


def test_a_title_is_shown_as_name_and_command_line(processes: Any) -> None:
    def body() -> None:
        # 18 bytes: more than the name takes, less than any command line that runs the tests.
        set_title("covey:a-worker-123")
        assert Path("/proc/self/comm").read_text().strip() == "covey:a-worker-"
        assert Path("/proc/self/cmdline").read_bytes().rstrip(b"\0") == b"covey:a-worker-123"

    processes.run(body)


def test_a_signal_to_a_process_that_was_reaped_hits_nobody(processes: Any) -> None:
    def body() -> None:
        child = pausing_child(lambda: None)
        pidfd = os.pidfd_open(child)

        assert send_signal(pidfd, signal.SIGKILL)
        assert wait_for_exit(pidfd, timeout_s=10)
        os.waitpid(child, 0)

        assert not send_signal(pidfd, signal.SIGKILL)

    processes.run(body)


def test_waiting_for_a_living_process_ends_at_its_deadline(processes: Any) -> None:
    def body() -> None:
        child = pausing_child(lambda: None)
        assert not wait_for_exit(os.pidfd_open(child), timeout_s=0.05)
        sweep(timeout_s=10)

    processes.run(body)


def test_a_child_dies_with_its_parent(processes: Any) -> None:
    told, telling = os.pipe()

    def body() -> None:
        parent = os.getpid()
        pausing_child(lambda: tied_to(parent, telling))
        signal.pause()

    parent, _ = processes.fork(body)
    pidfd = os.pidfd_open(int(os.read(told, 20)))

    processes.kill(parent)

    assert wait_for_exit(pidfd, timeout_s=10)
    for fd in (pidfd, told, telling):
        os.close(fd)


def test_a_child_whose_parent_is_gone_already_ends_at_once(processes: Any) -> None:
    def body() -> None:
        child = pausing_child(lambda: die_with_parent(1))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 1

    processes.run(body)


def test_the_kernel_ties_a_child_to_the_thread_that_made_it(processes: Any) -> None:
    """Why there is a zygote: its only thread lives as long as itself."""

    def body() -> None:
        warnings.simplefilter("ignore")  # later versions of Python warn of just this
        parent, made = os.getpid(), []
        told, telling = os.pipe()

        def make_a_child() -> None:
            made.append(pausing_child(lambda: tied_to(parent, telling)))
            os.read(told, 20)

        thread = threading.Thread(target=make_a_child)
        thread.start()
        thread.join()
        _, status = os.waitpid(made[0], 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL

    processes.run(body)


def test_direct_children_are_ours_and_unreaped_ones_too(processes: Any) -> None:
    def body() -> None:
        alive = pausing_child(lambda: None)
        dead = os.fork()
        if dead == 0:
            os._exit(0)
        wait_for_exit(os.pidfd_open(dead), timeout_s=10)

        assert sorted(direct_children()) == sorted([alive, dead])

        sweep(timeout_s=10)
        assert direct_children() == []

    processes.run(body)


@pytest.mark.kill
def test_a_sweep_leaves_nobody_whatever_session_they_are_in(processes: Any) -> None:
    def body() -> None:
        become_subreaper()
        litter()
        litter()

        swept = sweep(timeout_s=10)

        assert swept.left == ()
        assert len(swept.reaped) == 8
        assert direct_children() == []

    processes.run(body)
    assert processes.survivors() == []


@pytest.mark.kill
def test_a_sweep_spares_whom_it_is_told_to(processes: Any) -> None:
    def body() -> None:
        become_subreaper()
        spared = pausing_child(lambda: None)
        litter()

        swept = sweep(timeout_s=10, spare={spared})

        assert spared not in swept.reaped
        assert direct_children() == [spared]
        sweep(timeout_s=10)

    processes.run(body)


@pytest.mark.kill
def test_a_sweep_ends_at_its_deadline_and_says_who_is_left(processes: Any) -> None:
    def body() -> None:
        become_subreaper()
        litter()
        direct = set(direct_children())

        began = time.monotonic()
        swept = sweep(timeout_s=0)

        assert time.monotonic() - began < 5
        assert set(swept.reaped) <= direct, "one round only"
        assert set(swept.left) | set(swept.reaped) >= direct
        sweep(timeout_s=10)

    processes.run(body)


@pytest.mark.kill
def test_strangers_are_what_a_dead_child_leaves_behind(processes: Any, until: Any) -> None:
    def body() -> None:
        become_subreaper()
        program = litter()
        daemon = [pid for pid in direct_children() if pid != program.pid]
        assert len(daemon) == 1
        program.kill()
        program.wait()
        until(lambda: len(direct_children()) == 3)

        assert sorted(kill_strangers(())) == sorted(direct_children())

        sweep(timeout_s=10)

    processes.run(body)
