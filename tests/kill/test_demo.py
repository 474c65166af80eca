"""The main job, as a user runs it: all views agree, also when a process of the fleet is killed half-way."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

COVEY = [sys.executable, "-P", "-m", "covey"]

pytestmark = [pytest.mark.kill, pytest.mark.slow]


@pytest.mark.parametrize("victim", [None, "broker", "ledger", "worker", "zygote"])
def test_the_three_views_agree(victim: str | None) -> None:
    kill = ["--kill", victim] if victim else []

    done = subprocess.run([*COVEY, "demo", "--json", *kill], capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["ok"] == said["children"] == 12
    assert said["provider"]["refused"] == 0
    assert said["provider"]["peak_in_flight"] <= said["limit"]
    assert said["broker"]["peak_leases"] <= said["limit"]
    assert all(check["ok"] for check in said["checks"])
    if victim is None:
        assert said["ledger"]["unknown_calls"] == 0
        assert said["ledger"]["calls"] == said["provider"]["calls"] == said["broker"]["granted"]
    assert said["ledger"]["prompt_tokens"] <= said["provider"]["prompt_tokens"]


def test_the_demo_is_readable_when_piped() -> None:
    done = subprocess.run(
        [*COVEY, "demo", "--children", "3", "--gateways", "1"], capture_output=True, text=True, timeout=100
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert "3 of 3 children done" in done.stdout
    assert "NO" not in done.stdout
