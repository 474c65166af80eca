"""What every benchmark prints: figures, the floors of the same run, and the bounds they must keep.

Units are part of the names (`wait_p99_ms`). A bound on a time is a ratio to a floor of the same run, so that it
holds on a slow machine too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec
from rich.table import Table

from ..supervisor.cli.output import console, print_json, table
from .machine import Machine

Figure = float | int | str | None
"""One result; None is a figure that could not be measured."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A promise about a figure and whether it held. A value that is None or NaN never holds."""

    name: str
    value: float | int | None
    limit: float | int
    ok: bool


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one benchmark."""

    bench: str
    machine: Machine
    results: Mapping[str, Figure]
    floors: Mapping[str, Figure] = {}
    bounds: tuple[Bound, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every bound was kept."""
        return all(bound.ok for bound in self.bounds)


def at_most(name: str, value: float | None, limit: float) -> Bound:
    """A bound from above."""
    return Bound(name=name, value=value, limit=limit, ok=value is not None and value <= limit)


def at_least(name: str, value: float | None, limit: float) -> Bound:
    """A bound from below."""
    return Bound(name=name, value=value, limit=limit, ok=value is not None and value >= limit)


def quantile(values: Iterable[float], q: float) -> float:
    """The smallest value that at least the share `q` of `values` does not exceed (nearest rank); NaN for none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    # Rounded first: 0.07 * 100 is a hair above 7, and the ceiling of that would be one rank too far.
    rank = math.ceil(round(q * len(ordered), 9))
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def median(values: Iterable[float]) -> float:
    """The middle value, the lower of the two middle ones; NaN for none."""
    return quantile(values, 0.5)


def p99(values: Iterable[float]) -> float:
    """The value that 99 of 100 do not exceed; NaN for none."""
    return quantile(values, 0.99)


def distribution(name: str, unit: str, values: Iterable[float]) -> dict[str, Figure]:
    """Median, p99 and the extremes of `values` as results: `NAME_p50_UNIT` and so on."""
    seen = sorted(values)
    figures = {"p50": median(seen), "p99": p99(seen), "min": quantile(seen, 0.0), "max": quantile(seen, 1.0)}
    return {f"{name}_{which}_{unit}": value for which, value in figures.items()}


def emit(report: Report, as_json: bool) -> int:
    """Print the report on standard output; the command's exit code: 1 when a bound does not hold, else 0."""
    if as_json:
        print_json(report)
    else:
        _print_tables(report)
    return 0 if report.holds else 1


def _print_tables(report: Report) -> None:
    out, machine = console(), report.machine
    out.print(
        f"bench {report.bench} on {machine.cpus} CPUs ({machine.cpu_model}), {machine.mem_mb} MiB, "
        f"{machine.kernel}, {machine.python}",
        markup=False,
    )
    for kind, figures in (("result", report.results), ("floor", report.floors)):
        if figures:
            out.print(_figures_table(kind, figures))
    if report.bounds:
        out.print(_bounds_table(report.bounds))


def _figures_table(kind: str, figures: Mapping[str, Figure]) -> Table:
    rows = table(kind, ">value")
    for name, value in figures.items():
        rows.add_row(name, _shown(value))
    return rows


def _bounds_table(bounds: tuple[Bound, ...]) -> Table:
    rows = table("bound", ">value", ">limit", "holds")
    for bound in bounds:
        verdict = "[green]yes[/green]" if bound.ok else "[bold red]NO[/bold red]"
        rows.add_row(bound.name, _shown(bound.value), _shown(bound.limit), verdict)
    return rows


def _shown(value: Figure) -> str:
    if value is None:
        return "unknown"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
