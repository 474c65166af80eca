"""`covey bench restart` with small numbers: the shape of what it prints. The bounds are for the real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PROCESSES = ("root", "zygote", "ledger", "broker", "worker_1", "worker_2")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "covey", "bench", "restart", *arguments]
    environment = {**os.environ, "COVEY_TEST": "bench-restart"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    done = bench("--kills", "3", "--idle-s", "0.2", "--json")
    # 1 says that a bound did not hold: on a busy machine that is its right. Anything else is a fault.
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def test_a_killed_worker_is_replaced_and_no_restart_was_made_to_wait(report: dict[str, Any]) -> None:
    results = report["results"]

    assert results["kills"] == 3
    assert 0 < results["noticed_p50_ms"] < results["replaced_p50_ms"] <= results["replaced_max_ms"]
    assert results["restarts_made_to_wait"] == 0


def test_the_memory_of_an_idle_fleet_is_that_of_its_six_processes(report: dict[str, Any]) -> None:
    results = report["results"]

    each = [results[f"idle_{name}_pss_mb"] for name in PROCESSES]
    assert all(pss > 0 for pss in each)
    assert sum(each) == pytest.approx(results["idle_pss_mb"], abs=0.1)
    assert results["idle_threads"] >= len(PROCESSES)


def test_the_floor_was_measured_in_the_same_run(report: dict[str, Any]) -> None:
    assert 0 < report["floors"]["bare_fork_p50_ms"] < report["results"]["replaced_p50_ms"]
    assert report["floors"]["bare_fork_pss_mb"] > 0


def test_every_promise_is_a_bound(report: dict[str, Any]) -> None:
    bounds = {bound["name"]: bound["limit"] for bound in report["bounds"]}

    assert bounds == {
        "replaced_p50_ms": 60.0,
        "restarts_made_to_wait": 0,
        "idle_pss_mb": 60.0,
        "idle_cpu_percent": 0.5,
        "one_more_worker_pss_mb": 3.0,
    }


def test_nothing_is_left_running(report: dict[str, Any]) -> None:
    def is_ours(pid: str) -> bool:
        try:
            return b"COVEY_TEST=bench-restart\0" in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and is_ours(pid)]


@pytest.mark.parametrize("arguments", [("--kills", "0"), ("--idle-s", "0"), ("--idle-s", "nan")], ids=" ".join)
def test_numbers_it_cannot_run_with_are_refused(arguments: tuple[str, ...]) -> None:
    done = bench(*arguments)

    assert done.returncode == 2
    assert arguments[0] in done.stderr
