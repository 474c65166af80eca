"""`covey bench actors`: what an actor costs while it sleeps, when it is asked, and when it has to end at once."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .actors_run import Seen

MAX_IDLE_KIB: Final = 5.0
MAX_THREADS: Final = 3
MAX_ASK_RATIO: Final = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("--agents", type=_count, default=20_000, metavar="N", help="idle actors (default 20000)")
    parser.add_argument("--rounds", type=_count, default=20_000, metavar="N", help="asks and tells (default 20000)")
    parser.add_argument(
        "--backlog", type=_count, default=10_000, metavar="N", help="messages a stop has to overtake (default 10000)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure; exit code 1 if a bound does not hold."""
    import asyncio

    from .actors_run import measure
    from .machine import describe
    from .report import Report, at_most, emit, median

    seen = asyncio.run(measure(agents=args.agents, rounds=args.rounds, backlog=args.backlog))
    ratio = median(seen.ask_us) / median(seen.queue_us)
    bounds = (
        at_most("idle_agent_kib", round(seen.idle_kib, 2), MAX_IDLE_KIB),
        at_most("idle_threads", seen.threads, MAX_THREADS),
        at_most("ask_per_queue_p50_ratio", round(ratio, 2), MAX_ASK_RATIO),
    )
    report = Report(bench="actors", machine=describe(), results=_results(seen), floors=_floors(seen), bounds=bounds)
    return emit(report, args.json)


def _results(seen: Seen) -> dict[str, float | int | str | None]:
    from .report import distribution, p99

    return {
        "agents": seen.agents,
        "idle_agent_kib": round(seen.idle_kib, 2),
        "idle_threads": seen.threads,
        "idle_tasks": seen.tasks,
        "start_us": round(seen.start_us, 1),
        "stop_all_s": round(seen.stop_all_s, 3),
        "stop_us": round(seen.stop_all_s / seen.agents * 1e6, 1),
        **distribution("ask", "us", seen.ask_us),
        **distribution("ask_def", "us", seen.ask_def_us),
        "ask_per_queue_p99_ratio": round(p99(seen.ask_us) / p99(seen.queue_us), 2),
        "tells_per_s": round(seen.tells_per_s),
        "backlog": seen.backlog,
        **distribution("stop_behind_backlog", "ms", seen.stop_behind_ms),
        **distribution("down_behind_backlog", "ms", seen.down_behind_ms),
    }


def _floors(seen: Seen) -> dict[str, float | int | str | None]:
    from .report import distribution, median

    return {
        **distribution("queue_round_trip", "us", seen.queue_us),
        "queue_puts_per_s": round(seen.queue_puts_per_s),
        "task_with_queue_start_us": round(seen.task_start_us, 1),
        "stop_idle_p50_ms": median(seen.stop_idle_ms),
        "backlog_handled_ms": round(seen.backlog_handled_ms, 1),
    }


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a count; it must be 1 or more")
    return value
