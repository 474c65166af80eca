"""`covey bench broker`: what a slot costs, alone and in a crowd, beside bare sockets of the same run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .broker_run import BrokerRun

ACQUIRE_RATIO: Final = 1.6
"""Median from acquire to grant, per bare DEALER/ROUTER round trip. With a pause before each, because that is how a
fleet asks."""
ACQUIRE_P99_MS: Final = 2.0
HAND_OVER_P99_MS: Final = 1.5
PER_S: Final = 10_000
SHARE_OF_IDEAL: Final = 0.95
CROWD_RATIO: Final = 1.5
"""What a full queue may make of a decision and of an acquire: noise, but no growth with its length."""
WAITER_BYTES: Final = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: for a look, not for figures")


def run(args: argparse.Namespace) -> int:
    """Measure; exit code 1 if a bound does not hold."""
    from ..supervisor.loops import run
    from .broker_run import FEW, HOLD_S, Plan, measure
    from .machine import describe
    from .report import Report, at_least, at_most, emit, median, p99

    quick = Plan(slices=8, trips=25, stretch_s=0.5, waiters=1_000, probes=50, rules=200)
    plan = quick if args.quick else Plan()
    seen = run(measure(plan))
    crowded = seen.crowded
    bounds = (
        at_most("acquire_p50_ratio", _ratio(seen.acquire, seen.bare), ACQUIRE_RATIO),
        at_most("acquire_p99_ms", round(p99(seen.acquire) * 1e3, 3), ACQUIRE_P99_MS),
        at_most("hand_over_p99_ms", round(p99(seen.hand_overs) * 1e3, 3), HAND_OVER_P99_MS),
        at_least("acquire_release_per_s", round(seen.per_s), PER_S),
        at_least("shared_share_of_ideal", round(seen.shared_per_s * HOLD_S / FEW, 3), SHARE_OF_IDEAL),
        at_most("queued_ask_ratio", _ratio(seen.rules_many.ask, seen.rules_few.ask), CROWD_RATIO),
        at_most("queued_hand_over_ratio", _ratio(seen.rules_many.hand_over, seen.rules_few.hand_over), CROWD_RATIO),
        at_most("queued_refusal_ratio", _ratio(crowded.refused_full, crowded.refused_empty), CROWD_RATIO),
        at_most("queued_acquire_ratio", _ratio(crowded.granted_full, seen.acquire), CROWD_RATIO),
        at_most("waiter_rules_bytes", round(seen.rules_many.waiter_bytes), WAITER_BYTES),
    )
    floors = {name: _shown(value) for name, value in _floors(seen).items()}
    results = {name: _shown(value) for name, value in _results(seen, waiters=plan.waiters).items()}
    assert median(seen.bare) > 0, "a round trip takes time"
    return emit(Report(bench="broker", machine=describe(), results=results, floors=floors, bounds=bounds), args.json)


def _results(seen: BrokerRun, *, waiters: int) -> dict[str, float | int | str | None]:
    from .report import distribution, median

    crowded = seen.crowded
    return {
        **distribution("acquire", "us", _us(seen.acquire)),
        **distribution("hand_over", "us", _us(seen.hand_overs)),
        "hand_overs": len(seen.hand_overs),
        "acquire_release_per_s": seen.per_s,
        "acquire_release_broker_cpu_us": seen.broker_us,
        "shared_per_s": seen.shared_per_s,
        "shared_held_p50_ms": median(seen.shared_held) * 1e3,
        "waiters": waiters,
        "waiter_bytes": crowded.waiter_bytes,
        "waiter_rules_bytes": seen.rules_many.waiter_bytes,
        "queued_refusal_p50_us": median(_us(crowded.refused_full)),
        "queued_acquire_p50_us": median(_us(crowded.granted_full)),
        **distribution("queued_hand_over", "us", _us(crowded.hand_overs)),
        "queued_ask_rules_p50_us": median(_us(seen.rules_many.ask)),
        "queued_hand_over_rules_p50_us": median(_us(seen.rules_many.hand_over)),
        "load_before": seen.load_before,
        "cpus_used_by_others": seen.strangers_cpus,
    }


def _floors(seen: BrokerRun) -> dict[str, float | int | str | None]:
    from .broker_run import FEW, HOLD_S
    from .report import distribution, median

    return {
        **distribution("bare_round_trip", "us", _us(seen.bare)),
        "shared_ideal_per_s": FEW / HOLD_S,
        "refusal_p50_us": median(_us(seen.crowded.refused_empty)),
        "ask_rules_p50_us": median(_us(seen.rules_few.ask)),
        "hand_over_rules_p50_us": median(_us(seen.rules_few.hand_over)),
    }


def _ratio(seen: list[float], floor: list[float]) -> float:
    from .report import median

    return round(median(seen) / median(floor), 2)


def _us(seconds: list[float]) -> list[float]:
    return [one * 1e6 for one in seconds]


def _shown(value: float | int | str | None) -> float | int | str | None:
    return round(value, 2) if isinstance(value, float) else value
