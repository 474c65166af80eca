"""`covey bench restart`: how soon a killed worker is replaced, and what a fleet that has nothing to do takes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .restart_run import RestartRun

REPLACED_MS = 60.0
IDLE_PSS_MB = 60.0
"""Root, zygote, ledger, broker and two workers."""
IDLE_CPU_PERCENT = 0.5
"""Of one CPU, by the whole fleet."""
WORKER_PSS_MB = 3.0
"""What one idle worker more takes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("--kills", type=_count, default=20, metavar="N", help="workers killed (default 20)")
    parser.add_argument(
        "--idle-s", type=_seconds, default=5.0, metavar="S", help="how long the idle fleet is watched (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure; exit code 1 if a bound does not hold."""
    from .restart_run import measure

    seen = measure(kills=args.kills, idle_s=args.idle_s)
    from .machine import describe
    from .report import Report, at_most, emit, median

    bounds = (
        at_most("replaced_p50_ms", median(seen.replaced_ms), REPLACED_MS),
        at_most("restarts_made_to_wait", seen.waited, 0),
        at_most("idle_pss_mb", sum(seen.idle.pss_mb.values()), IDLE_PSS_MB),
        at_most("idle_cpu_percent", seen.idle.cpu_percent, IDLE_CPU_PERCENT),
        at_most("one_more_worker_pss_mb", seen.worker_pss_mb, WORKER_PSS_MB),
    )
    report = Report(bench="restart", machine=describe(), results=_results(seen), floors=_floors(seen), bounds=bounds)
    return emit(report, args.json)


def _results(seen: RestartRun) -> dict[str, float | int | str | None]:
    from .report import distribution, median

    idle = seen.idle
    return {
        "kills": len(seen.replaced_ms),
        **_rounded(distribution("replaced", "ms", seen.replaced_ms)),
        "noticed_p50_ms": round(median(seen.noticed_ms), 2),
        "restarts_made_to_wait": seen.waited,
        "idle_pss_mb": round(sum(idle.pss_mb.values()), 2),
        **{f"idle_{name.replace('-', '_')}_pss_mb": round(pss, 2) for name, pss in idle.pss_mb.items()},
        "one_more_worker_pss_mb": round(seen.worker_pss_mb, 2),
        "idle_cpu_percent": round(idle.cpu_percent, 3),
        "idle_threads": idle.threads,
    }


def _floors(seen: RestartRun) -> dict[str, float | int | str | None]:
    from .report import distribution

    return {**_rounded(distribution("bare_fork", "ms", seen.bare_ms)), "bare_fork_pss_mb": round(seen.bare_pss_mb, 2)}


def _rounded(figures: dict[str, float | int | str | None]) -> dict[str, float | int | str | None]:
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in figures.items()}


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a count; it must be 1 or more")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not a time; it must be more than 0 and at most 3600 seconds")
    return value
