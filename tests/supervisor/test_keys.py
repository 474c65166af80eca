"""The files of keys: who is allowed, what is refused, and that no secret shows anywhere."""

from __future__ import annotations

import json
import os
import stat
from itertools import pairwise
from pathlib import Path

import pytest

from covey.supervisor.cli.main import COMMANDS, main
from covey.supervisor.home import Home
from covey.supervisor.keys import KeyProblem, KeyRing, new_pair, public_key, read_pair, write_secret


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def ring(home: Home) -> KeyRing:
    return KeyRing(home)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_pair_is_read_from_the_file_of_its_secret(tmp_path: Path) -> None:
    pair = new_pair()

    write_secret(tmp_path / "a.secret", pair)

    assert mode(tmp_path / "a.secret") == 0o600
    assert read_pair(tmp_path / "a.secret") == pair


def test_a_pair_does_not_show_its_secret() -> None:
    pair = new_pair()

    assert pair.secret.decode() not in f"{pair} {pair!r}"


def test_public_keys_can_be_typed_as_arguments() -> None:
    assert all(new_pair().public[0].isalnum() for _ in range(50))


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o644])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, bits: int) -> None:
    write_secret(tmp_path / "a.secret", new_pair())
    (tmp_path / "a.secret").chmod(bits)

    with pytest.raises(KeyProblem, match="can be read by others"):
        read_pair(tmp_path / "a.secret")


@pytest.mark.parametrize("content", [b"", b"short\n", b"x" * 41, b"\xff" * 40, b"~" * 40, b"a" * 40 + b"\nmore"])
def test_a_file_without_a_key_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.secret").write_bytes(b"covey-secret:" + content)
    (tmp_path / "a.secret").chmod(0o600)

    with pytest.raises(KeyProblem, match="holds no secret key") as refused:
        read_pair(tmp_path / "a.secret")

    assert "xxxx" not in str(refused.value)


def test_a_secret_and_a_public_key_are_never_taken_for_each_other(tmp_path: Path, ring: KeyRing) -> None:
    write_secret(tmp_path / "a.secret", new_pair())
    (tmp_path / "a.public").write_text(f"{new_pair().public}\n")
    (tmp_path / "a.public").chmod(0o600)

    with pytest.raises(KeyProblem, match="holds a secret; it stays where it is"):
        public_key(str(tmp_path / "a.secret"))
    with pytest.raises(KeyProblem, match="holds no secret key"):
        read_pair(tmp_path / "a.public")


def test_a_secret_is_never_written_over(tmp_path: Path) -> None:
    write_secret(tmp_path / "a.secret", new_pair())
    before = (tmp_path / "a.secret").read_bytes()

    with pytest.raises(KeyProblem, match="is there already"):
        write_secret(tmp_path / "a.secret", new_pair())

    assert (tmp_path / "a.secret").read_bytes() == before


def test_a_secret_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "a.secret").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(KeyProblem):
        write_secret(tmp_path / "a.secret", new_pair())

    assert not (tmp_path / "elsewhere").exists()


def test_the_pair_of_the_fleet_lies_in_a_private_folder(ring: KeyRing) -> None:
    pair = ring.new_server()

    assert ring.server() == pair
    assert (mode(ring.folder), mode(ring.folder / "server.secret")) == (0o700, 0o600)
    assert public_key(str(ring.folder / "server.public")) == pair.public


def test_a_fleet_keeps_the_pair_it_has(ring: KeyRing) -> None:
    pair = ring.new_server()

    with pytest.raises(KeyProblem, match="is there already"):
        ring.new_server()

    assert ring.server() == pair


def test_a_fleet_without_a_pair_says_how_to_make_one(ring: KeyRing) -> None:
    assert not ring.has_server()
    with pytest.raises(KeyProblem, match="covey keys new server"):
        ring.server()


def test_allowed_keys_are_known_by_their_names_until_they_are_revoked(ring: KeyRing) -> None:
    laptop, desk = new_pair().public, new_pair().public

    ring.allow("laptop", laptop)
    ring.allow("desk", desk)
    ring.allow("desk", desk)

    assert ring.allowed() == {laptop.encode(): "laptop", desk.encode(): "desk"}
    assert [client.name for client in ring.known()] == ["desk", "laptop"]
    ring.revoke("laptop")
    assert ring.allowed() == {desk.encode(): "desk"}
    with pytest.raises(KeyProblem, match="laptop is not allowed anyway; allowed: desk"):
        ring.revoke("laptop")


