"""Lists of models in the shapes that providers have, and in shapes that nobody should have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.model_listing import MOST_MODELS, Listed, Listing, Unlisted, read_listing, read_props
from covey.protocol.settings import ModelOverride, Price

OPENAI = {"id": "gpt-5", "object": "model", "created": 1, "owned_by": "openai"}
OPENROUTER = {
    "id": "z-ai/glm-5.2",
    "context_length": 1_048_576,
    "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
    "pricing": {"prompt": "0.0000014", "completion": "0.0000044", "input_cache_read": "0.00000026", "request": "0"},
    "top_provider": {"context_length": 1_000_000, "max_completion_tokens": 131_072, "is_moderated": False},
    "supported_parameters": ["max_tokens", "reasoning", "tools"],
}
ANTHROPIC = {
    "type": "model",
    "id": "claude-opus-5",
    "max_input_tokens": 1_000_000,
    "max_tokens": 128_000,
    "capabilities": {"image_input": {"supported": True}, "thinking": {"supported": True, "types": {}}},
}
LLAMA = {"id": "smollm2", "owned_by": "llamacpp", "meta": {"n_ctx_train": 8192, "n_params": 134_515_008}}
LM_STUDIO = {
    "id": "qwen",
    "type": "vlm",
    "state": "loaded",
    "max_context_length": 262_144,
    "loaded_context_length": 16_384,
    "capabilities": ["tool_use"],
}
MOONSHOT = {"id": "kimi-k2.5", "context_length": 262_144, "supports_image_in": True, "supports_reasoning": True}
MISTRAL = {"id": "m", "max_context_length": 131_072, "capabilities": {"function_calling": True, "vision": False}}


def only(item: dict[str, Any]) -> Listed:
    found = read_listing(json.dumps({"object": "list", "data": [item]}).encode())
    assert isinstance(found, Listing)
    (one,) = found.models
    return one


@pytest.mark.parametrize(
    ("item", "facts"),
    [
        pytest.param(OPENAI, ModelOverride(), id="names alone"),
        pytest.param(
            OPENROUTER,
            ModelOverride(
                context_window=1_000_000,
                max_output_tokens=131_072,
                has_tools=True,
                has_images=False,
                has_reasoning=True,
            ),
            id="OpenRouter: what is served before what could be",
        ),
        pytest.param(
            ANTHROPIC,
            ModelOverride(context_window=1_000_000, max_output_tokens=128_000, has_images=True, has_reasoning=True),
            id="Anthropic",
        ),
        pytest.param({"id": "q", "max_model_len": 32_768}, ModelOverride(context_window=32_768), id="vLLM"),
        pytest.param(LLAMA, ModelOverride(context_window=8_192), id="llama.cpp"),
        pytest.param(
            LM_STUDIO,
            ModelOverride(context_window=16_384, has_tools=True, has_images=True),
            id="LM Studio: as it was loaded",
        ),
        pytest.param(
            {**LM_STUDIO, "state": "not-loaded"},
            ModelOverride(has_tools=True, has_images=True),
            id="LM Studio, not loaded",
        ),
        pytest.param(
            MOONSHOT, ModelOverride(context_window=262_144, has_images=True, has_reasoning=True), id="Moonshot"
        ),
        pytest.param(MISTRAL, ModelOverride(context_window=131_072, has_tools=True, has_images=False), id="Mistral"),
        pytest.param(
            {"id": "g", "context_window": 131_072, "max_completion_tokens": 8_192},
            ModelOverride(context_window=131_072, max_output_tokens=8_192),
            id="Groq",
        ),
        pytest.param({"id": "x", "max_tokens": 5}, ModelOverride(), id="a word that means other things elsewhere"),
        pytest.param({"id": "x", "context_length": 1_023}, ModelOverride(), id="too small a window"),
        pytest.param({"id": "x", "context_length": 10_000_001}, ModelOverride(), id="too large a window"),
        pytest.param({"id": "x", "context_length": True}, ModelOverride(), id="a yes is no number"),
        pytest.param({"id": "x", "context_length": "8192"}, ModelOverride(), id="nor is text"),
        pytest.param(
            {"id": "x", "meta": None, "top_provider": 3, "capabilities": "all"}, ModelOverride(), id="odd kinds"
        ),
    ],
)
def test_a_model_is_read_in_every_shape(item: dict[str, Any], facts: ModelOverride) -> None:
    assert only(item).facts == facts


def test_a_price_for_a_token_becomes_one_for_a_million() -> None:
    assert only(OPENROUTER).price == Price(input=1.4, output=4.4, cache_read=0.26)


@pytest.mark.parametrize(
    "pricing",
    [
        pytest.param({"prompt": "-1", "completion": "-1"}, id="a router that chooses"),
        pytest.param({"prompt": "0.1"}, id="half a price"),
        pytest.param({"prompt": "nan", "completion": "inf"}, id="no numbers"),
        pytest.param({"input": 0.2, "output": 0.4}, id="another unit"),
        pytest.param("free", id="a word"),
    ],
)
def test_a_price_that_is_not_understood_is_none(pricing: object) -> None:
    assert only({"id": "x", "pricing": pricing}).price is None


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        pytest.param([{"id": "a"}], ["a"], id="bare"),
        pytest.param({"models": [{"key": "a"}, {"name": "b"}]}, ["a", "b"], id="under models"),
        pytest.param(
            {"data": [{"id": "a"}, 3, {}, {"id": ""}, {"id": "b\n"}, {"id": "c\0d"}]}, ["a", "b"], id="odd entries"
        ),
        pytest.param({"data": [{"id": "a"}, {"id": "b"}, {"id": "a"}]}, ["a", "b"], id="one twice"),
        pytest.param({"data": []}, [], id="none"),
    ],
)
def test_the_list_is_found_where_it_is(answer: object, names: list[str]) -> None:
    found = read_listing(json.dumps(answer).encode())

    assert isinstance(found, Listing)
    assert [one.name for one in found.models] == names


def test_the_first_of_two_with_one_name_counts() -> None:
    found = read_listing(b'[{"id": "a", "max_model_len": 2048}, {"id": "a", "max_model_len": 4096}]')

    assert isinstance(found, Listing)
    assert [one.facts.context_window for one in found.models] == [2048]


def test_a_list_without_end_is_cut() -> None:
    found = read_listing(json.dumps([{"id": str(number)} for number in range(MOST_MODELS + 5)]).encode())

    assert isinstance(found, Listing)
    assert len(found.models) == MOST_MODELS


def test_the_server_is_named_if_all_entries_say_the_same() -> None:
    alike = read_listing(json.dumps([LLAMA, {**LLAMA, "id": "b"}]).encode())
    mixed = read_listing(json.dumps([LLAMA, OPENAI]).encode())

    assert isinstance(alike, Listing)
    assert isinstance(mixed, Listing)
    assert (alike.server, mixed.server) == ("llamacpp", None)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"data": {}}', b"3", b"\xff", b"[" * 100_000])
def test_what_is_no_list_is_said_to_be_none(body: bytes) -> None:
    assert isinstance(read_listing(body), Unlisted)


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (b'{"default_generation_settings": {"n_ctx": 2048}}', 2048),
        (b'{"default_generation_settings": {"n_ctx": 300}}', 300),
        (b'{"default_generation_settings": 3}', None),
        (b'{"default_generation_settings": {"n_ctx": true}}', None),
        (b"[]", None),
        (b"no json", None),
    ],
)
def test_props_say_the_window_of_a_call(body: bytes, size: int | None) -> None:
    assert read_props(body) == size


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(sorted({*OPENROUTER, *LM_STUDIO, *ANTHROPIC})), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_no_answer_raises(answer: object) -> None:
    read_listing(json.dumps({"data": [answer]}).encode())
    read_listing(json.dumps(answer).encode())
    read_props(json.dumps(answer).encode())
