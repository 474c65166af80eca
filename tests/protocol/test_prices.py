"""What calls cost: every token at its own price, and unknown stays unknown."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.peak_hours import peak_hours_of
from covey.protocol.prices import ceiling_usd, cost_usd, estimate_usd
from covey.protocol.settings import Price
from covey.protocol.usage import Usage

PRICE = Price(input=1.0, output=10.0, cache_read=0.1, cache_write=2.0)
MILLION = 1_000_000


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        pytest.param(Usage(input=MILLION, output=0), 1.0, id="input"),
        pytest.param(Usage(input=0, output=MILLION), 10.0, id="output"),
        pytest.param(Usage(input=0, output=0, reasoning=MILLION), 10.0, id="reasoning is output"),
        pytest.param(Usage(input=0, output=0, cache_read=MILLION), 0.1, id="from a cache"),
        pytest.param(Usage(input=0, output=0, cache_write=MILLION), 2.0, id="into a cache"),
        pytest.param(Usage(input=0, output=0), 0.0, id="nothing"),
    ],
)
def test_each_kind_of_token_has_its_price(usage: Usage, cost: float) -> None:
    assert cost_usd(usage, PRICE) == pytest.approx(cost)


def test_a_cache_without_a_price_costs_what_input_does() -> None:
    usage = Usage(input=0, output=0, cache_read=MILLION, cache_write=MILLION)

    assert cost_usd(usage, Price(input=3.0, output=1.0)) == pytest.approx(6.0)


def test_a_cache_for_an_hour_has_its_own_price_or_that_of_the_others() -> None:
    usage = Usage(input=0, output=0, cache_write=2 * MILLION, cache_write_1h=MILLION)

    assert cost_usd(usage, PRICE) == pytest.approx(4.0)
    assert cost_usd(usage, msgspec.structs.replace(PRICE, cache_write_1h=5.0)) == pytest.approx(7.0)


def test_a_price_for_each_call_is_charged_whatever_it_used() -> None:
    price = Price(input=0.0, output=0.0, request=1.0)

    assert cost_usd(Usage(input=9, output=9), price) == 1.0
    assert cost_usd(Usage(input=9, output=9), price, calls=7) == 7.0
    assert ceiling_usd(9, price) == 1.0


PEAK = peak_hours_of("Mon-Fri 14:00-18:00 +08:00")


@pytest.mark.parametrize(
    ("at", "cost"),
    [
        pytest.param("2026-11-30T05:59:59+00:00", 5.0, id="Monday before it begins there"),
        pytest.param("2026-11-30T06:00:00+00:00", 10.0, id="as it begins"),
        pytest.param("2026-11-30T09:59:59+00:00", 10.0, id="before it ends"),
        pytest.param("2026-11-30T10:00:00+00:00", 5.0, id="as it ends"),
        pytest.param("2026-11-28T07:00:00+00:00", 5.0, id="on a Saturday"),
    ],
)
def test_outside_of_peak_hours_it_costs_less(at: str, cost: float) -> None:
    price = Price(input=0.0, output=10.0, peak_hours=PEAK, off_peak_factor=0.5)

    found = cost_usd(Usage(input=0, output=MILLION), price, at=datetime.fromisoformat(at).timestamp())

    assert found == pytest.approx(cost)
    assert cost_usd(Usage(input=0, output=MILLION), price) == pytest.approx(10.0)


def test_unknown_usage_and_unknown_prices_are_no_costs() -> None:
    assert cost_usd(None, PRICE) is None
    assert cost_usd(Usage(input=1, output=1), None) is None
    assert estimate_usd(1, 1, None) is None
    assert ceiling_usd(1, None) is None


@given(counts=st.tuples(*[st.integers(0, MILLION)] * 5), prices=st.tuples(*[st.floats(0, 100)] * 4))
def test_no_split_of_the_tokens_costs_more_than_the_ceiling(counts: tuple[int, ...], prices: tuple[float, ...]) -> None:
    usage = Usage(input=counts[0], output=counts[1], cache_read=counts[2], cache_write=counts[3], reasoning=counts[4])
    price = Price(input=prices[0], output=prices[1], cache_read=prices[2], cache_write=prices[3])
    cost, ceiling = cost_usd(usage, price), ceiling_usd(usage.total_tokens, price)

    assert cost is not None
    assert ceiling is not None
    assert cost <= ceiling * (1 + 1e-9)
