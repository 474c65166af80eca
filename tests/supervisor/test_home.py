"""The home directory: where it is, who may get in, where the sockets go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.errors import HomeError
from covey.protocol.ids import Incarnation
from covey.supervisor.home import SOCKET_NAMES, Home, RootInfo, replace_file

IS_ROOT = os.geteuid() == 0
INFO = RootInfo(
    pid=7,
    start_ticks=99,
    boot_id="b",
    sockets="/run/covey",
    incarnation=Incarnation("root-1"),
    version="0.1.0",
    started_unix=1.5,
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def longest_socket(folder: Path) -> int:
    return max(len(os.fsencode(folder / f"{name}.sock")) for name in SOCKET_NAMES)


def deep(base: Path, length: int, *, letter: str = "d") -> Path:
    """A path below `base` whose longest socket in run/ has exactly `length` bytes."""
    missing = length - longest_socket(base / "h" / "run") + len(b"h")
    width = len(letter.encode())
    return base / (letter * (missing // width) + "x" * (missing % width))


class TestLocate:
    def test_an_explicit_path_wins(self, tmp_path: Path) -> None:
        assert Home.locate(tmp_path, {"COVEY_HOME": "/other"}).path == tmp_path

    def test_the_environment_comes_second(self) -> None:
        assert Home.locate(None, {"COVEY_HOME": "/other"}).path == Path("/other")

    @pytest.mark.parametrize("environ", [{}, {"COVEY_HOME": ""}], ids=["unset", "empty"])
    def test_the_user_s_folder_is_the_default(self, environ: dict[str, str]) -> None:
        assert Home.locate(None, environ).path == Path.home() / ".covey"

    def test_a_relative_path_becomes_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

        assert Home.locate("fleet").path == tmp_path / "fleet"

    @pytest.mark.parametrize("name", ["/tmp/\udcff", "/tmp/a\0b"], ids=["not UTF-8", "NUL"])
    def test_a_path_that_cannot_travel_is_refused(self, name: str) -> None:
        with pytest.raises(HomeError, match="UTF-8"):
            Home.locate(name)


class TestPrepare:
    def test_all_folders_are_private(self, tmp_path: Path) -> None:
        home = Home(tmp_path / "new")

        home.prepare()

        assert {mode(folder) for folder in (home.path, home.run, home.logs, home.outbox)} == {0o700}

    def test_twice_is_once(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        home.prepare()
        home.outbox.joinpath("kept").write_text("x")

        home.prepare()

        assert home.outbox.joinpath("kept").read_text() == "x"

    def test_a_run_directory_that_others_can_only_read_is_closed(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        home.run.mkdir()
        home.run.chmod(0o755)

        home.prepare()

        assert mode(home.run) == 0o700

    @pytest.mark.parametrize("bits", [0o720, 0o702, 0o777])
    def test_a_run_directory_that_others_can_write_is_refused_as_it_is(self, tmp_path: Path, bits: int) -> None:
        home = Home(tmp_path)
        home.run.mkdir()
        home.run.chmod(bits)

        with pytest.raises(HomeError, match="can be written by other users"):
            home.prepare()

        assert mode(home.run) == bits

    @pytest.mark.skipif(not IS_ROOT, reason="only root can give files away")
    def test_a_run_directory_of_another_user_is_refused(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        home.run.mkdir(mode=0o700)
        os.chown(home.run, 12345, 12345)

        with pytest.raises(HomeError, match="belongs to user 12345"):
            home.prepare()

    def test_a_link_in_place_of_the_run_directory_is_refused(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        tmp_path.joinpath("elsewhere").mkdir()
        home.run.symlink_to(tmp_path / "elsewhere")

        with pytest.raises(HomeError, match="symbolic link"):
            home.prepare()

    def test_a_file_in_place_of_the_home_is_refused(self, tmp_path: Path) -> None:
        tmp_path.joinpath("file").write_text("x")

        with pytest.raises(HomeError, match="cannot be created"):
            Home(tmp_path / "file").prepare()


class TestSockets:
    @pytest.mark.parametrize("letter", ["d", "ü", "語"], ids=["ascii", "two bytes each", "three bytes each"])
    def test_107_bytes_stay_in_the_home_and_108_do_not(self, tmp_path: Path, letter: str) -> None:
        fits, too_long = (Home(deep(tmp_path, length, letter=letter)) for length in (107, 108))

        assert longest_socket(fits.run) == 107
        assert fits.sockets({}) == fits.run
        assert too_long.sockets({}) != too_long.run

    def test_a_deep_home_uses_the_runtime_directory(self, tmp_path: Path) -> None:
        runtime = tmp_path / "r"
        runtime.mkdir(mode=0o700)
        home = Home(tmp_path / ("d" * 120))

        folder = home.sockets({"XDG_RUNTIME_DIR": str(runtime)})

        assert folder.parent == runtime
        assert longest_socket(folder) <= 107

    @pytest.mark.parametrize("runtime", ["missing", "relative", "too deep", "open to others"])
    def test_a_runtime_directory_that_cannot_be_used_is_passed_over(self, tmp_path: Path, runtime: str) -> None:
        place = tmp_path / ("r" * 90 if runtime == "too deep" else "r")
        if runtime != "missing":
            place.mkdir()
            place.chmod(0o777 if runtime == "open to others" else 0o700)
        value = "r" if runtime == "relative" else str(place)

        folder = Home(tmp_path / ("d" * 120)).sockets({"XDG_RUNTIME_DIR": value})

        assert str(folder).startswith(f"/tmp/covey-{os.geteuid()}-")

    def test_two_homes_that_agree_in_their_first_107_bytes_do_not_share(self, tmp_path: Path) -> None:
        long = "d" * 200

        assert Home(tmp_path / long / "a").sockets({}) != Home(tmp_path / long / "b").sockets({})

    def test_a_home_reached_by_two_names_has_one_folder(self, tmp_path: Path) -> None:
        real = tmp_path / ("d" * 120)
        real.mkdir()
        alias = tmp_path / ("e" * 120)
        alias.symlink_to(real)

        assert Home(real).sockets({}) == Home(alias).sockets({})

    def test_the_folder_is_made_private_and_claimed(self, tmp_path: Path) -> None:
        home, environ = deep_home_with_runtime(tmp_path)

        folder = home.prepare_sockets(environ)

        assert mode(folder) == 0o700
        assert home.prepare_sockets(environ) == folder

    def test_a_folder_claimed_by_another_home_is_refused(self, tmp_path: Path) -> None:
        home, environ = deep_home_with_runtime(tmp_path)
        folder = home.prepare_sockets(environ)
        folder.joinpath("home").write_text("/another")

        with pytest.raises(HomeError, match="another home, '/another'"):
            home.prepare_sockets(environ)

    def test_a_link_in_its_place_is_refused(self, tmp_path: Path) -> None:
        home, environ = deep_home_with_runtime(tmp_path)
        home.sockets(environ).symlink_to(tmp_path)

        with pytest.raises(HomeError, match="symbolic link"):
            home.prepare_sockets(environ)

    @pytest.mark.skipif(not IS_ROOT, reason="only root can give files away")
    def test_a_folder_of_another_user_is_refused(self, tmp_path: Path) -> None:
        home, environ = deep_home_with_runtime(tmp_path)
        home.sockets(environ).mkdir(mode=0o700)
        os.chown(home.sockets(environ), 12345, 12345)

        with pytest.raises(HomeError, match="belongs to user 12345"):
            home.prepare_sockets(environ)

    @given(name=st.text(st.characters(codec="utf-8", exclude_characters="/\0"), max_size=120))
    def test_every_name_gets_sockets_that_fit(self, name: str) -> None:
        assert longest_socket(Home(Path("/home/someone") / f"h{name}").sockets({})) <= 107


class TestRootInfo:
    def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        INFO.write(tmp_path / "root.json")

        assert RootInfo.read(tmp_path / "root.json") == INFO
        assert mode(tmp_path / "root.json") == 0o600
        assert [path.name for path in tmp_path.iterdir()] == ["root.json"]

    def test_a_missing_file_is_nobody(self, tmp_path: Path) -> None:
        assert RootInfo.read(tmp_path / "root.json") is None

    @pytest.mark.parametrize("content", [b"", b'{"pid": 1', b'{"pid": "x"}', b"\xff"])
    def test_a_damaged_file_is_named(self, tmp_path: Path, content: bytes) -> None:
        tmp_path.joinpath("root.json").write_bytes(content)

        with pytest.raises(HomeError, match=r"root\.json: is damaged"):
            RootInfo.read(tmp_path / "root.json")

    def test_a_newer_root_may_say_more(self, tmp_path: Path) -> None:
        INFO.write(tmp_path / "root.json")
        text = tmp_path.joinpath("root.json").read_text()
        tmp_path.joinpath("root.json").write_text(text[:-1] + ',"more":1}')

        assert RootInfo.read(tmp_path / "root.json") == INFO


def test_a_file_that_cannot_be_replaced_is_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "taken"
    target.mkdir()

    with pytest.raises(HomeError, match="cannot be written"):
        replace_file(target, b"x", mode=0o600)

    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def deep_home_with_runtime(tmp_path: Path) -> tuple[Home, dict[str, str]]:
    home = Home(tmp_path / ("d" * 120))
    home.prepare()
    runtime = tmp_path / "r"
    runtime.mkdir(mode=0o700)
    return home, {"XDG_RUNTIME_DIR": str(runtime)}
