"""A report of usage: prices where none were recorded, coverage everywhere, and unknown never as 0."""

from __future__ import annotations

import importlib.util
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.errors import UsageError
from covey.protocol.messages.ledger import UsageBy, UsageRow, UsageRows, UsageSums
from covey.protocol.messages.pricing import PriceCell
from covey.protocol.peak_hours import QUARTER_S, peak_hours_of
from covey.protocol.settings import Price, ProviderSettings, Settings
from covey.supervisor.cli.usage_chart import COLUMNS, bar, bars, save
from covey.supervisor.cli.usage_json import as_json
from covey.supervisor.cli.usage_since import since_ms
from covey.supervisor.cli.usage_table import parts, remarks
from covey.supervisor.cli.usage_words import cost_words, coverage_words, credit_words, money, name_of, tokens_words
from covey.supervisor.usage_costs import Priced, price_cells
from covey.supervisor.usage_report import UsageReport, report

MILLION = 1_000_000
NOON = 1_764_504_000 // QUARTER_S
SETTINGS = Settings(
    providers={
        "p": ProviderSettings(
            name="p",
            base_url="http://p/v1",
            prices={"m": Price(input=1.0, output=10.0)},
            credits={
                "plan": Price(
                    input=690.0,
                    output=2400.0,
                    peak_hours=peak_hours_of("Mon-Fri 14:00-18:00 +08:00"),
                    off_peak_factor=0.5,
                )
            },
        )
    }
)


def cell(model: str, *, has_cost: bool = False, provider: str = "p", quarter: int = NOON, calls: int = 1) -> PriceCell:
    return PriceCell(
        key=model,
        provider=provider,
        model=model,
        quarter=quarter,
        has_cost=has_cost,
        calls=calls,
        input_tokens=MILLION,
        output_tokens=MILLION,
    )


def some_sums(calls: int = 4, unknown: int = 1, cost: float | None = None, known: int = 0) -> UsageSums:
    return UsageSums(
        calls=calls,
        unknown_calls=unknown,
        refused_calls=2,
        input_tokens=100,
        output_tokens=20,
        cache_read_tokens=1000,
        cache_write_tokens=10,
        reasoning_tokens=5,
        cost_usd=cost,
        cost_known_calls=known,
    )


def some_report(
    *rows: UsageRow,
    total: UsageSums | None = None,
    priced: dict[tuple[str | None, str | None], Priced] | None = None,
    by: UsageBy = UsageBy.MODEL,
    limit: int = 100,
) -> UsageReport:
    found = UsageRows(rows=rows, total=total or some_sums())
    return report(found, priced or {}, by=by, since_ms=None, limit=limit)


ROW = UsageRow(key="m", provider="p", sums=some_sums())


def text_of(*renderables: object) -> str:
    from io import StringIO

    from rich.console import Console

    out = Console(file=StringIO(), width=500)
    for renderable in renderables:
        out.print(renderable)
    assert isinstance(out.file, StringIO)
    return out.file.getvalue()


# --- prices ----------------------------------------------------------------------------------------------------------


def test_only_calls_without_a_recorded_cost_get_today_s_price() -> None:
    found = price_cells([cell("m", calls=2), cell("m", has_cost=True)], SETTINGS, by_model=True)

    assert found == {("m", "p"): Priced(cost_usd=pytest.approx(11.0), cost_calls=2)}


@pytest.mark.parametrize(
    "priceless", [cell("other"), cell("m", provider="gone")], ids=["no price for the model", "no such provider"]
)
def test_without_a_price_nothing_is_added(priceless: PriceCell) -> None:
    assert price_cells([priceless], SETTINGS, by_model=True) == {}


def test_a_plan_counts_every_call_of_its_models_by_the_hour() -> None:
    at_peak = int(datetime.fromisoformat("2026-11-30T15:00:00+08:00").timestamp()) // QUARTER_S
    at_night = int(datetime.fromisoformat("2026-11-30T03:00:00+08:00").timestamp()) // QUARTER_S
    cells = [cell("plan", quarter=at_peak, has_cost=True), cell("plan", quarter=at_night)]

    (priced,) = price_cells(cells, SETTINGS, by_model=False).values()

    assert (priced.credits, priced.credit_calls, priced.cost_usd) == (pytest.approx(3090.0 * 1.5), 2, None)


# --- the report ------------------------------------------------------------------------------------------------------


