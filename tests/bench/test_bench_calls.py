"""`covey bench calls` with few streams: every way of making calls works, every figure is there, and nothing is left."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from covey.bench import calls
from covey.bench.calls_answer import PIECES, TEXT, LeastReader
from covey.protocol.dialects.chat_reader import ChatReader
from covey.protocol.errors import UsageError

STREAMS = (5, 12)
WAYS = ("covey", "covey_unlimited")
FLOORS = ("aiohttp", "aiohttp_asyncio", "bare")
FIGURES = ("cpu_s_per_1000_calls", "call_p50_s", "call_p99_s", "wall_s", "loop_lag_p99_ms")


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    argv = ["bench", "calls", "--quick", "--streams", ",".join(map(str, STREAMS)), "--calls", "2", "--json"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "covey", *argv],
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, "COVEY_TEST": "bench-calls"},
    )
    # 1 says that a bound did not hold: with so few streams that is its right. Anything else is a fault.
    assert done.returncode in (0, 1), done.stderr
    assert not done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if all(bound["ok"] for bound in parsed["bounds"]) else 1)
    return parsed


@pytest.mark.slow
def test_every_way_is_measured_with_every_number_of_streams(report: dict[str, Any]) -> None:
    for kind, ways in (("results", WAYS), ("floors", FLOORS)):
        wanted = {f"{way}_{figure}_{streams}" for way in ways for figure in FIGURES for streams in STREAMS}
        assert wanted <= report[kind].keys()
        assert {name for name in wanted if not math.isfinite(report[kind][name])} == set()


@pytest.mark.slow
def test_a_call_takes_its_time_and_the_second_of_a_stream_comes_after_the_first(report: dict[str, Any]) -> None:
    ideal_s = report["floors"]["ideal_call_s"]
    figures = {**report["results"], **report["floors"]}

    for way in (*WAYS, *FLOORS):
        # The provider looks at its clock in ticks of two milliseconds.
        assert figures[f"{way}_call_p50_s_{STREAMS[0]}"] > ideal_s - 0.005
        assert figures[f"{way}_wall_s_{STREAMS[0]}"] > 2 * ideal_s - 0.01


@pytest.mark.slow
def test_the_bounds_are_those_that_are_promised(report: dict[str, Any]) -> None:
    limits = {bound["name"]: bound["limit"] for bound in report["bounds"]}

    assert {limits.pop("sse_mb_per_s", 150), limits.pop("sse_ratio", 3)} == {150, 3}
    assert limits == {
        **{f"cpu_ratio_{streams}": 2 for streams in STREAMS},
        **{f"kib_per_stream_{streams}": 45 for streams in STREAMS},
    }


@pytest.mark.slow
def test_nothing_is_left_running(report: dict[str, Any]) -> None:
    def is_ours(pid: str) -> bool:
        try:
            return b"COVEY_TEST=bench-calls\0" in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and is_ours(pid)]


@pytest.mark.parametrize("size", [1, 7, 1460, 10_000])
def test_both_readers_find_the_same_answer_in_any_pieces(size: int) -> None:
    body, least, ours = b"".join(PIECES), LeastReader(), ChatReader()

    for start in range(0, len(body), size):
        least.feed(body[start : start + size])
        ours.feed(body[start : start + size])

    least.check()
    answer = ours.close()
    assert (answer.complete, answer.text) == (True, TEXT)


def test_an_answer_that_was_cut_is_not_counted() -> None:
    reader = LeastReader()

    reader.feed(b"".join(PIECES[:-1]))

    with pytest.raises(RuntimeError, match="did not come"):
        reader.check()


def test_without_the_libraries_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)

    with pytest.raises(UsageError, match=r"beside aiohttp, .*pip install 'covey\[bench\]'"):
        calls._check_libraries()
