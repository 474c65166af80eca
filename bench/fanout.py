"""`covey bench fanout`: what many children at once cost, beside a bare loop that does nothing but the calls."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .fanout_run import Fanout

IDEAL_RATIO = 1.5
MAX_THREADS = 25
MAX_PSS_MB = 120.0
BOUNDED_CHILDREN = 30
"""The bounds on threads and memory are promised for up to this many children."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("--children", type=_count, default=30, metavar="N", help="children of one swarm (default 30)")
    parser.add_argument(
        "--limit", type=_count, metavar="N", help="calls in flight allowed (default: as many as children)"
    )
    parser.add_argument(
        "--think-s", type=float, default=0.5, metavar="S", help="what the provider thinks (default 0.5)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure; exit code 1 if a bound does not hold."""
    import asyncio

    from .fanout_run import measure

    seen = asyncio.run(measure(children=args.children, limit=args.limit or args.children, think_s=args.think_s))
    # Afterwards: what prints the report is no part of what is measured.
    from .machine import describe
    from .report import Report, at_least, at_most, emit

    bounds = [
        at_least("children_ok", seen.children_ok, args.children),
        at_most("wall_per_ideal_ratio", seen.wall_s / seen.ideal_s, IDEAL_RATIO),
        at_most("provider_peak_in_flight", seen.peak_in_flight, args.limit or args.children),
        at_most("provider_refused", seen.refused, 0),
    ]
    if args.children <= BOUNDED_CHILDREN:
        bounds += [
            at_most("threads_peak", seen.peak.threads, MAX_THREADS),
            at_most("pss_peak_mb", seen.peak.pss_mb, MAX_PSS_MB),
        ]
    report = Report(
        bench="fanout", machine=describe(), results=_results(seen), floors=_floors(seen), bounds=tuple(bounds)
    )
    return emit(report, args.json)


def _results(seen: Fanout) -> dict[str, float | int | str | None]:
    return {
        "children": seen.children,
        "calls": seen.calls,
        "wall_s": round(seen.wall_s, 3),
        "fleet_cpu_s": round(seen.cpu_s, 3),
        "fleet_cpu_per_1000_calls_s": round(seen.cpu_s / max(1, seen.calls) * 1000, 2),
        "processes_peak": seen.peak.processes,
        "threads_peak": seen.peak.threads,
        "pss_peak_mb": seen.peak.pss_mb,
        "fds_peak": seen.peak.fds,
        "provider_peak_in_flight": seen.peak_in_flight,
    }


def _floors(seen: Fanout) -> dict[str, float | int | str | None]:
    return {
        "ideal_wall_s": round(seen.ideal_s, 3),
        "bare_loop_wall_s": round(seen.bare_wall_s, 3),
        "bare_loop_cpu_s": round(seen.bare_cpu_s, 3),
        "idle_fleet_pss_mb": seen.idle.pss_mb,
        "idle_fleet_threads": seen.idle.threads,
    }


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a count; it must be 1 or more")
    return value
