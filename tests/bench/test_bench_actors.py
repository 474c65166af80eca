"""`covey bench actors` with small numbers: the shape of what it prints. The bounds are for the real ones."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "covey", "bench", "actors", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_json_holds_results_beside_the_floors_of_the_same_run_and_the_three_bounds() -> None:
    done = bench("--agents", "500", "--rounds", "500", "--backlog", "1000", "--json")

    printed = json.loads(done.stdout)
    bounds = {bound["name"]: bound for bound in printed["bounds"]}
    assert done.stderr == ""
    assert printed["bench"] == "actors"
    assert {name: bound["limit"] for name, bound in bounds.items()} == {
        "idle_agent_kib": 5.0,
        "idle_threads": 3,
        "ask_per_queue_p50_ratio": 3.0,
    }
    assert done.returncode == (0 if all(bound["ok"] for bound in bounds.values()) else 1)
    assert (printed["results"]["agents"], printed["results"]["backlog"]) == (500, 1000)
    assert printed["results"]["idle_threads"] == 1
    assert printed["results"]["idle_tasks"] == 1
    figures = {**printed["results"], **printed["floors"]}
    expected = ["start_us", "stop_all_s", "tells_per_s", "queue_puts_per_s", "backlog_handled_ms", "stop_idle_p50_ms"]
    expected += [f"{what}_{which}_us" for what in ("ask", "ask_def", "queue_round_trip") for which in ("p50", "p99")]
    expected += [f"{what}_behind_backlog_p99_ms" for what in ("stop", "down")]
    assert {name for name in expected if not figures[name] > 0} == set()
    assert all(math.isfinite(figure) for figure in figures.values())


@pytest.mark.parametrize("arguments", [("--agents", "0"), ("--rounds", "many")], ids=" ".join)
def test_numbers_it_cannot_run_with_are_refused(arguments: tuple[str, ...]) -> None:
    done = bench(*arguments)

    assert done.returncode == 2
    assert arguments[0] in done.stderr
