"""The file of credentials: who may have written it, what a damaged one does, and that writers wait for each other."""

from __future__ import annotations

import errno
import os
import signal
import stat
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey.protocol.errors import HomeError
from covey.storage.credentials import Kept, OAuthCredential, PlainCredential
from covey.supervisor.credential_file import CredentialFile, CredentialProblem
from covey.supervisor.home import Home

KEY = PlainCredential(label="key1", key="sk-secret-1", added_ms=1)
LOGIN = OAuthCredential(
    label="login1",
    account="0123456789ab",
    refresh_token="refresh-secret",
    token_url="https://login.example.org/token",
    client_id="covey",
    added_ms=2,
    access_token="access-secret",
    expires_ms=3,
    client_secret="client-secret",
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


def filled(home: Home) -> CredentialFile:
    file = CredentialFile(home)
    file.change(lambda kept: kept.with_credential("zai", KEY).with_credential("other", LOGIN))
    return file


def test_what_was_kept_is_read_again_and_closed_to_others(home: Home) -> None:
    file = filled(home)

    kept = file.read()

    assert kept.providers == {"zai": (KEY,), "other": (LOGIN,)}
    assert file.names() == {"zai", "other"}
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert sorted(path.name for path in home.path.iterdir()) == ["credentials.json", "credentials.lock"]


def test_no_file_is_no_credentials(home: Home) -> None:
    file = CredentialFile(home)

    assert (file.read(), file.names(), file.signature()) == (Kept(), frozenset(), None)


def test_a_file_that_others_can_read_is_closed_and_that_is_said(home: Home) -> None:
    said: list[str] = []
    filled(home).path.chmod(0o644)

    kept = CredentialFile(home, on_mended=said.append).read()

    assert kept.of("zai") == (KEY,)
    assert stat.S_IMODE((home.path / "credentials.json").stat().st_mode) == 0o600
    assert said == [f"{home.path}/credentials.json could be read by others (mode 0644); now 0600"]


def test_a_file_that_others_can_write_is_not_trusted(home: Home) -> None:
    file = filled(home)
    file.path.chmod(0o620)

    with pytest.raises(CredentialProblem, match="can be written by others"):
        file.read()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o620


def test_a_home_that_others_can_write_to_is_not_trusted(home: Home) -> None:
    file = filled(home)
    home.path.chmod(0o770)

    with pytest.raises(CredentialProblem, match=r"home can be written by others \(mode 0770\)"):
        file.read()


@pytest.mark.parametrize("target", ["real.json", "nowhere.json"])
def test_a_symbolic_link_is_refused(home: Home, target: str) -> None:
    file = filled(home)
    file.path.rename(home.path / "real.json")
    file.path.symlink_to(home.path / target)

    with pytest.raises(CredentialProblem, match="symbolic link"):
        file.read()
    with pytest.raises(CredentialProblem):
        file.change(lambda kept: kept)
    assert file.path.is_symlink()


def test_a_folder_or_a_pipe_in_its_place_is_refused(home: Home) -> None:
    file = CredentialFile(home)
    file.path.mkdir()
    with pytest.raises(CredentialProblem):
        file.read()
    file.path.rmdir()
    os.mkfifo(file.path, 0o600)

    with pytest.raises(CredentialProblem, match="is not a file"):
        file.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_is_refused(home: Home) -> None:
    file = filled(home)
    os.chown(file.path, 12345, -1)

    with pytest.raises(CredentialProblem, match="belongs to user 12345"):
        file.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_folder_of_somebody_else_is_refused(home: Home) -> None:
    file = filled(home)
    os.chown(home.path, 12345, -1)

    with pytest.raises(CredentialProblem, match="home belongs to user 12345, who can replace"):
        file.read()


def test_a_file_that_cannot_be_closed_to_others_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, mode: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    file = filled(home)
    file.path.chmod(0o644)
    monkeypatch.setattr("covey.supervisor.credential_file.os.fchmod", fail)

    with pytest.raises(CredentialProblem, match="Read-only file system"):
        file.read()


def test_a_mode_that_changes_changes_the_signature(home: Home) -> None:
    file = filled(home)
    before = file.signature()
    file.path.chmod(0o620)

    assert file.signature() != before


def test_a_draft_of_a_writer_that_was_killed_is_gone_with_the_next_change(home: Home, processes: Any) -> None:
    file = filled(home)

    def die(draft: Path, target: Path) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def body() -> None:
        Path.replace = die  # type: ignore[assignment, method-assign]
        file.change(lambda kept: kept.without("zai", KEY))

    pid, told = processes.fork(body)
    os.waitpid(pid, 0)
    processes._pids.remove(pid)
    os.close(told)
    drafts = list(home.path.glob(".credentials.json.*"))
    kept = file.read()
    file.change(lambda kept: kept.without("zai", kept.of("zai")[0]))

    assert len(drafts) == 1
    assert kept.of("zai") == (KEY,)
    assert sorted(path.name for path in home.path.iterdir()) == ["credentials.json", "credentials.lock"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut short"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"[" * 100_000, id="nesting without end"),
        pytest.param(b'{"version": 1, "providers": {"zai": [{"kind": "sk-secret"}]}}', id="an unknown kind"),
        pytest.param(b'{"version": 1, "sk-secret": 1}', id="an unknown field"),
        pytest.param(b'{"version": 1, "providers": {"zai": [{"kind": "key", "label": "a", "key": 5}]}}', id="a number"),
        pytest.param(b'{"version": 2, "providers": {}}', id="of a newer covey"),
        pytest.param(b" " * (5 * 2**20), id="too large"),
    ],
)
def test_a_damaged_file_is_left_as_it_is(home: Home, content: bytes) -> None:
    file = filled(home)
    file.path.write_bytes(content)

    with pytest.raises(CredentialProblem) as refused:
        file.read()
    with pytest.raises(CredentialProblem):
        file.change(lambda kept: kept.with_credential("zai", KEY))

    assert file.path.read_bytes() == content
    assert str(file.path) in str(refused.value)
    assert "sk-secret" not in str(refused.value)


def test_a_cut_at_any_byte_is_damage_and_never_fewer_keys(home: Home) -> None:
    file = filled(home)
    whole = file.path.read_bytes().rstrip()
    for length in range(len(whole)):
        file.path.write_bytes(whole[:length])
        with pytest.raises(CredentialProblem):
            file.read()
        with pytest.raises(CredentialProblem):
            file.names()


def test_writers_of_many_threads_lose_nothing(home: Home) -> None:
    def add(number: int) -> None:
        credential = PlainCredential(label=f"key{number}", key=f"sk-{number}", added_ms=number)
        CredentialFile(home).change(lambda kept: kept.with_credential("zai", credential))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {one.label for one in CredentialFile(home).read().of("zai")} == {f"key{number}" for number in range(8)}


def test_a_lock_that_is_not_let_go_ends_the_wait_with_words(home: Home) -> None:
    file = filled(home)

    with (
        file.lock(),
        pytest.raises(CredentialProblem, match="was being changed by another process"),
        CredentialFile(home).lock(timeout_s=0.05),
    ):
        pass


def test_a_disk_that_takes_nothing_leaves_the_file_as_it_was(home: Home) -> None:
    file = filled(home)
    before = file.path.read_bytes()

    def fail(kept: Kept) -> Kept:
        (home.path / "moved").mkdir()
        os.rename(home.path, home.path.with_name("elsewhere"))
        return kept

    with pytest.raises(HomeError, match="cannot be written"):
        file.change(fail)

    assert (home.path.with_name("elsewhere") / "credentials.json").read_bytes() == before


@pytest.mark.parametrize("credential", [KEY, LOGIN], ids=["key", "login"])
def test_no_text_of_a_credential_shows_a_secret(credential: PlainCredential | OAuthCredential) -> None:
    kept = Kept().with_credential("zai", credential)

    for text in (repr(kept), str(kept), f"{credential!r}", str(list(credential.__rich_repr__()))):
        assert "secret" not in text.replace("client_secret=…", "").replace("'client_secret', '…'", "").replace(
            "client_secret=None", ""
        )
    assert b"secret" in msgspec.json.encode(kept)
