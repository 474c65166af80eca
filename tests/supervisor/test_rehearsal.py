"""The rehearsal before the first fork: it warms, and nothing of it is left for the children to inherit."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, threading
from covey.actors.calls import exchange
from covey.supervisor import rehearsal
before = os.listdir("/proc/self/fd"), threading.active_count()
rehearsal.rehearse()
after = os.listdir("/proc/self/fd"), threading.active_count()
assert len(after[0]) == len(before[0]), after
assert after[1] == before[1] == 1, after
assert exchange._url.cache_info().hits == rehearsal.TIMES - 1, "the calls were played"
print("clean")
"""

UNANSWERED = """
from covey.supervisor import rehearsal
async def silent(reader, writer):
    await reader.read()
    writer.close()
rehearsal._answer = silent
rehearsal.DEADLINE_S = 0.3
rehearsal.rehearse()
print("went on")
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_no_thread_and_no_descriptor_outlives_it() -> None:
    assert run(PROGRAM) == "clean"


def test_a_rehearsal_that_fails_costs_only_the_warmth() -> None:
    assert run(UNANSWERED) == "went on"
