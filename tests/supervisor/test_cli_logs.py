"""`covey logs`: lines of several files in the order of time, and what is written later, also to a new file."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.supervisor.log_tail import LogFile, find, merged

COVEY = [sys.executable, "-P", "-m", "covey"]


Open = Callable[[Path], LogFile]


@pytest.fixture
def log() -> Iterator[Open]:
    """Logs that are closed at the end."""
    opened: list[LogFile] = []

    def begin(path: Path) -> LogFile:
        opened.append(LogFile(path))
        return opened[-1]

    yield begin
    for file in opened:
        file.close()


def stamp(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}.000Z info x"


def texts(lines: object) -> list[str]:
    return [line.text for line in lines]  # type: ignore[attr-defined] # any iterable of lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def follow(folder: Path) -> Iterator[object]:
    """Start `covey logs -f`; returns what reads its next line."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*args: str) -> subprocess.Popen[bytes]:
        running.append(
            subprocess.Popen(
                [*COVEY, "logs", "--home", str(folder.parent), "-f", *args],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        return running[-1]

    yield begin
    for program in running:
        program.kill()
        program.communicate()


def next_line(program: subprocess.Popen[bytes]) -> str:
    assert program.stdout is not None
    assert select.select([program.stdout], [], [], 20)[0], "no line came"
    return program.stdout.readline().decode().rstrip("\n")


def covey(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COVEY, "logs", "--home", str(folder.parent), *args], capture_output=True, text=True, timeout=60
    )


# --- one file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [0, 1, 3, 10, 20_000])
@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_the_newest_lines_are_the_last_ones(folder: Path, log: Open, lines: int, count: int) -> None:
    content = [f"{stamp(1)} number {number} {'x' * (number % 50)}" for number in range(lines)]
    (folder / "a.log").write_text("".join(f"{line}\n" for line in content))

    assert texts(log(folder / "a.log").newest(count)) == (content[-count:] if count else [])


def test_a_line_longer_than_a_block_is_whole(folder: Path, log: Open) -> None:
    long = "y" * 300_000
    (folder / "a.log").write_text(f"{stamp(1)} x\n{long}\n")

    assert texts(log(folder / "a.log").newest(1)) == [long]


def test_more_is_what_was_written_since_and_only_whole_lines(folder: Path, log: Open) -> None:
    path = folder / "a.log"
    path.write_text(f"{stamp(1)} one\n{stamp(2)} tw")
    file = log(path)
    assert texts(file.newest(5)) == [f"{stamp(1)} one"]

    with open(path, "a") as writer:
        writer.write("o\n")

    assert texts(file.more()) == [f"{stamp(2)} two"]
    assert file.more() == []


def test_a_file_that_was_cut_is_read_from_its_beginning(folder: Path, log: Open) -> None:
    path = folder / "a.log"
    path.write_text(f"{stamp(1)} a long first line\n")
    file = log(path)
    file.newest(5)

    path.write_text(f"{stamp(2)} new\n")

    assert texts(file.more()) == [f"{stamp(2)} new"]


def test_a_file_that_was_replaced_is_read_to_its_end_and_then_the_new_one(folder: Path, log: Open) -> None:
    path = folder / "a.log"
    path.write_text(f"{stamp(1)} one\n")
    file = log(path)
    file.newest(5)
    with open(path, "a") as writer:
        writer.write(f"{stamp(2)} two\n")

    path.rename(folder / "a.log.1")
    assert texts(file.more()) == [f"{stamp(2)} two"]
    path.write_text(f"{stamp(3)} three\n")

    assert texts(file.more()) == [f"{stamp(3)} three"]


def test_a_file_that_does_not_exist_yet_is_read_when_it_does(folder: Path, log: Open) -> None:
    file = log(folder / "a.log")
    assert file.newest(5) == []

    (folder / "a.log").write_text(f"{stamp(1)} one\n")

    assert texts(file.more()) == [f"{stamp(1)} one"]


# --- several ---------------------------------------------------------------------------------------------------------


def test_lines_of_several_files_come_in_the_order_of_time_and_a_traceback_stays_together(
    folder: Path, log: Open
) -> None:
    (folder / "a.log").write_text(f"{stamp(1)} a1\nTraceback\n  line\n{stamp(4)} a4\n")
    (folder / "b.log").write_text(f"{stamp(2)} b2\n{stamp(3)} b3\n")

    files = [log(path).newest(10) for path in find(folder, None)]

    assert [text.removeprefix("2026-01-01T00:00:") for text in texts(merged(files))] == [
        "01.000Z info x a1",
        "Traceback",
        "  line",
        "02.000Z info x b2",
        "03.000Z info x b3",
        "04.000Z info x a4",
    ]


def test_logs_are_found_by_name_and_by_role(folder: Path) -> None:
    for name in ("worker-1", "worker-2", "broker", "workers"):
        (folder / f"{name}.log").touch()

    def names(wanted: str | None) -> list[str]:
        return [path.name for path in find(folder, wanted)]

    assert names("worker") == ["worker-1.log", "worker-2.log"]
    assert names("worker-2") == ["worker-2.log"]
    assert names("work") == names("*") == []
    assert len(names(None)) == 4


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_shows_the_last_lines_of_all_with_whose_they_are(folder: Path) -> None:
    (folder / "broker.log").write_text(f"{stamp(1)} b1\n{stamp(3)} b3\n")
    (folder / "ledger.log").write_text(f"{stamp(2)} l2\n{stamp(4)} l4\n")

    done = covey(folder, "-n", "3")

    assert done.returncode == 0, done.stderr
    assert [line.split()[0] + " " + line.split()[-1] for line in done.stdout.splitlines()] == [
        "ledger l2",
        "broker b3",
        "ledger l4",
    ]
    assert covey(folder, "broker", "-n1").stdout == f"{stamp(3)} b3\n"


def test_an_unknown_name_is_refused_and_told_which_there_are(folder: Path) -> None:
    (folder / "broker.log").touch()

    done = covey(folder, "nobody")

    assert done.returncode == 2
    assert "there are: broker" in done.stderr


def test_following_sees_new_lines_new_files_and_rotation_and_ends_with_130(folder: Path, follow: object) -> None:
    path = folder / "broker.log"
    path.write_text(f"{stamp(1)} one\n")
    program: subprocess.Popen[bytes] = follow()  # type: ignore[operator] # the fixture's function
    assert next_line(program).endswith("one")

    with open(path, "a") as writer:
        writer.write(f"{stamp(2)} two\n")
    assert next_line(program).endswith("two")
    (folder / "worker-9.log").write_text(f"{stamp(3)} three\n")
    assert next_line(program) == f"worker-9  {stamp(3)} three"
    path.rename(folder / "broker.log.1")
    path.write_text(f"{stamp(4)} four\n")
    assert next_line(program).endswith("four")
    os.kill(program.pid, signal.SIGINT)

    assert program.wait(20) == 130
