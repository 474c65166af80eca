"""What is known of targets: by host, dialect, model, configuration."""

from __future__ import annotations

from typing import Any

import pytest

from covey.protocol.dialects.ask import Layout, Thinking, Traits
from covey.protocol.model_versions import claude_of, glm_of, gpt_of
from covey.protocol.settings import Dialect, ModelOverride, PromptCache, ProviderSettings
from covey.protocol.traits import traits_of

OPENAI = "https://api.openai.com/v1"
ROUTER = "https://openrouter.ai/api/v1"
ZAI = "https://api.z.ai/api/coding/paas/v4"
CLAUDE = "claude-sonnet-4-5-20250929"


def traits(base_url: str, model: str, dialect: Dialect = Dialect.CHAT, **more: Any) -> Traits:
    return traits_of(ProviderSettings(name="p", base_url=base_url, dialect=dialect, **more), model)


@pytest.mark.parametrize(
    "base_url",
    [
        "http://127.0.0.1:8080/v1",
        "https://llm.example/v1",
        "https://openai.com.llm.example/v1",
        "https://notopenai.com/v1",
        "https://llm.example/openrouter.ai/api.openai.com",
        "https://api.openai.com@llm.example/v1",
    ],
)
@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.RESPONSES])
def test_a_target_that_nobody_knows_gets_the_dialect_alone(base_url: str, dialect: Dialect) -> None:
    assert traits(base_url, "gpt-5.2", dialect) == Traits()


@pytest.mark.parametrize(
    ("model", "thinking", "efforts", "always"),
    [
        ("glm-4-32b-0414", Thinking.NONE, (), False),
        ("glm-4.5-air", Thinking.SWITCH, (), False),
        ("glm-5.2", Thinking.SWITCH, ("high", "max"), False),
        ("glm-5.3", Thinking.SWITCH, ("low", "high", "max"), True),
        ("other", Thinking.NONE, (), False),
    ],
)
def test_zai_is_told_what_its_model_knows(
    model: str, thinking: Thinking, efforts: tuple[str, ...], always: bool
) -> None:
    known = traits(ZAI, model)

    assert (known.thinking, known.efforts, known.always_thinks) == (thinking, efforts, always)
    assert (known.layout, known.affinity_field) == (Layout.NONE, None)


def test_zai_in_anthropics_shape_has_budgets_and_no_breakpoints() -> None:
    known = traits("https://api.z.ai/api/anthropic", "glm-4.6", Dialect.ANTHROPIC)

    assert (known.thinking, known.layout) == (Thinking.BUDGET, Layout.NONE)
    assert known.max_tokens is not None


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-3-5-haiku-20241022", Thinking.NONE),
        ("claude-3-7-sonnet-20250219", Thinking.BUDGET),
        (CLAUDE, Thinking.BUDGET),
        ("claude-opus-4-20250514", Thinking.BUDGET),
        ("claude-opus-4-6", Thinking.ADAPTIVE),
        ("claude-opus-4-7", Thinking.ADAPTIVE),
    ],
)
def test_anthropic_marks_blocks_and_thinks_as_the_model_does(model: str, thinking: Thinking) -> None:
    known = traits("https://api.anthropic.com", model, Dialect.ANTHROPIC)

    assert (known.layout, known.thinking, known.cache_hour) == (Layout.BLOCKS, thinking, False)


def test_openai_has_a_cache_key_and_its_newer_models_a_bound_of_another_name() -> None:
    assert traits(OPENAI, "gpt-4o").max_tokens_field == "max_tokens"
    assert (
        traits(OPENAI, "gpt-5.2").max_tokens_field == traits(OPENAI, "o3").max_tokens_field == "max_completion_tokens"
    )
    assert traits(OPENAI, "gpt-5.2").affinity_field == "prompt_cache_key"
    assert traits(OPENAI, "gpt-5.2", Dialect.RESPONSES).affinity_field == "prompt_cache_key"
    assert traits(OPENAI, "gpt-5.2").efforts == ("none", "low", "medium", "high", "xhigh")
    assert traits(OPENAI, "gpt-4o").thinking is Thinking.NONE
    assert traits(OPENAI, "o3").always_thinks


