"""`covey bench storm`, small: the same programs on both sides, and the fleet's side keeps its promises."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest


def storm(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "covey", "bench", "storm", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110)


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    done = storm("--clients", "12", "--calls", "1", "--limit", "1", "--think-s", "0.05", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


@pytest.mark.slow
def test_through_the_fleet_every_call_is_answered_and_none_is_sent_twice(printed: dict[str, Any]) -> None:
    results = printed["results"]

    assert (results["covey_calls_answered"], results["covey_calls_failed"], results["covey_refused"]) == (12, 0, 0)
    assert (results["covey_prompt_tokens_in_vain"], results["covey_peak_in_flight"]) == (0, 1)
    assert all(bound["ok"] for bound in printed["bounds"])


@pytest.mark.slow
def test_alone_two_programs_with_a_limit_of_one_each_are_refused_and_send_their_prompts_again(
    printed: dict[str, Any],
) -> None:
    results = printed["results"]

    assert results["alone_calls_answered"] + results["alone_calls_failed"] == 12
    assert results["alone_refused"] == results["alone_refused_1302"] > 0
    assert results["alone_prompt_tokens_in_vain"] >= 8_000 * results["alone_refused"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--plot", "storm.svg"), "neither a .png file nor"),
        (("--clients", "0"), "--clients"),
        (("--mood", "sunny"), "--mood"),
    ],
    ids=["a plot in another format", "no clients", "an unknown mood"],
)
def test_what_it_cannot_do_is_refused_before_anything_runs(arguments: tuple[str, ...], problem: str) -> None:
    done = storm(*arguments)

    assert done.returncode == 2
    assert problem in done.stderr
