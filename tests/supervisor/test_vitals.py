"""What `covey status` shows of a process's memory and threads, of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from covey.supervisor.vitals import Vitals, vitals

NAMED_STRANGELY = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, b"a) R 1 (b", 0, 0, 0)
print("named", flush=True)
sys.stdin.read()
"""


def test_memory_and_threads_of_a_running_process_are_seen() -> None:
    before = vitals(os.getpid())
    going = threading.Event()
    thread = threading.Thread(target=going.wait, args=(10,))
    thread.start()

    after = vitals(os.getpid())

    going.set()
    thread.join()
    assert before.rss_mb > 1.0
    assert after.threads == before.threads + 1


def test_a_name_that_looks_like_the_rest_of_the_line_misleads_nobody() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", NAMED_STRANGELY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "named\n"

        seen = vitals(child.pid)

        child.communicate()
    assert seen.threads == 1
    assert 1.0 < seen.rss_mb < 100.0


def test_a_process_that_is_gone_has_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    assert vitals(child.pid) == Vitals()
    assert vitals(0) == Vitals()
