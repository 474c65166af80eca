"""`covey bench link`: what the session between two processes costs, beside bare sockets that do the same."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .link_run import LinkRun, Plan

ROUND_TRIP_RATIO = 1.6
"""Median round trip through link and hub, per bare DEALER/ROUTER round trip of the same run.

Measured with a pause before each, because that is how a fleet asks. Back to back the bare sockets need a third of the
time (nobody ever falls asleep), two asyncio loops without any session on them half as much again, and a link is beyond
this ratio; both are among the figures.
"""
PIPELINED_SHARE = 0.6
"""Round trips per second with many under way, per bare ones."""
RECONNECT_MS = 250.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: for a look, not for figures")


def run(args: argparse.Namespace) -> int:
    """Measure; exit code 1 if a bound does not hold."""
    from ..supervisor.loops import run
    from .link_run import Plan, measure
    from .machine import describe
    from .report import Report, at_least, at_most, emit, median

    plan = Plan(rounds=2, slices=2, pipelined=2_000, tells=2_000, kills=2) if args.quick else Plan()
    seen = run(measure(plan))
    bounds = (
        at_most("round_trip_p50_ratio", median(seen.link_spaced) / median(seen.bare_spaced), ROUND_TRIP_RATIO),
        at_least("pipelined_share", median(seen.link_rates) / median(seen.bare_rates), PIPELINED_SHARE),
        at_most("tells_lost", seen.tells_lost, 0),
        at_most("reconnect_p50_ms", median(seen.reconnects) * 1000, RECONNECT_MS),
    )
    report = Report(bench="link", machine=describe(), results=_results(seen, plan), floors=_floors(seen), bounds=bounds)
    return emit(report, args.json)


def _results(seen: LinkRun, plan: Plan) -> dict[str, float | int | str | None]:
    from .report import distribution, median

    return {
        **_rounded(distribution("round_trip", "us", _us(seen.link_spaced))),
        "back_to_back_p50_us": round(median(_us(seen.link_trips)), 2),
        "back_to_back_p50_ratio": round(median(seen.link_trips) / median(seen.bare_trips), 2),
        "pipelined_per_s": round(median(seen.link_rates)),
        "pipelined_in_flight": plan.in_flight,
        "tells_per_s": round(median(seen.tell_rates)),
        "reconnects": len(seen.reconnects),
        **_rounded(distribution("reconnect", "ms", (seconds * 1e3 for seconds in seen.reconnects))),
    }


def _floors(seen: LinkRun) -> dict[str, float | int | str | None]:
    from .report import distribution, median

    return {
        **_rounded(distribution("bare_round_trip", "us", _us(seen.bare_spaced))),
        "loop_round_trip_p50_us": round(median(_us(seen.loop_spaced)), 2),
        "bare_back_to_back_p50_us": round(median(_us(seen.bare_trips)), 2),
        "loop_back_to_back_p50_us": round(median(_us(seen.loop_trips)), 2),
        "bare_pipelined_per_s": round(median(seen.bare_rates)),
    }


def _us(seconds: list[float]) -> list[float]:
    return [one * 1e6 for one in seconds]


def _rounded(figures: dict[str, float | int | str | None]) -> dict[str, float | int | str | None]:
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in figures.items()}
