"""What a dead fleet left behind is ended by identity; nobody else is touched, whatever the register says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.protocol.ids import Incarnation
from covey.supervisor.leftovers import TAG, Register, reap
from covey.supervisor.process import start_ticks, wait_for_exit

PATIENCE_S = 10.0


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Programs that sleep, with the tag of a fleet or without one."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(fleet: str | None = None, *command: str) -> subprocess.Popen[bytes]:
        tag = {TAG: fleet} if fleet is not None else {}
        environ = {name: value for name, value in os.environ.items() if name != TAG}
        program = subprocess.Popen(
            command or ("sleep", "300"), env={**environ, **tag}, start_new_session=True, stdout=subprocess.PIPE
        )
        running.append(program)
        return program

    yield begin
    for program in running:
        program.kill()
        program.communicate()


def register(path: Path, *processes: subprocess.Popen[bytes], fleet: str = "dead", name: str = "worker-1") -> None:
    found = Register(path, Incarnation(fleet))
    for process in processes:
        found.add(name, pid=process.pid, start_ticks=start_ticks(process.pid))


def test_without_a_register_nobody_is_looked_for(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    start("dead")

    assert reap(tmp_path / "none", timeout_s=PATIENCE_S) == ()


def test_registered_and_tagged_processes_are_ended_and_others_are_not(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    registered, tagged, other_fleet, plain = start(), start("dead"), start("living"), start()
    register(tmp_path / "r", registered)

    killed = reap(tmp_path / "r", timeout_s=PATIENCE_S)

    assert set(killed) == {registered.pid, tagged.pid}
    assert registered.wait(5) == tagged.wait(5) == -9
    assert other_fleet.poll() is plain.poll() is None


def test_what_a_registered_process_started_goes_with_it(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Without a tag of its own, and in another session."""
    program = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '300'], env={}, start_new_session=True, executable='/bin/sleep')\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    parent = start(None, sys.executable, "-c", program)
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    register(tmp_path / "r", parent)

    killed = reap(tmp_path / "r", timeout_s=PATIENCE_S)

    assert len(killed) == 2
    assert wait_for_exit(child, timeout_s=5)
    os.close(child)


@pytest.mark.parametrize(
    ("ticks", "boot"),
    [pytest.param(1, None, id="started at another time"), pytest.param(0, "another", id="in another boot")],
)
def test_a_process_that_only_has_the_same_pid_is_not_touched(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], ticks: int, boot: str | None
) -> None:
    program = start()
    found = Register(tmp_path / "r", Incarnation("dead"))
    found.add("worker-1", pid=program.pid, start_ticks=start_ticks(program.pid) + ticks)
    if boot is not None:
        lines = (tmp_path / "r").read_text().splitlines()
        (tmp_path / "r").write_text("\n".join([f'{{"type":"fleet","fleet":"dead","boot_id":"{boot}"}}', *lines[1:]]))

    assert reap(tmp_path / "r", timeout_s=PATIENCE_S) == ()
    assert program.poll() is None


def test_ourselves_and_whoever_is_above_us_are_spared(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """A fleet may be started anew from inside of what the old one left behind."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom covey.supervisor.leftovers import reap\n"
        "print(reap(Path(sys.argv[1]), timeout_s=5.0), flush=True)\n"
    )
    register(tmp_path / "r")

    inside = start("dead", sys.executable, "-P", "-c", program, str(tmp_path / "r"))

    assert inside.communicate(timeout=20)[0] == b"()\n"
    assert inside.returncode == 0


def test_a_zygote_may_end_by_itself(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    zygote = start(None, "sleep", "0.2")
    register(tmp_path / "r", zygote, name="zygote")

    assert reap(tmp_path / "r", timeout_s=PATIENCE_S) == ()


def test_a_line_that_was_cut_hides_none_before_it(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    program = start()
    register(tmp_path / "r", program)
    with open(tmp_path / "r", "ab") as file:
        file.write(b'{"type":"born","name":"x","pi')

    assert reap(tmp_path / "r", timeout_s=PATIENCE_S) == (program.pid,)


def test_a_register_stays_small_and_forgets_only_the_dead(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    living = start()
    found = Register(tmp_path / "r", Incarnation("dead"), most=10)
    found.add("worker-1", pid=living.pid, start_ticks=start_ticks(living.pid))

    for number in range(100):
        found.add("worker-2", pid=living.pid, start_ticks=number)

    assert len((tmp_path / "r").read_text().splitlines()) <= 12
    assert reap(tmp_path / "r", timeout_s=PATIENCE_S) == (living.pid,)


def test_a_register_that_is_removed_is_gone(tmp_path: Path) -> None:
    found = Register(tmp_path / "r", Incarnation("dead"))

    found.remove()

    assert list(tmp_path.iterdir()) == []
