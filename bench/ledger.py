"""`covey bench ledger`: what it costs to hand a record over and to have it kept, beside a bare loop that commits."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .ledger_run import LedgerRun

ENQUEUE_P50_US: Final = 10.0
ENQUEUE_P99_US: Final = 50.0
SHARE_OF_BARE: Final = 0.7
"""What many senders get kept per second, per second of a bare loop with groups as large."""
KEPT_P99_MS: Final = 20.0
KEPT_MAX_MS: Final = 50.0
LARGE_RATIO: Final = 1.5
"""What a gigabyte of state.db may make of the time until a record is kept: noise, but no growth with the file."""
WAL_MB: Final = 64.0
RESTART_MS: Final = 200.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: for a look, not for figures")


def run(args: argparse.Namespace) -> int:
    """Measure; exit code 1 if a bound does not hold."""
    import asyncio

    from .ledger_run import Plan, measure
    from .machine import describe
    from .report import Report, at_least, at_most, emit, median, p99

    quick = Plan(senders=3, rounds=1, flood_s=0.3, turns_s=0.4, large_bytes=16 << 20, restarts=1)
    seen = asyncio.run(measure(quick if args.quick else Plan()))
    bounds = (
        at_most("enqueue_p50_us", _round(median(seen.enqueue) * 1e6), ENQUEUE_P50_US),
        at_most("enqueue_p99_us", _round(p99(seen.enqueue) * 1e6), ENQUEUE_P99_US),
        at_least(
            "share_of_bare", _round(median(seen.rates) / median(bare.per_s for bare in seen.bare), 3), SHARE_OF_BARE
        ),
        at_most("kept_p99_ms", _round(p99(seen.kept) * 1e3), KEPT_P99_MS),
        at_most("kept_max_ms", _round(max(seen.kept) * 1e3), KEPT_MAX_MS),
        at_most("large_kept_p99_ratio", _round(p99(seen.large_kept) / p99(seen.kept)), LARGE_RATIO),
        at_most("wal_mb", _round(seen.wal_bytes / (1 << 20)), WAL_MB),
        at_most("restart_p50_ms", _round(median(seen.restarts) * 1e3), RESTART_MS),
    )
    report = Report(bench="ledger", machine=describe(), results=_results(seen), floors=_floors(seen), bounds=bounds)
    return emit(report, args.json)


def _results(seen: LedgerRun) -> dict[str, float | int | str | None]:
    from .report import distribution, median

    return {
        "records_per_s": round(median(seen.rates)),
        "records_per_s_beside_readers": round(seen.rate_beside_readers),
        "record_ledger_cpu_us": _round(median(seen.ledger_cpu) * 1e6),
        **_rounded(distribution("enqueue", "us", [one * 1e6 for one in seen.enqueue])),
        **_rounded(distribution("kept", "ms", [one * 1e3 for one in seen.kept])),
        "turns": len(seen.kept),
        "large_mb": round(seen.large_bytes / (1 << 20)),
        **_rounded(distribution("large_kept", "ms", [one * 1e3 for one in seen.large_kept])),
        **_rounded(distribution("restart", "ms", [one * 1e3 for one in seen.restarts])),
        "ledger_pss_mb": _round(seen.pss_mb),
        "idle_cpu_percent": _round(seen.idle_cpu_percent),
        "cpus_used_by_others": _round(seen.strangers_cpus),
    }


def _floors(seen: LedgerRun) -> dict[str, float | int | str | None]:
    from .report import median

    return {
        "bare_records_per_s": round(median(bare.per_s for bare in seen.bare)),
        "bare_record_cpu_us": _round(median(bare.cpu for bare in seen.bare) * 1e6),
    }


def _round(value: float, digits: int = 2) -> float:
    return round(value, digits)


def _rounded(figures: dict[str, float | int | str | None]) -> dict[str, float | int | str | None]:
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in figures.items()}
