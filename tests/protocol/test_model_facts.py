"""What is known of a model: whose word counts, which name means which row, and what is never guessed."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.model_facts import CONFIGURED, NOTHING, ModelFacts, is_own_machine, model_facts, names_at
from covey.protocol.model_table import SHELVES, Row, Shelf
from covey.protocol.settings import ZAI_BASE_URL, ModelOverride, Price, ProviderSettings

PAID_ZAI = "https://api.z.ai/api/paas/v4"
ROUTER = "https://openrouter.ai/api/v1"
HERE = "http://127.0.0.1:8080/v1"
ANTHROPIC = "https://api.anthropic.com"
ROWS = [row for shelf in SHELVES for row in shelf.rows]


def at(base_url: str, model: str) -> ModelFacts:
    return model_facts(ProviderSettings(name="any", base_url=base_url), model)


@pytest.mark.parametrize(
    ("base_url", "model", "window", "cap"),
    [
        pytest.param(ZAI_BASE_URL, "glm-5.2", 1_000_000, 131_072, id="at its vendor"),
        pytest.param("https://open.bigmodel.cn/api/paas/v4", "GLM-4.6", 204_800, 131_072, id="in capitals"),
        pytest.param(ROUTER, "z-ai/glm-4.6:free", 204_800, 131_072, id="at a router, with vendor and tag"),
        pytest.param(ROUTER, "anthropic/claude-opus-4.5", 200_000, 64_000, id="a dot for a dash"),
        pytest.param(ANTHROPIC, "claude-sonnet-4-5-20250929", 200_000, 64_000, id="a dated version"),
        pytest.param(
            "https://bedrock-runtime.us-east-1.amazonaws.com",
            "us.anthropic.claude-opus-4-5-20251101-v1:0",
            200_000,
            64_000,
            id="behind a region",
        ),
        pytest.param("https://api.openai.com/v1", "gpt-4o-2024-05-13", 128_000, 4_096, id="a version with its own row"),
        pytest.param("https://api.openai.com/v1", "gpt-4o-2024-08-06", 128_000, 16_384, id="a version without one"),
        pytest.param("https://api.kimi.com/coding/v1", "kimi-k2-thinking", 262_144, 32_768, id="the host decides"),
        pytest.param("https://api.moonshot.ai/v1", "kimi-k2-thinking", 262_144, 262_144, id="the other host decides"),
        pytest.param("no host", "gpt-5", 400_000, 128_000, id="without a host"),
        pytest.param(HERE, "anthropic/claude-opus-4-5", 200_000, 64_000, id="a proxy here to closed weights"),
        pytest.param(HERE, "glm-4.6", None, None, id="open weights here: their server decides"),
        pytest.param("http://10.0.0.7/v1", "qwen3.6-27b", None, None, id="open weights in a private network"),
        pytest.param(HERE, "SmolLM2-135M-Instruct-Q4_K_M.gguf", 8_192, None, id="a family"),
        pytest.param(HERE, "smollm20", None, None, id="no member of it"),
        pytest.param(ZAI_BASE_URL, "glm-5.9", None, None, id="a model that nobody knows"),
        pytest.param(ZAI_BASE_URL, "glm-5.2-experimental", None, None, id="what may be another model"),
        pytest.param("https://api.openai.com/v1", "o1-preview", 128_000, 32_768, id="a preview that was another model"),
        pytest.param(ROUTER, "z-ai/glm-4.6:extended", None, None, id="a tag that changes the window"),
        pytest.param("https://api.x.ai/v1", "grok-4.5", 500_000, None, id="one value that is not known"),
        pytest.param("https://evil.example/api.z.ai", "unheard-of", None, None, id="a host in a path"),
    ],
)
def test_a_name_has_the_window_and_the_cap_of_its_row(
    base_url: str, model: str, window: int | None, cap: int | None
) -> None:
    found = at(base_url, model)

    assert (found.context_window, found.max_output_tokens) == (window, cap)


def test_what_a_model_can_do_holds_wherever_it_runs() -> None:
    found = at(HERE, "z-ai/glm-4.5v")

    assert (found.has_tools, found.has_images, found.has_reasoning) == (True, True, True)
    assert at(ZAI_BASE_URL, "glm-4.6").has_images is False


@pytest.mark.parametrize(
    ("base_url", "model", "has_price"),
    [
        pytest.param(PAID_ZAI, "glm-4.6", True, id="where it is billed so"),
        pytest.param(ANTHROPIC, "claude-opus-5", True, id="at a vendor with one kind of account"),
        pytest.param(ZAI_BASE_URL, "glm-4.6", False, id="a plan"),
        pytest.param("https://open.bigmodel.cn/api/paas/v4", "glm-4.6", False, id="another currency"),
        pytest.param(ROUTER, "z-ai/glm-4.6", False, id="another seller"),
        pytest.param(HERE, "glm-4.6", False, id="one's own machine"),
        pytest.param("https://api.anthropic.com.example.org", "claude-opus-5", False, id="a look-alike"),
    ],
)
def test_the_table_has_prices_only_for_who_bills_by_them(base_url: str, model: str, has_price: bool) -> None:
    found = at(base_url, model)

    assert (found.price is not None, found.price_source is not None) == (has_price, has_price)
    assert found.source is not None


def test_what_is_configured_comes_before_the_table_value_by_value() -> None:
    price = Price(input=1, output=2)
    own = ModelOverride(context_window=50_000, has_images=True)
    provider = ProviderSettings(name="z", base_url=PAID_ZAI, models={"GLM-5.2": own}, prices={"glm-5.2": price})

    found = model_facts(provider, "glm-5.2")

    assert (found.context_window, found.max_output_tokens, found.has_images) == (50_000, 131_072, True)
    assert (found.source, found.as_of, found.price, found.price_source) == (CONFIGURED, None, price, CONFIGURED)
    assert model_facts(provider, "glm-4.6") == at(PAID_ZAI, "glm-4.6")


def test_an_override_that_says_nothing_changes_nothing() -> None:
    provider = ProviderSettings(name="z", base_url=PAID_ZAI, models={"glm-5.2": ModelOverride()})

    assert model_facts(provider, "glm-5.2") == at(PAID_ZAI, "glm-5.2")


def test_what_nobody_knows_is_none() -> None:
    assert at(ROUTER, "unheard-of") == NOTHING


@given(st.one_of(st.text(), st.sampled_from(["glm-5.2", "a/b.c:d", "-", "us.", "gpt-5-"])), st.text())
def test_no_name_and_no_url_is_too_odd(model: str, base_url: str) -> None:
    found = at(base_url, model)

    assert found.source is not None or found == NOTHING


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_says_where_it_is_from_and_makes_sense(row: Row) -> None:
    window, cap = row.context_window, row.max_output_tokens

    assert row.source.place
    assert date(2026, 1, 1) <= date.fromisoformat(row.source.as_of)
    assert row.can is None or set(row.can) <= set("tri")
    assert window is None or 1_024 <= window <= 10_000_000
    assert window is None or cap is None or 0 < cap <= window
    assert row.price is None or 0 <= (row.price.cache_read or 0) <= row.price.input <= row.price.output


@pytest.mark.parametrize("shelf", SHELVES, ids=lambda shelf: shelf.hosts[0])
def test_every_row_of_a_shelf_is_found_by_its_own_name(shelf: Shelf) -> None:
    names = [row.name for row in shelf.rows]
    found = [at(f"https://{shelf.hosts[0]}/v1", name) for name in names]

    assert len(set(names)) == len(names)
    assert [(one.context_window, one.source) for one in found] == [
        (row.context_window, row.source.place) for row in shelf.rows
    ]


def test_the_models_of_a_vendor_are_listed_for_its_hosts_alone() -> None:
    assert {"glm-4.5", "glm-4.5-air", "glm-4.7", "glm-5.3", "glm-5-turbo", "glm-5v-turbo"} <= set(
        names_at(ZAI_BASE_URL)
    )
    assert names_at(ROUTER) == names_at(None) == names_at(HERE) == ()


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost", True),
        ("ollama", True),
        ("192.168.1.4", True),
        ("fd00::1", True),
        ("box.local", True),
        ("api.z.ai", False),
        ("8.8.8.8", False),
    ],
)
def test_a_machine_of_one_s_own_is_told_by_its_address(host: str, is_own: bool) -> None:
    assert is_own_machine(host) == is_own
