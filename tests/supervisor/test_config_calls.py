"""config.yaml, what it says of calls: fallbacks, clocks, headers, proxies, certificates, models."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.protocol.errors import ConfigError, UsageError
from covey.protocol.settings import (
    CallSettings,
    Effort,
    Fallback,
    KeyStrategy,
    ModelOverride,
    ModelSettings,
    PromptCache,
    ProviderSettings,
    Settings,
    TimeoutSettings,
)
from covey.supervisor.config import Accepted, Refused, examine, load
from covey.supervisor.config_edit import set_value
from covey.supervisor.home import Home

MODEL = "model: {provider: zai, name: glm-4.6"


def settings(text: str) -> Settings:
    found = examine(text, "config.yaml")
    assert isinstance(found, Accepted), found
    return found.settings


def refused(text: str) -> ConfigError:
    found = examine(text, "config.yaml")
    assert isinstance(found, Refused), found
    return found.errors[0]


def zai(text: str) -> ProviderSettings:
    return settings(f"providers: {{zai: {{{text}}}}}").providers["zai"]


def test_everything_at_once() -> None:
    found = settings("""
providers:
  other:
    base_url: https://other.example/v1
    api_key_command: pass show 'other key'
    key_strategy: round_robin
    prompt_cache: 1h
    session_affinity_header: x-session
    extra_headers: {x-title: my fleet}
    proxy: socks5h://127.0.0.1:1080
    ca_bundle: /etc/ssl/own.pem
    client_cert: /etc/ssl/me.pem
    client_key: /etc/ssl/me.key
    timeouts: {connect_seconds: 3, content_seconds: 90.5}
    models:
      big-1: {context_window: 1000000, max_output_tokens: 64, has_reasoning: true}
model:
  provider: zai
  name: glm-4.6
  reasoning_effort: high
  fallbacks:
    - other/big-1
    - zai/vendor/small
calls:
  total_seconds: 60
  retry_seconds: 0
  breaker_stale_calls: 0
  family_floor_seconds: {big: 500}
