"""The shape that every benchmark prints."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bench.machine import describe
from covey.bench.report import Report, at_least, at_most, distribution, emit, median, p99, quantile

VALUES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=300)


def report(*, value: float | None = 1.0) -> Report:
    return Report(
        bench="fan[out]",
        machine=describe(),
        results={"wall_s": 2.5, "calls": 120, "lost": None, "mode": "warm"},
        floors={"ideal_s": 2.0},
        bounds=(at_most("wall_ratio", value, 1.5), at_least("agreement", 1, 1)),
    )


def test_json_is_one_line_with_the_five_parts(capsys: pytest.CaptureFixture[str]) -> None:
    code = emit(report(), as_json=True)

    out = capsys.readouterr().out
    assert (code, out.count("\n")) == (0, 1)
    printed = json.loads(out)
    assert printed.keys() == {"bench", "machine", "results", "floors", "bounds"}
    assert printed["results"] == {"wall_s": 2.5, "calls": 120, "lost": None, "mode": "warm"}
    assert printed["bounds"][0] == {"name": "wall_ratio", "value": 1.0, "limit": 1.5, "ok": True}


@pytest.mark.parametrize(
    ("value", "code"),
    [
        pytest.param(1.5, 0, id="at the bound holds"),
        pytest.param(1.5001, 1, id="over it does not"),
        pytest.param(math.nan, 1, id="NaN does not"),
        pytest.param(None, 1, id="unknown does not"),
    ],
)
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "tables"])
def test_the_exit_code_says_whether_every_bound_holds(value: float | None, code: int, as_json: bool) -> None:
    assert emit(report(value=value), as_json) == code


def test_at_least_is_a_bound_from_below() -> None:
    assert at_least("x", 2, 2).ok
    assert not at_least("x", 1.9, 2).ok
    assert not at_least("x", None, 2).ok
    assert not at_least("x", math.nan, 2).ok


def test_tables_show_every_figure_and_no_colour_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    emit(report(value=9.0), as_json=False)

    out = capsys.readouterr().out
    assert "\x1b" not in out
    for shown in ("fan[out]", "wall_s", "2.5", "unknown", "warm", "ideal_s", "wall_ratio", "NO", "yes"):
        assert shown in out


@given(VALUES, st.floats(0, 1))
def test_a_quantile_is_a_value_that_the_share_does_not_exceed(values: list[float], q: float) -> None:
    found = quantile(values, q)

    assert found in values
    assert sum(value <= found for value in values) >= q * len(values) - 1e-6
    assert sum(value < found for value in values) <= q * len(values) + 1e-6


def test_known_quantiles() -> None:
    hundred = [float(n) for n in range(1, 101)]

    assert (median(hundred), p99(hundred)) == (50.0, 99.0)
    assert (quantile(hundred, 0.07), quantile(hundred, 0), quantile(hundred, 1)) == (7.0, 1.0, 100.0)
    assert math.isnan(median([]))


def test_a_distribution_names_its_figures_with_their_unit() -> None:
    assert distribution("wait", "ms", [3.0, 1.0, 2.0]) == {
        "wait_p50_ms": 2.0,
        "wait_p99_ms": 3.0,
        "wait_min_ms": 1.0,
        "wait_max_ms": 3.0,
    }


def test_the_machine_is_described_without_its_name() -> None:
    import platform

    machine = describe()

    assert machine.cpus >= 1
    assert machine.mem_mb > 100
    assert machine.cpu_model
    described = f"{machine.cpus} {machine.cpu_model} {machine.kernel} {machine.python}"
    assert platform.node() not in described.split()
    assert machine.python.startswith("CPython 3.")
