"""What providers said of their models: kept, read back, laid below the configuration, and never a reason to fail."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from covey.protocol.errors import HomeError
from covey.protocol.model_facts import model_facts
from covey.protocol.model_listing import Listed
from covey.protocol.settings import ModelOverride, Price, ProviderSettings, Settings
from covey.supervisor.home import Home
from covey.supervisor.model_cache import Learned, Unreadable, cache_file, keep_learned, read_learned, with_learned

URL = "http://127.0.0.1:8080/v1"
SAID = Listed(
    name="qwen3.6-27b",
    facts=ModelOverride(context_window=16_384, max_output_tokens=4_096),
    price=Price(input=1, output=2),
)
SILENT = Listed(name="silent")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def learned(*models: Listed, base_url: str = URL) -> Learned:
    return Learned(base_url=base_url, learned_at_ms=1_790_000_000_000, models=models)


def settings(models: dict[str, ModelOverride] | None = None) -> Settings:
    return Settings(providers={"local": ProviderSettings(name="local", base_url=URL, models=models or {})})


def test_what_was_kept_is_read_back_and_is_private(home: Home) -> None:
    keep_learned(home, "local", learned(SAID, SILENT))

    found = read_learned(home, settings().providers["local"])

    assert found == learned(SAID, SILENT)
    assert cache_file(home, "local").stat().st_mode & 0o777 == 0o600
    assert cache_file(home, "local").parent.stat().st_mode & 0o777 == 0o700


def test_nothing_was_learned_in_a_new_home(home: Home) -> None:
    assert read_learned(home, settings().providers["local"]) is None
    assert with_learned(settings(), home) == settings()


def test_what_was_learned_at_another_url_counts_for_nothing(home: Home) -> None:
    keep_learned(home, "local", learned(SAID, base_url="http://127.0.0.1:9/v1"))

    assert read_learned(home, settings().providers["local"]) is None


def test_workers_know_what_the_provider_said(home: Home) -> None:
    keep_learned(home, "local", learned(SAID, SILENT))

    provider = with_learned(settings(), home).providers["local"]

    assert provider.models == {SAID.name: SAID.facts}
    assert model_facts(provider, SAID.name).context_window == 16_384


def test_the_configuration_stays_above_it_value_by_value(home: Home) -> None:
    keep_learned(home, "local", learned(SAID))
    configured = {
        "Qwen3.6-27B": ModelOverride(context_window=8_192, has_tools=False),
        "other": ModelOverride(has_images=True),
    }

    provider = with_learned(settings(configured), home).providers["local"]

    found = model_facts(provider, "qwen3.6-27b")
    assert (found.context_window, found.max_output_tokens, found.has_tools) == (8_192, 4_096, False)
    assert model_facts(provider, "Qwen3.6-27B") == found
    assert model_facts(provider, "other").has_images is True


def test_a_price_that_was_learned_counts_no_costs(home: Home) -> None:
    keep_learned(home, "local", learned(SAID))

    assert with_learned(settings(), home).providers["local"].prices == {}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"base_url": "http', id="cut"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b'{"base_url": 3}', id="another shape"),
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_a_damaged_file_is_ignored_with_a_warning_and_left_alone(
    home: Home, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    keep_learned(home, "local", learned(SAID))
    cache_file(home, "local").write_bytes(content)

    with caplog.at_level(logging.WARNING):
        found = with_learned(settings(), home)

    assert found == settings()
    assert isinstance(read_learned(home, settings().providers["local"]), Unreadable)
    assert [record.message.split()[0] for record in caplog.records] == ["model_cache_unread"]
    assert cache_file(home, "local").read_bytes() == content


def test_a_file_that_cannot_be_read_is_ignored_too(home: Home) -> None:
    cache_file(home, "local").mkdir(parents=True)

    found = read_learned(home, settings().providers["local"])

    assert isinstance(found, Unreadable)
    assert "covey models --refresh" in str(found)


def test_a_home_that_cannot_be_written_to_is_said_so(home: Home) -> None:
    home.create()
    (home.path / "models").write_text("a file")

    with pytest.raises(HomeError):
        keep_learned(home, "local", learned(SAID))
