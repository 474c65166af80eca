"""One owner per state.db, by the kernel's word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from covey.protocol.errors import AlreadyRunning
from covey.storage.locks import take
from covey.storage.owners import me
from covey.storage.ownership import own, read_owner
from covey.storage.store import Store

OWNER = """
import sys
from pathlib import Path
from covey.storage.store import Store
store = Store(Path(sys.argv[1]))
print("owns", flush=True)
sys.stdin.read()
"""


def start_owner(database: Path) -> subprocess.Popen[bytes]:
    owner = subprocess.Popen(
        [sys.executable, "-P", "-c", OWNER, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"owns\n"
    return owner


@pytest.mark.kill
def test_a_second_owner_is_refused_with_the_pid_until_the_first_is_killed(tmp_path: Path) -> None:
    database = tmp_path / "state.db"
    with start_owner(database) as owner:
        with pytest.raises(AlreadyRunning) as refused:
            Store(database)
        owner.send_signal(signal.SIGKILL)
        owner.wait()

    assert refused.value.pid == owner.pid
    assert str(database) in str(refused.value)
    Store(database).close()


def test_the_owner_is_written_down_for_people(tmp_path: Path) -> None:
    lock = own(tmp_path / "state.db")

    assert read_owner(tmp_path / "state.db") == me()
    lock.close()


def test_an_owner_that_is_dead_is_nobody(tmp_path: Path) -> None:
    database = tmp_path / "state.db"
    with start_owner(database) as owner:
        owner.kill()
        owner.wait()

    assert read_owner(database) is None
    assert read_owner(tmp_path / "never") is None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_is_not_kept_by_a_forked_child(tmp_path: Path) -> None:
    lock = own(tmp_path / "state.db")
    wait, go = os.pipe()
    up, is_up = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - the child
        os.close(go)
        os.write(is_up, b"!")
        os.read(wait, 1)
        os._exit(0)
    os.read(up, 1)
    for fd in (wait, up, is_up):
        os.close(fd)

    with pytest.raises(AlreadyRunning):  # the child closed its copy: ours is in force
        own(tmp_path / "state.db")
    lock.close()
    second = own(tmp_path / "state.db")  # the child lives on and holds nothing

    second.close()
    os.close(go)
    os.waitpid(child, 0)


def test_a_lock_is_not_kept_by_a_spawned_child(tmp_path: Path) -> None:
    lock = own(tmp_path / "state.db")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False):
        lock.close()

        own(tmp_path / "state.db").close()


def test_a_file_that_is_unlinked_while_it_is_being_locked_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    path.touch()
    gone = os.stat(path).st_ino
    real_open = os.open

    def open_then_replace(*args: object, **kwargs: object) -> int:
        fd = real_open(*args, **kwargs)  # type: ignore[arg-type]
        monkeypatch.setattr(os, "open", real_open)
        path.rename(tmp_path / "old")
        return fd

    monkeypatch.setattr(os, "open", open_then_replace)

    lock = take(path, create=True)

    assert lock is not None
    assert os.fstat(lock.fd).st_ino != gone
    assert lock.is_in_place()
    lock.close()