def test_recorded_costs_and_today_s_are_added_with_what_they_cover() -> None:
    row = UsageRow(key="m", provider="p", sums=some_sums(cost=0.5, known=1))
    found = some_report(row, total=row.sums, priced={("m", "p"): Priced(cost_usd=0.25, cost_calls=2)})

    for line in (found.lines[0], found.total):
        assert (line.cost_usd, line.cost_known_calls) == (0.75, 3)
    assert (found.lines[0].prompt_tokens, found.lines[0].completion_tokens) == (1110, 25)
    assert found.lines[0].coverage == 0.75


def test_one_row_more_than_asked_for_says_that_there_are_more() -> None:
    found = some_report(ROW, ROW, limit=1)

    assert (len(found.lines), found.is_complete) == (1, False)
    assert any("--limit" in line for line in remarks(found))


def test_what_is_not_known_is_said_and_never_shown_as_zero() -> None:
    nothing = UsageSums(calls=3, unknown_calls=3)
    found = some_report(UsageRow(key="m", provider="p", sums=nothing), total=nothing)

    (line,) = found.lines
    assert (tokens_words(line.prompt_tokens), cost_words(line), coverage_words(line)) == (
        "unknown",
        "unknown",
        "0 of 3",
    )
    assert text_of(*parts(found)).count("unknown") == 13
    assert as_json(found, home="/h", is_running=False)["rows"][0]["cost_usd"] is None


def test_the_table_has_every_row_the_total_and_credits_where_a_plan_counts() -> None:
    found = some_report(ROW, priced={("m", "p"): Priced(credits=7.0, credit_calls=3)})

    said = text_of(*parts(found))

    assert said.splitlines()[1].split()[:4] == ["p/m", "4", "3", "of"]
    assert said.splitlines()[2].split()[0] == "total"
    assert "7.00 for 3 of 4" in said
    assert "2 more were refused" in said
    assert credit_words(found.lines[0]) == "7.00 for 3 of 4"


def test_no_calls_are_no_table() -> None:
    found = some_report(total=UsageSums(calls=0))

    assert text_of(*parts(found)) == text_of(*bars(found)) == "no calls were recorded\n"
    assert as_json(found, home="/h", is_running=True)["total"]["coverage"] is None


@pytest.mark.parametrize(
    ("by", "name"), [(UsageBy.PROFILE, "(default)"), (UsageBy.SESSION, "(no session)"), (UsageBy.MODEL, "(no model)")]
)
def test_calls_that_name_none_have_a_row_of_their_own(by: UsageBy, name: str) -> None:
    found = some_report(UsageRow(key=None, sums=some_sums()), by=by)

    assert name_of(found.lines[0], by) == name


@pytest.mark.parametrize(
    ("usd", "words"),
    [(0.0, "$0.00"), (1234.5, "$1,234.50"), (0.25, "$0.2500"), (0.000034, "$0.000034"), (1e-9, "under $0.000001")],
)
def test_small_amounts_keep_their_digits(usd: float, words: str) -> None:
    assert money(usd) == words


# --- pictures --------------------------------------------------------------------------------------------------------


@given(top=st.integers(1, 10**12), data=st.data())
def test_a_bar_is_as_long_as_its_share_and_never_vanishes(top: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, top))

    assert (bar(value, top=top) == "") is (value == 0)
    assert abs(len(bar(value, top=top)) - value / top * COLUMNS) <= 1


def test_the_chart_has_a_bar_for_each_row() -> None:
    small = UsageRow(key="small", provider="p", sums=UsageSums(calls=1, input_tokens=1, output_tokens=0))

    said = text_of(*bars(some_report(ROW, small)))

    assert "█" * COLUMNS in said
    assert "1,135 + ?" in said
    assert "▏" in said


def test_a_png_is_written_or_matplotlib_asked_for(tmp_path: Path) -> None:
    picture = tmp_path / "usage.png"

    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(UsageError, match=r"covey\[plot\]"):
            save(some_report(ROW), picture)
    else:
        save(some_report(ROW), picture)
        assert picture.read_bytes().startswith(b"\x89PNG")


# --- since -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("24h", 86400), ("7d", 604_800), ("2w", 1_209_600)])
def test_a_span_is_counted_back_from_now(text: str, seconds: int) -> None:
    assert since_ms(text, now=2_000_000.0) == (2_000_000 - seconds) * 1000


def test_a_date_begins_at_midnight_here() -> None:
    assert since_ms("2026-01-31", now=0.0) == int(datetime(2026, 1, 31).astimezone().timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "d", "0d", "-1d", "7 days", "yesterday", "2026-13-01", "9999999d"])
def test_no_time_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(UsageError, match="24h"):
        since_ms(text, now=0.0)