""")

    assert found.providers["other"] == ProviderSettings(
        name="other",
        base_url="https://other.example/v1",
        api_key_command="pass show 'other key'",
        key_strategy=KeyStrategy.ROUND_ROBIN,
        prompt_cache=PromptCache.LONG,
        session_affinity_header="x-session",
        extra_headers={"x-title": "my fleet"},
        proxy="socks5h://127.0.0.1:1080",
        ca_bundle="/etc/ssl/own.pem",
        client_cert="/etc/ssl/me.pem",
        client_key="/etc/ssl/me.key",
        timeouts=TimeoutSettings(connect_seconds=3, content_seconds=90.5),
        models={"big-1": ModelOverride(context_window=1_000_000, max_output_tokens=64, has_reasoning=True)},
    )
    assert found.model == ModelSettings(
        provider="zai",
        name="glm-4.6",
        reasoning_effort=Effort.HIGH,
        fallbacks=(Fallback(provider="other", name="big-1"), Fallback(provider="zai", name="vendor/small")),
    )
    assert found.calls == CallSettings(
        total_seconds=60, retry_seconds=0, breaker_stale_calls=0, family_floor_seconds={"big": 500}
    )


@pytest.mark.parametrize(
    ("fallbacks", "problem"),
    [
        pytest.param("[nobody/x]", "there is no provider nobody", id="unknown provider"),
        pytest.param("[glm-4.5]", "does not fit", id="no provider"),
        pytest.param("zai/glm-4.5", "is not a list", id="no list"),
        pytest.param("[zai/a, zai/a]", "names something twice", id="twice"),
        pytest.param("[[zai/a]]", "a list where a single value belongs", id="a list in a list"),
        pytest.param("[7]", "is not text", id="a number"),
        pytest.param(f"[{', '.join(f'zai/{n}' for n in range(17))}]", "has 17 items", id="too many"),
    ],
)
def test_a_chain_that_cannot_be_meant(fallbacks: str, problem: str) -> None:
    error = refused(f"{MODEL}, fallbacks: {fallbacks}}}")

    assert (error.key, error.line) == ("model.fallbacks", 1)
    assert problem in error.problem


def test_a_chain_without_a_beginning_is_refused() -> None:
    assert "no model that they could stand in for" in refused("model: {fallbacks: [zai/a]}").problem


@pytest.mark.parametrize(
    "name",
    ["user-agent", "authorization", "x-api-key", "api-key", "content-type", "host", "x-stainless-os", "X-Title", "a b"],
)
def test_a_header_that_says_who_we_are_or_carries_a_key_is_refused(name: str) -> None:
    error = refused(f'providers: {{zai: {{extra_headers: {{"{name}": x}}}}}}')

    assert error.key == "providers.zai.extra_headers"
    assert name in error.problem


@pytest.mark.parametrize("proxy", ["direct", "http://proxy:3128", "socks5://[::1]:1080", "https://p.example"])
def test_a_proxy(proxy: str) -> None:
    assert zai(f'proxy: "{proxy}"').proxy == proxy


@pytest.mark.parametrize("proxy", ["proxy:3128", "ftp://proxy", "http://me:secret@proxy", "http://", "http://p:0", "7"])
def test_what_is_no_proxy_is_refused_and_a_password_not_repeated(proxy: str) -> None:
    error = refused(f'providers: {{zai: {{proxy: "{proxy}"}}}}')

    assert error.key == "providers.zai.proxy"
    assert "secret" not in error.problem


@pytest.mark.parametrize(
    "text", ["connect_seconds: 0", "content_seconds: .inf", "silence_seconds: 90000", "headers_seconds: soon"]
)
def test_a_clock_that_cannot_be_meant(text: str) -> None:
    assert (refused(f"providers: {{zai: {{timeouts: {{{text}}}}}}}").key or "").startswith("providers.zai.timeouts.")


def test_a_client_s_key_needs_its_certificate() -> None:
    error = refused("providers: {zai: {client_key: /me.key}}")

    assert (error.key, error.line) == ("providers.zai.client_key", 1)


@pytest.mark.parametrize("text", ["context_window: 1000", "has_tools: 1", "max_output_tokens: 0", "window: 4096"])
def test_what_is_said_of_a_model_is_checked(text: str) -> None:
    assert (refused(f"providers: {{zai: {{models: {{glm-4.6: {{{text}}}}}}}}}").key or "").startswith(
        "providers.zai.models.glm-4.6."
    )


@pytest.mark.parametrize("text", ["[a]", "3", "{a: b}", "{a: -1}", "{a: [1]}"])
def test_floors_are_a_mapping_of_seconds(text: str) -> None:
    assert (refused(f"calls: {{family_floor_seconds: {text}}}").key or "").startswith("calls.family_floor_seconds")


class TestSet:
    @pytest.mark.parametrize("typed", ["zai/a, zai/b", "[zai/a, zai/b]", '["zai/a", "zai/b"]', "zai/a,zai/b,"])
    def test_a_chain_is_typed_with_commas(self, tmp_path: Path, typed: str) -> None:
        home = Home(tmp_path)
        home.config.write_text(f"{MODEL}}}  # ours\n")

        set_value(home, "model.fallbacks", typed)

        assert home.config.read_text() == f"{MODEL}, fallbacks: [zai/a, zai/b]}}  # ours\n"

    def test_a_list_in_lines_is_replaced_and_nothing_else(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        rest = "# the rest\nfleet:\n  workers: 3\n"
        home.config.write_text(f"model:\n  provider: zai\n  name: x\n  fallbacks:\n    - zai/a\n    - zai/b\n{rest}")

        set_value(home, "model.fallbacks", "zai/c")

        assert load(home.config).settings.model == ModelSettings(
            provider="zai", name="x", fallbacks=(Fallback(provider="zai", name="c"),)
        )
        assert home.config.read_text().endswith(f"\n{rest}")

    def test_a_mapping_is_typed_as_one(self, tmp_path: Path) -> None:
        home = Home(tmp_path)

        set_value(home, "calls.family_floor_seconds", "{deepseek-r1: 700}")
        set_value(home, "providers.zai.extra_headers", "{x-title: a fleet}")
        set_value(home, "providers.zai.models.glm-4.6.context_window", "200000")

        found = load(home.config).settings
        assert found.calls.family_floor_seconds == {"deepseek-r1": 700}
        assert found.providers["zai"].extra_headers == {"x-title": "a fleet"}
        assert found.providers["zai"].models["glm-4.6"].context_window == 200_000

    def test_what_is_no_mapping_changes_nothing(self, tmp_path: Path) -> None:
        home = Home(tmp_path)

        with pytest.raises(UsageError, match="is not a mapping"):
            set_value(home, "calls.family_floor_seconds", "600")

        assert not home.config.exists()