def test_openrouter_marks_claude_and_routes_by_session() -> None:
    assert traits(ROUTER, "anthropic/claude-sonnet-4.5").layout is Layout.ENVELOPE
    assert traits(ROUTER, "openai/gpt-5.2").layout is Layout.NONE
    assert traits(ROUTER, "openai/gpt-5.2").affinity_field == "session_id"
    assert traits(ROUTER, "openrouter/auto").always_thinks
    assert not traits(ROUTER, "openai/gpt-5.2").always_thinks


def test_the_configuration_says_whether_and_how_long_to_cache() -> None:
    def cache(base_url: str, setting: PromptCache, dialect: Dialect = Dialect.CHAT, model: str = "m") -> object:
        known = traits(base_url, model, dialect, prompt_cache=setting)
        return known.layout, known.cache_hour, known.affinity_field

    own = "https://llm.example"
    assert cache(own, PromptCache.SHORT) == (Layout.ENVELOPE, False, None)
    assert cache(own, PromptCache.LONG, Dialect.ANTHROPIC) == (Layout.BLOCKS, True, None)
    assert cache(own, PromptCache.LONG, model="qwen3-max") == (Layout.ENVELOPE, False, None)
    assert cache(OPENAI, PromptCache.LONG) == (Layout.NONE, False, "prompt_cache_key")
    assert cache(OPENAI, PromptCache.OFF) == (Layout.NONE, False, None)
    assert cache(ZAI, PromptCache.LONG) == (Layout.NONE, False, None)
    assert cache("https://api.anthropic.com", PromptCache.OFF, Dialect.ANTHROPIC) == (Layout.NONE, False, None)


def test_the_configuration_overrides_header_bound_and_abilities() -> None:
    own = {"m": ModelOverride(max_output_tokens=5, has_reasoning=False)}

    known = traits(
        "https://openrouter.ai/api/v1", "m", models=own, session_affinity_header="x-mine", extra_headers={"x-a": "b"}
    )

    assert (known.affinity_header, known.extra_headers) == ("x-mine", (("x-a", "b"),))
    assert (known.thinking, known.max_tokens) == (Thinking.NONE, None)
    assert traits("https://llm.example", "m", Dialect.ANTHROPIC, models=own).max_tokens == 5


def test_opencode_gets_its_session_header() -> None:
    assert traits("https://opencode.ai/zen/go/v1", "glm-5").affinity_header == "x-opencode-session"
    assert traits("https://opencode.ai.example/v1", "glm-5").affinity_header is None


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("glm-4.5v", (4, 5)),
        ("glm-4-9b-chat", (4, 0)),
        ("glm-4-0520", (4, 0)),
        ("glm-5v-turbo", (5, 0)),
        ("glm-5-2", (5, 2)),
        ("Z-AI/GLM-5.3:free", (5, 3)),
        ("chatglm-6b", None),
    ],
)
def test_versions_of_glm(name: str, version: tuple[int, int] | None) -> None:
    assert glm_of(name) == version


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("claude-2.1", (2, 1)),
        ("claude-3-5-sonnet-latest", (3, 5)),
        ("claude-opus-4-1-20250805", (4, 1)),
        ("anthropic/claude-sonnet-4.5", (4, 5)),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", (4, 5)),
        ("claude-opus-5", (5, 0)),
        ("claude-fable-1", (99, 0)),
        ("not-claude", None),
    ],
)
def test_versions_of_claude(name: str, version: tuple[int, int] | None) -> None:
    assert claude_of(name) == version


@pytest.mark.parametrize(
    ("name", "efforts"),
    [
        ("o1-mini", ()),
        ("o4-mini", ("low", "medium", "high")),
        ("gpt-5", ("minimal", "low", "medium", "high")),
        ("gpt-5-chat-latest", ()),
        ("gpt-5.1", ("none", "low", "medium", "high")),
        ("gpt-5.3-codex", ("low", "medium", "high", "xhigh")),
        ("gpt-5-pro", ("high",)),
        ("gpt-4.1", ()),
    ],
)
def test_efforts_of_openais_models(name: str, efforts: tuple[str, ...]) -> None:
    known = gpt_of(name)

    assert known is not None
    assert known.efforts == efforts
