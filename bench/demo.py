"""`covey demo`: see a swarm and several other programs share one provider account, and check the books afterwards."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .demo_run import Outcome, Scene


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("--children", type=_count, default=12, metavar="N", help="subagents in all (default 12)")
    parser.add_argument(
        "--gateways", type=int, default=3, metavar="N", help="other programs that share the account (default 3)"
    )
    parser.add_argument(
        "--limit", type=_count, default=2, metavar="N", help="calls in flight the account allows (default 2)"
    )
    parser.add_argument(
        "--kill", choices=("broker", "ledger", "worker", "zygote"), help="kill one process of this role half-way"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run; exit code 0 only if all views agree and nothing was refused."""
    import asyncio

    from ..protocol.errors import UsageError
    from ..supervisor.cli.live import LiveView, Row
    from ..supervisor.cli.output import print_json
    from .agreement import checks
    from .demo_run import Wish, run_demo

    if args.gateways < 0:
        raise UsageError(f"--gateways is {args.gateways}; it must be 0 or more")
    wish = Wish(children=args.children, gateways=args.gateways, limit=args.limit, kill=args.kill)
    with LiveView(wanted=not args.json) as view:

        def watch(scene: Scene) -> None:
            rows = [
                Row(name, name.split(".")[0], child.state, child.turn, child.tokens)
                for name, child in sorted(scene.children.items(), key=lambda item: _order(item[0]))
            ]
            view.show(rows, scene.shares())

        outcome = asyncio.run(run_demo(wish, watch))
    if args.json:
        print_json(as_json(outcome))
    else:
        _show(outcome)
    return 0 if all(check.ok for check in checks(outcome.views)) else 1


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The summary as documented in docs/demo.md."""
    from .agreement import checks

    views, totals, budget = outcome.views, outcome.totals, outcome.views.budget
    return {
        "children": views.children,
        "ok": views.children_ok,
        "limit": views.limit,
        "wall_s": round(outcome.wall_s, 3),
        "provider": {
            "calls": views.stats.calls,
            "peak_in_flight": views.stats.peak_in_flight,
            "refused": sum(views.stats.refused.values()),
            "prompt_tokens": views.stats.prompt_tokens,
            "completion_tokens": views.stats.completion_tokens,
        },
        "ledger": {
            "calls": totals.calls,
            "prompt_tokens": totals.prompt_tokens,
            "completion_tokens": totals.completion_tokens,
            "unknown_calls": totals.unknown_calls,
        },
        "broker": {
            "granted": budget.granted if budget else 0,
            "peak_leases": budget.peak_in_flight if budget else 0,
            "wait_p50_ms": budget.wait_p50_ms if budget else None,
            "wait_p99_ms": budget.wait_p99_ms if budget else None,
        },
        "peak": {
            "processes": outcome.peak.processes,
            "threads": outcome.peak.threads,
            "pss_mb": outcome.peak.pss_mb,
            "fds": outcome.peak.fds,
        },
        "killed": outcome.killed,
        "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in checks(views)],
        "failures": list(outcome.failures),
    }


def _show(outcome: Outcome) -> None:
    from ..supervisor.cli.output import console, table
    from .agreement import checks

    out = console()
    views, totals, budget = outcome.views, outcome.totals, outcome.views.budget
    out.print(
        f"{views.children_ok} of {views.children} children done in {outcome.wall_s:.1f} s, "
        f"{views.limit} calls in flight allowed for all programs together",
        highlight=False,
    )
    if outcome.killed:
        out.print(f"half-way, {outcome.killed}", highlight=False)
    rows = table("three views of the same calls", ">calls", ">at once", ">prompt tokens", ">completion tokens")
    stats = views.stats
    rows.add_row(
        "the provider counted",
        str(stats.calls),
        str(stats.peak_in_flight),
        str(stats.prompt_tokens),
        str(stats.completion_tokens),
    )
    if budget is not None:
        rows.add_row("the broker granted", str(budget.granted), str(budget.peak_in_flight), "", "")
    rows.add_row("the ledger stored", str(totals.calls), "", str(totals.prompt_tokens), str(totals.completion_tokens))
    out.print(rows)
    marks = table("", "check", "found")
    for check in checks(views):
        marks.add_row("[green]yes[/]" if check.ok else "[bold red]NO[/]", check.name, check.detail)
    out.print(marks)
    for failure in outcome.failures:
        out.print(failure, style="red", markup=False, highlight=False)
    peak = outcome.peak
    waits = ""
    if budget is not None and budget.wait_p50_ms is not None and budget.wait_p99_ms is not None:
        waits = f", waits p50 {budget.wait_p50_ms:.0f} ms, p99 {budget.wait_p99_ms:.0f} ms"
    out.print(
        f"at their peak all programs but the provider had {peak.processes} processes, {peak.threads} threads, "
        f"{peak.pss_mb:.0f} MB (PSS), {peak.fds} open files{waits}",
        highlight=False,
    )


def _order(name: str) -> tuple[str, int]:
    where, _, number = name.partition(".")
    return where, int(number) if number.isdigit() else 0


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a count; it must be 1 or more")
    return value
