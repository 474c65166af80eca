"""Ctrl-C at `covey up`: the first ends in order, the second hurries, the third kills, whatever is stuck."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import House

pytestmark = pytest.mark.kill


def until(holds: Callable[[], bool], *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.01)


def up_in_front(house: House) -> subprocess.Popen[str]:
    """A fleet in the foreground that serves."""
    command = house.start("up")
    until(lambda: house.covey("status", "--json").returncode == 0 and house.status()["running"], within_s=20.0)
    return command


def test_the_first_interrupt_ends_the_fleet_in_order(house: House) -> None:
    command = up_in_front(house)

    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=20)

    assert command.returncode == 0
    assert "stopping" in said
    assert house.marked() == []


def test_the_third_interrupt_ends_a_fleet_whose_zygote_is_stuck(house: House) -> None:
    command = up_in_front(house)
    assert command.stderr is not None
    os.kill(house.pid_of("zygote"), signal.SIGSTOP)

    # Signals that arrive together are one: each is sent when the one before was heard.
    for words in ("stopping", "in a hurry", "killing what is left"):
        command.send_signal(signal.SIGINT)
        while words not in command.stderr.readline():
            assert command.poll() is None, "it ended before it was told to hurry"
    command.communicate(timeout=20)

    assert command.returncode == 0
    until(lambda: house.marked() == [], within_s=5.0)
