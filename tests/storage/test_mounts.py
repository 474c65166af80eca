"""What state.db may lie on: the kernel's list of mounts, and the refusal of what only looks like a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.protocol.errors import RemoteFileSystem
from covey.storage.mounts import file_system, refuse_remote
from covey.storage.store import Store

LINES = (
    "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
    "2 1 0:5 / /srv rw - nfs4 host:/x rw\n"
    "3 2 8:2 / /srv/local rw - xfs /dev/sdb rw\n"
    "4 1 0:6 / /with\\040blank rw,relatime shared:7 - fuse.sshfs host: rw\n"
)


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(LINES)
    return path


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/me", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/home", "nfs4"),
        ("/srvx", "ext4"),
        ("/srv/local/home", "xfs"),
        ("/with blank/home", "fuse.sshfs"),
    ],
)
def test_the_innermost_mount_is_the_one_a_folder_lies_on(mounts: Path, folder: str, kind: str) -> None:
    assert file_system(Path(folder), mounts) == kind


def test_the_later_one_of_two_at_one_place_is_on_top(mounts: Path) -> None:
    mounts.write_text(LINES + "5 0 0:9 / /srv rw - tmpfs tmpfs rw\n")

    assert file_system(Path("/srv/home"), mounts) == "tmpfs"


def test_where_the_kernel_says_nothing_nothing_is_refused(tmp_path: Path) -> None:
    refuse_remote(tmp_path / "state.db", mounts=tmp_path / "missing")


def test_a_database_on_a_network_file_system_is_refused_and_not_made(
    mounts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts.write_text("1 0 0:5 / / rw - nfs host:/x rw\n")
    monkeypatch.setattr("covey.storage.store.refuse_remote", lambda path: refuse_remote(path, mounts=mounts))

    with pytest.raises(RemoteFileSystem, match="is on nfs"):
        Store(tmp_path / "state.db")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["mountinfo"]
