"""What the doctor finds about where calls go."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.protocol.settings import (
    ZAI_BASE_URL,
    Dialect,
    Fallback,
    ModelSettings,
    ProviderSettings,
    Settings,
    builtin_providers,
)
from covey.supervisor.doctor_findings import Finding, Level
from covey.supervisor.doctor_routes import check_routes


def found(*providers: ProviderSettings, fallbacks: tuple[Fallback, ...] = ()) -> list[Finding]:
    first = providers[0]
    settings = Settings(
        providers={**builtin_providers(), **{one.name: one for one in providers}},
        model=ModelSettings(provider=first.name, name="m", fallbacks=fallbacks),
    )
    return list(check_routes(settings, frozenset()))


@pytest.mark.parametrize(
    ("base_url", "dialect", "meant"),
    [
        ("https://api.z.ai/api/anthropic", Dialect.CHAT, "anthropic"),
        (ZAI_BASE_URL, Dialect.ANTHROPIC, "chat"),
        ("https://one.example/v1/messages", Dialect.CHAT, "anthropic"),
        ("https://one.example/v1/responses", Dialect.CHAT, "responses"),
        ("https://one.example/v1/chat/completions/", Dialect.RESPONSES, "chat"),
    ],
)
def test_a_dialect_that_is_not_spoken_at_the_url(base_url: str, dialect: Dialect, meant: str) -> None:
    (finding,) = found(ProviderSettings(name="one", base_url=base_url, dialect=dialect))

    assert finding.level is Level.FAIL
    assert f"providers.one.dialect {meant}`" in (finding.to_do or "")


@pytest.mark.parametrize(
    ("base_url", "dialect"),
    [
        ("https://api.z.ai/api/anthropic", Dialect.ANTHROPIC),
        (ZAI_BASE_URL, Dialect.CHAT),
        ("https://one.example/v1", Dialect.RESPONSES),
        ("https://one.example/v1", Dialect.ANTHROPIC),
        ("https://one.example/messages-of-hope", Dialect.CHAT),
    ],
)
def test_a_url_that_says_nothing_else_is_fine(base_url: str, dialect: Dialect) -> None:
    assert not found(ProviderSettings(name="one", base_url=base_url, dialect=dialect))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    one = ProviderSettings(
        name="one", base_url="https://one.example", ca_bundle=f"{tmp_path}/ca.pem", client_cert=f"{tmp_path}/me.pem"
    )

    (finding,) = found(one)

    assert finding.level is Level.FAIL
    assert "client_cert" in finding.says


def test_the_chain_is_shown_and_a_circle_in_it_is_not_meant() -> None:
    one = ProviderSettings(name="one", base_url="https://one.example")

    (chain,) = found(one, fallbacks=(Fallback(provider="zai", name="glm-4.6"),))
    (circle,) = found(one, fallbacks=(Fallback(provider="one", name="m"),))

    assert (chain.level, chain.says) == (Level.OK, "calls go to one/m → zai/glm-4.6")
    assert circle.level is Level.WARN
