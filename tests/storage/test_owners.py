"""Which life of which process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from covey.storage.owners import boot_id, is_alive, me, open_pidfd, owner_of


def test_this_process_names_itself() -> None:
    assert me().pid == os.getpid()
    assert me().boot_id == boot_id()
    assert me() == owner_of(os.getpid())
    assert is_alive(me())


def test_a_pid_nobody_has_is_nobody() -> None:
    child = subprocess.Popen(["true"])
    child.wait()

    assert owner_of(child.pid) is None


def test_a_zombie_is_dead_although_it_has_its_pid() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    owner = owner_of(child.pid)
    assert owner is not None
    assert is_alive(owner)

    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert owner_of(child.pid) == owner
    assert not is_alive(owner)
    child.communicate()
    assert open_pidfd(owner) is None


def test_another_process_with_the_same_pid_is_somebody_else() -> None:
    reused = msgspec.structs.replace(me(), start_ticks=me().start_ticks + 1)

    assert not is_alive(reused)


def test_an_owner_of_another_boot_is_dead() -> None:
    assert not is_alive(msgspec.structs.replace(me(), boot_id="earlier"))


def test_a_command_with_spaces_and_parentheses_is_read_right(tmp_path: Path) -> None:
    (tmp_path / "a) S 1 2 (b").symlink_to(sys.executable)
    child = subprocess.Popen(
        [str(tmp_path / "a) S 1 2 (b"), "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()

    found = owner_of(child.pid)

    child.communicate(b"\n")
    mine = owner_of(os.getpid())
    assert found is not None
    assert mine is not None
    assert found.start_ticks >= mine.start_ticks
