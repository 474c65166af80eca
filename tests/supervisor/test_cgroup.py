"""The fleet's own cgroup: made where the kernel lets us, silently absent elsewhere, and the end of all in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.protocol.ids import Incarnation
from covey.supervisor.cgroup import Group

FLEET = Incarnation(f"test-{os.getpid()}")


class Kernel:
    """Folders that look like /proc and a mounted hierarchy."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "fs"
        self.mounts, self.membership = folder / "mountinfo", folder / "cgroup"

    def set(self, *, inside: str = "/", top: str = "/", kind: str = "cgroup2") -> Kernel:
        self.mounts.write_text(f"1 1 0:1 / / rw - ext4 x rw\n20 41 0:38 {top} {self.top} rw - {kind} {kind} rw\n")
        self.membership.write_text(f"3:cpu:/elsewhere\n0::{inside}\n")
        return self

    def make(self) -> Group | None:
        return Group.make(FLEET, mounts=self.mounts, membership=self.membership)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


@pytest.mark.parametrize(
    ("inside", "top", "folder"),
    [
        ("/", "/", "."),
        ("/user/app", "/", "user/app"),
        ("/docker/abc", "/docker/abc", "."),
        ("/docker/abc/x", "/docker/abc", "x"),
    ],
)
def test_a_group_is_made_below_our_own(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, inside: str, top: str, folder: str
) -> None:
    parent = kernel.set(inside=inside, top=top).top / folder
    parent.mkdir(parents=True)

    def as_the_kernel_does(path: Path) -> None:
        os.mkdir(path)
        (path / "cgroup.kill").touch()

    monkeypatch.setattr(Path, "mkdir", as_the_kernel_does)

    group = kernel.make()

    assert group is not None
    assert group.path == (parent / f"covey-{FLEET}").resolve()


def test_without_cgroup_kill_there_is_no_group_and_none_is_left(kernel: Kernel) -> None:
    kernel.set().top.mkdir()

    assert kernel.make() is None
    assert list(kernel.top.iterdir()) == []


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"kind": "cgroup"}, id="only version 1"),
        pytest.param({}, id="a folder that is not there"),
        pytest.param({"inside": "/other", "top": "/docker/abc"}, id="our group is not mounted"),
    ],
)
def test_where_there_can_be_no_group_there_is_none(kernel: Kernel, settings: dict[str, str]) -> None:
    assert kernel.set(**settings).make() is None


def test_without_proc_there_is_none(kernel: Kernel) -> None:
    assert kernel.make() is None


def test_a_group_that_is_gone_refuses_and_does_not_raise(tmp_path: Path) -> None:
    group = Group(tmp_path / "gone")

    assert not group.take_in(os.getpid())
    assert not group.kill()
    assert not group.is_populated()
    assert group.members() == []
    assert not group.holds_us()
    assert group.clear(timeout_s=0)


@pytest.fixture
def real() -> Iterator[Group]:
    group = Group.make(FLEET)
    if group is None:
        pytest.skip("this machine gives us no cgroup of our own")
    yield group
    group.clear(timeout_s=5)


@pytest.mark.kill
def test_all_members_end_at_once_whatever_they_did_to_get_away(real: Group) -> None:
    program = "(env -i setsid sh -c 'sleep 300 & sleep 300' &); echo up; exec sleep 300"
    member = subprocess.Popen(["sh", "-c", f"read go; {program}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert real.take_in(member.pid)
    assert member.stdin is not None
    assert member.stdout is not None
    member.stdin.write(b"go\n")
    member.stdin.close()
    assert member.stdout.readline() == b"up\n"
    assert real.is_populated()
    assert member.pid in real.members()
    assert not real.holds_us()

    assert real.clear(timeout_s=5)

    assert member.wait(5) == -9
    assert not real.path.exists()
    member.stdout.close()
