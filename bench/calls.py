"""`covey bench calls`: what a provider call costs through slot, stream and account, beside a bare HTTP client's."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .whole import whole, whole_numbers

if TYPE_CHECKING:
    from .calls_run import CallsRun, Plan, Ways
    from .report import Bound

CPU_RATIO = 2.0
"""Processor time of a call, per call of a bare aiohttp client on the same loop; 1.3 is what we aim for."""
STREAM_KIB = 45.0
LAG_MS = 40.0
LAG_STREAMS = 1000
"""The loop's lag is promised for so many streams; with fewer it is only told."""
SSE_MB_PER_S = 150.0
SSE_RATIO = 3.0
"""Per httpx-sse: that is enough where the machine is slow."""

Figures = dict[str, float | int | str | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    add = parser.add_argument
    add("--json", action="store_true", help="print one JSON object")
    add("--streams", type=whole_numbers(1, 10_000), metavar="N,M", help="calls at once (default 200,1000)")
    add("--calls", type=whole(1, 100), metavar="N", help="of each stream, one after the other (default 1)")
    add("--quick", action="store_true", help="short answers, once: for a look, not for figures")


def run(args: argparse.Namespace) -> int:
    """Measure; exit code 1 if a bound does not hold. Raises `UsageError` without the libraries it compares with."""
    from dataclasses import replace

    from ..supervisor.loops import run
    from .calls_run import Plan, measure
    from .machine import describe
    from .report import Report, emit

    _check_libraries()
    plan = (
        Plan(streams=(20, 50), rounds=1, spread_s=0.05, think_s=0.05, gap_s=0.01, slices=2, slice_s=0.01)
        if args.quick
        else Plan()
    )
    plan = replace(plan, streams=args.streams or plan.streams, calls=args.calls or plan.calls)
    seen = run(measure(plan))
    results, floors = _figures(seen, plan)
    report = Report(bench="calls", machine=describe(), results=results, floors=floors, bounds=_bounds(seen))
    return emit(report, args.json)


def _check_libraries() -> None:
    from importlib.util import find_spec

    from ..protocol.errors import UsageError

    missing = [name for name in ("aiohttp", "httpx_sse") if find_spec(name) is None]
    if missing:
        names = " and ".join(name.replace("_", "-") for name in missing)
        raise UsageError(f"covey bench calls measures beside {names}, which is not here: pip install 'covey[bench]'")


def _bounds(seen: CallsRun) -> tuple[Bound, ...]:
    from .calls_client import Way
    from .report import at_least, at_most

    bounds = []
    for streams, ways in seen.ways.items():
        ours = ways[Way.COVEY]
        bounds.append(at_most(f"cpu_ratio_{streams}", ours.cpu_s / ways[Way.AIOHTTP].cpu_s, CPU_RATIO))
        bounds.append(at_most(f"kib_per_stream_{streams}", ours.kib_per_stream, STREAM_KIB))
        if streams >= LAG_STREAMS:
            bounds.append(at_most(f"loop_lag_p99_ms_{streams}", ours.late_p99_s * 1000, LAG_MS))
    speed = at_least("sse_mb_per_s", seen.reading.events_mb_per_s, SSE_MB_PER_S)
    if not speed.ok:
        speed = at_least("sse_ratio", seen.reading.events_mb_per_s / seen.reading.httpx_sse_mb_per_s, SSE_RATIO)
    return (*bounds, speed)


def _figures(seen: CallsRun, plan: Plan) -> tuple[Figures, Figures]:
    """Results and floors."""
    from .calls_client import Way
    from .report import p99

    read = seen.reading
    results: Figures = {"calls_per_stream": plan.calls, "rounds": plan.rounds}
    floors: Figures = {"ideal_call_s": round(plan.ideal_s, 3)}
    for streams, ways in seen.ways.items():
        ours = ways[Way.COVEY]
        results |= _of_way("covey", ours, streams) | _of_way("covey_unlimited", ways[Way.COVEY_UNLIMITED], streams)
        for way in (Way.AIOHTTP, Way.AIOHTTP_ASYNCIO, Way.BARE):
            results[f"cpu_ratio_to_{way}_{streams}"] = round(ours.cpu_s / ways[way].cpu_s, 2)
            floors |= _of_way(way, ways[way], streams)
    for way, cost in seen.bursts.items():
        figures = results if way is Way.COVEY else floors
        figures[f"{way}_burst_loop_lag_p99_ms_{max(plan.streams)}"] = round(p99(cost.late_s) * 1000, 2)
    results |= {
        "sse_mb_per_s": round(read.events_mb_per_s),
        "sse_each_event_mb_per_s": round(read.each_event_mb_per_s),
        "sse_ratio": round(read.events_mb_per_s / read.httpx_sse_mb_per_s, 2),
        "chat_chunk_us": round(read.chunk_us, 2),
        "strangers_cpus": round(seen.strangers_cpus, 2),
    }
    floors |= {
        "httpx_sse_mb_per_s": round(read.httpx_sse_mb_per_s),
        "httpx_sse_each_event_mb_per_s": round(read.httpx_sse_each_mb_per_s),
    }
    return results, floors


def _of_way(name: str, way: Ways, streams: int) -> Figures:
    return {
        f"{name}_cpu_s_per_1000_calls_{streams}": round(way.cpu_s, 3),
        f"{name}_call_p50_s_{streams}": round(way.call_p50_s, 3),
        f"{name}_call_p99_s_{streams}": round(way.call_p99_s, 3),
        f"{name}_wall_s_{streams}": round(way.wall_s, 2),
        f"{name}_loop_lag_p99_ms_{streams}": round(way.late_p99_s * 1000, 2),
        f"{name}_kib_per_stream_{streams}": round(way.kib_per_stream, 1),
    }
