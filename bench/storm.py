"""`covey bench storm`: many clients on one narrow account, each by itself and through a fleet, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .report import Figure, Report
    from .storm_run import Plan, Side, Storm

WEATHERS: Final = ("concurrency", "overload")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("--clients", type=_count, default=48, metavar="N", help="clients, six a program (default 48)")
    parser.add_argument("--calls", type=_count, default=3, metavar="N", help="calls of each client (default 3)")
    parser.add_argument("--limit", type=_count, default=2, metavar="N", help="calls the account bears (default 2)")
    parser.add_argument("--think-s", type=float, default=0.2, metavar="S", help="what one call takes (default 0.2)")
    parser.add_argument(
        "--mood",
        choices=WEATHERS,
        default=WEATHERS[0],
        help="1302 beyond the limit, or also 1305 to everybody for ten seconds (default concurrency)",
    )
    parser.add_argument("--plot", metavar="FILE.png|terminal", help="where to draw it (default: the terminal)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run both sides; exit code 1 if the fleet broke a promise."""
    import asyncio

    from ..supervisor.cli.output import print_json
    from .storm_chart import lines, save
    from .storm_run import Plan, Weather, measure

    picture = _picture(args.plot)
    plan = Plan(
        clients=args.clients, calls=args.calls, limit=args.limit, think_s=args.think_s, weather=Weather(args.mood)
    )
    storm = asyncio.run(measure(plan))
    report = _report(storm, plan)
    if args.json:
        print_json(report)
    else:
        _print(storm, report)
    if picture is not None:
        save(storm, picture)
    elif not args.json:
        print("\n".join(lines(storm)))
    return 0 if report.holds else 1


def _picture(plot: str | None) -> Path | None:
    """Where a PNG is wanted; refused before anything is measured if there can be none."""
    from importlib.util import find_spec

    from ..protocol.errors import UsageError
    from .storm_chart import NO_MATPLOTLIB

    if plot in (None, "terminal"):
        return None
    path = Path(plot or "")
    if path.suffix.lower() != ".png":
        raise UsageError(f"--plot {plot} is neither a .png file nor `terminal`")
    if find_spec("matplotlib") is None:
        raise UsageError(NO_MATPLOTLIB)
    return path


def _report(storm: Storm, plan: Plan) -> Report:
    from .machine import describe
    from .report import Report, at_most

    results: dict[str, Figure] = {"clients": plan.clients, "calls": plan.all_calls, "mood": plan.weather.value}
    for side in (storm.alone, storm.covey):
        results |= {f"{side.name}_{name}": value for name, value in _figures(side).items()}
    results["cpus_used_by_others"] = round(storm.strangers_cpus, 2)
    return Report(
        bench="storm",
        machine=describe(),
        results=results,
        floors={"ideal_wall_s": round(plan.ideal_s, 2)},
        bounds=(
            at_most("covey_peak_in_flight", storm.covey.tally.peak_in_flight, plan.limit),
            # A provider that refuses what is too much never shows a peak beyond its limit: this would.
            at_most("covey_refused_1302", storm.covey.tally.refused.get("1302", 0), 0),
            at_most("covey_calls_lost", plan.all_calls - storm.covey.answered, 0),
        ),
    )


def _figures(side: Side) -> dict[str, Figure]:
    return {
        "wall_s": round(side.wall_s, 2),
        "calls_answered": side.answered,
        "calls_failed": side.failed,
        "refused": side.refusals,
        **{f"refused_{code}": count for code, count in sorted(side.tally.refused.items())},
        "prompt_tokens_in_vain": side.tokens_in_vain,
        "prompt_tokens_answered": side.tally.tokens_in,
        "peak_in_flight": side.tally.peak_in_flight,
        "retries_per_min": round(side.retries_per_min, 1),
        "peak_requests_per_s": side.tally.peak_per_s,
    }


def _print(storm: Storm, report: Report) -> None:
    from ..supervisor.cli.output import console, table
    from .storm_chart import TITLES

    alone, covey = _figures(storm.alone), _figures(storm.covey)
    rows = table("", f">{TITLES['alone']}", f">{TITLES['covey']}")
    for name in {**alone, **covey}:
        rows.add_row(name.replace("_", " "), str(alone.get(name, 0)), str(covey.get(name, 0)))
    out = console()
    out.print(
        f"storm of {report.results['clients']} clients, {report.results['calls']} calls; "
        f"ideal {report.floors['ideal_wall_s']} s",
        markup=False,
    )
    out.print(rows)
    for bound in report.bounds:
        if not bound.ok:
            out.print(f"broken: {bound.name} is {bound.value}, promised {bound.limit}", markup=False)


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a count; it must be 1 or more")
    return value