def test_every_change_gives_the_list_another_version(ring: KeyRing) -> None:
    versions = [ring.version()]
    ring.allow("laptop", new_pair().public)
    versions.append(ring.version())
    ring.allow("desk", new_pair().public)
    versions.append(ring.version())
    ring.revoke("desk")
    versions.append(ring.version())
    ring.revoke("laptop")
    ring.allow("laptop", new_pair().public)
    versions.append(ring.version())

    assert all(one != other for one, other in pairwise(versions))
    assert ring.version() == versions[-1]


def test_a_name_cannot_get_a_second_key_nor_a_key_a_second_name(ring: KeyRing) -> None:
    ring.allow("laptop", key := new_pair().public)

    with pytest.raises(KeyProblem, match="is another key already"):
        ring.allow("laptop", new_pair().public)
    with pytest.raises(KeyProblem, match="is allowed already, as laptop"):
        ring.allow("desk", key)

    assert ring.allowed() == {key.encode(): "laptop"}


@pytest.mark.parametrize("name", ["", "server", "../up", "a/b", "a b", "-a", ".a", "ä", "x" * 65])
def test_a_name_that_could_be_something_else_is_refused(ring: KeyRing, name: str) -> None:
    with pytest.raises(KeyProblem, match="no name for a client"):
        ring.allow(name, new_pair().public)
    with pytest.raises(KeyProblem, match="no name for a client"):
        ring.revoke(name)

    assert not ring.folder.exists()


@pytest.mark.parametrize("bits", [0o755, 0o770, 0o701])
def test_a_list_that_others_could_write_or_read_allows_nobody(ring: KeyRing, bits: int) -> None:
    ring.allow("laptop", new_pair().public)
    ring.clients.chmod(bits)

    with pytest.raises(KeyProblem, match="closed to others"):
        ring.allowed()


def test_files_that_are_no_keys_are_no_keys(ring: KeyRing) -> None:
    ring.allow("laptop", key := new_pair().public)
    (ring.clients / "broken.public").write_text("not a key\n")
    (ring.clients / ".hidden.public").write_text(f"{new_pair().public}\n")
    (ring.clients / "a.secret").write_text(f"{new_pair().public}\n")

    assert ring.allowed() == {key.encode(): "laptop"}


# --- the command -------------------------------------------------------------------------------------------------


def covey(home: Home, *words: str) -> int:
    return main(["keys", *words, "--home", str(home.path)], COMMANDS)


def test_from_a_new_key_to_a_revoked_one(home: Home, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "laptop.secret"

    assert covey(home, "new", "server") == 0
    assert covey(home, "new", "laptop", "--client", "--out", str(secret)) == 0
    assert covey(home, "allow", "laptop", str(tmp_path / "laptop.public")) == 0
    capfd.readouterr()
    assert covey(home, "list", "--json") == 0

    listed = json.loads(capfd.readouterr().out)
    assert listed["server"] == KeyRing(home).server().public
    assert [(one["name"], one["public"]) for one in listed["clients"]] == [("laptop", read_pair(secret).public)]
    assert mode(secret) == 0o600
    assert covey(home, "revoke", "laptop") == 0
    assert KeyRing(home).allowed() == {}


def test_no_command_shows_a_secret(home: Home, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "laptop.secret"
    for json_ in ((), ("--json",)):
        for words in (
            ("new", "server"),
            ("new", "laptop", "--client", "--out", str(secret)),
            ("new", "desk", "--client"),
            ("allow", "laptop", str(secret)),
            ("allow", "laptop", str(tmp_path / "laptop.public")),
            ("list",),
            ("revoke", "laptop"),
        ):
            covey(home, *words, *json_)

    shown = capfd.readouterr()
    for file in (secret, home.path / "keys" / "server.secret", home.path / "keys" / "desk.secret"):
        assert file.read_text().strip().removeprefix("covey-secret:") not in shown.out + shown.err


def test_a_key_with_brackets_is_shown_as_it_is(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    key = "[/a][bold]" + "b" * 30
    KeyRing(home).allow("laptop", key)

    assert covey(home, "list") == 0

    assert key in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("new", "laptop"), "--client"),
        (("new", "server", "--out", "x"), "--out is for clients"),
        (("new", "server", "--client"), "no name for a client"),
        (("allow", "laptop", "nothing-here"), "neither a key"),
        (("revoke", "laptop"), "allowed: nobody"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_remedy(
    home: Home, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert covey(home, *words) in (1, 2)

    assert said in capfd.readouterr().err
    assert not os.path.exists("x")
