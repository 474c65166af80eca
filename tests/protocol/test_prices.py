"""What calls cost: every token at its own price, and unknown stays unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
