"""Families of models: which name belongs to which, and how long its silence may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.model_families import FLOORS_S, bare_name, family_floor_s, family_of


@pytest.mark.parametrize(
    ("model", "floor_s"),
    [
        pytest.param("deepseek-r1", 600, id="a name as it stands in the table"),
        pytest.param("deepseek-r1:free", 600, id="a colon ends a family"),
        pytest.param("deepseek-r1-0528", 600, id="so does a dash"),
        pytest.param("deepseek/deepseek-r1:free", 600, id="behind a vendor"),
        pytest.param("openrouter/deepseek/DeepSeek-R1", 600, id="behind two, in capitals"),
        pytest.param("us.anthropic.claude-opus-4-5-20251101-v1:0", 240, id="behind a region and a vendor"),
        pytest.param("o1", 600, id="a short name"),
        pytest.param("o1-pro", 600, id="a short name with more"),
        pytest.param("o100", 0, id="a number goes on: another name"),
        pytest.param("turbo-o1", 0, id="only at the start"),
        pytest.param("o3-pro", 600, id="the shorter family"),
        pytest.param("o3-mini", 300, id="the longer family"),
        pytest.param("grok-4-fast-reasoning", 300, id="grok thinks"),
        pytest.param("x-ai/grok-4.1-fast-non-reasoning", 180, id="grok does not"),
        pytest.param("claude-sonnet-4-5", 180, id="a dash where the table has a dot"),
        pytest.param("glm-5.2", 300, id="glm-5 in all its versions"),
        pytest.param("z-ai/glm-5-turbo", 180, id="but its turbo"),
        pytest.param("glm-4.6", 180, id="glm-4.6"),
        pytest.param("kimi-k2.5", 300, id="a kimi that thinks"),
        pytest.param("kimi-k2-0905-preview", 180, id="a kimi that does not"),
        pytest.param("qwen3:8b", 180, id="a local tag"),
        pytest.param("SmolLM2-135M-Instruct", 0, id="no family"),
        pytest.param("", 0, id="no name"),
    ],
)
def test_a_name_finds_the_floor_of_its_family(model: str, floor_s: float) -> None:
    assert family_floor_s(model, {}) == floor_s


@pytest.mark.parametrize(
    ("own", "floor_s"),
    [
        pytest.param({"glm": 45.0}, 45.0, id="a shorter family and a shorter time still come first"),
        pytest.param({"glm": 45.0, "glm-5": 50.0}, 50.0, id="the longest of the own ones"),
        pytest.param({"glm-5.2": 0.0}, 0.0, id="none at all"),
        pytest.param({"z-ai/glm-5": 70.0}, 70.0, id="named with its vendor"),
        pytest.param({"other/glm-5": 70.0}, 300.0, id="another vendor"),
        pytest.param({"glm-5.20": 70.0, "": 1.0}, 300.0, id="nothing that fits"),
    ],
)
def test_what_is_configured_comes_before_the_table(own: dict[str, float], floor_s: float) -> None:
    assert family_floor_s("z-ai/GLM-5.2", own) == floor_s


@pytest.mark.parametrize("family", FLOORS_S)
def test_every_family_finds_itself(family: str) -> None:
    assert family_of(f"vendor/{family}:free", FLOORS_S) == family


@given(st.text(), st.dictionaries(st.text(), st.floats(min_value=0, max_value=3600), max_size=4))
def test_no_name_is_too_odd(model: str, own: dict[str, float]) -> None:
    assert family_floor_s(model, own) >= 0
    assert "/" not in bare_name(model)
