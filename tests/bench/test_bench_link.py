"""`covey bench link` measures everything it promises beside the floors of the same run, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def report() -> dict[str, dict[str, float]]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "covey", "bench", "link", "--quick", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COVEY_TEST": "bench-link"},
    )
    # 1 says that a bound did not hold: on a busy machine that is its right. Anything else is a fault.
    assert done.returncode in (0, 1), done.stderr
    assert not done.stderr
    parsed: dict[str, dict[str, float]] = json.loads(done.stdout)
    return parsed


def test_every_figure_is_there_and_positive(report: dict[str, dict[str, float]]) -> None:
    results = report["results"]
    for name in ("round_trip_p50_us", "round_trip_p99_us", "pipelined_per_s", "tells_per_s", "reconnect_p50_ms"):
        assert results[name] > 0, name


def test_the_floor_was_measured_in_the_same_run(report: dict[str, dict[str, float]]) -> None:
    floors = report["floors"]
    for name in ("bare_round_trip_p50_us", "bare_round_trip_p99_us", "bare_pipelined_per_s", "loop_round_trip_p50_us"):
        assert floors[name] > 0, name


def test_no_tell_is_lost_on_a_connection_that_holds(report: dict[str, dict[str, float]]) -> None:
    bounds = {bound["name"]: bound for bound in report["bounds"]}  # type: ignore[call-overload,index]

    assert bounds["tells_lost"]["value"] == 0
    assert {"round_trip_p50_ratio", "pipelined_share", "reconnect_p50_ms"} <= bounds.keys()


def test_nothing_is_left_running(report: dict[str, dict[str, float]]) -> None:
    def is_ours(pid: str) -> bool:
        try:
            return b"COVEY_TEST=bench-link\0" in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and is_ours(pid)]
