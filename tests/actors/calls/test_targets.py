"""Whom calls ask, by the configuration."""

from __future__ import annotations

import pytest

from covey.actors.calls.targets import way_of
from covey.protocol.errors import UsageError
from covey.protocol.settings import Effort, Fallback, ModelSettings, ProviderSettings, Settings

PROVIDERS = {name: ProviderSettings(name=name, base_url=f"https://{name}.example/v1") for name in ("one", "two")}


def settings(*fallbacks: tuple[str, str], effort: Effort | None = None) -> Settings:
    chain = tuple(Fallback(provider=provider, name=name) for provider, name in fallbacks)
    return Settings(
        providers=PROVIDERS,
        model=ModelSettings(provider="one", name="m", reasoning_effort=effort, fallbacks=chain),
    )


def names(of: Settings, model: ModelSettings | None = None) -> list[tuple[str, str]]:
    return [(target.provider.name, target.model) for target in way_of(of, model).targets]


def test_the_default_model_and_its_fallbacks_in_their_order() -> None:
    assert names(settings(("two", "m"), ("one", "n"))) == [("one", "m"), ("two", "m"), ("one", "n")]


def test_a_given_model_comes_first_and_takes_the_fallbacks_of_the_default_one() -> None:
    given = ModelSettings(provider="two", name="x")

    assert names(settings(("one", "n")), given) == [("two", "x"), ("one", "n")]


def test_fallbacks_that_were_given_are_the_only_ones() -> None:
    given = ModelSettings(provider="two", name="x", fallbacks=(Fallback(provider="two", name="y"),))

    assert names(settings(("one", "n")), given) == [("two", "x"), ("two", "y")]


def test_a_target_that_comes_twice_is_asked_once() -> None:
    assert names(settings(("one", "m"), ("two", "m"), ("two", "m"))) == [("one", "m"), ("two", "m")]


def test_a_fallback_whose_provider_went_away_is_passed_over() -> None:
    assert names(settings(("gone", "m"))) == [("one", "m")]


@pytest.mark.parametrize(
    ("default", "given", "effort"),
    [
        pytest.param(Effort.HIGH, None, Effort.HIGH, id="of the default model"),
        pytest.param(Effort.HIGH, Effort.LOW, Effort.LOW, id="of the given model"),
        pytest.param(None, None, None, id="nobody's"),
    ],
)
def test_the_effort_is(default: Effort | None, given: Effort | None, effort: Effort | None) -> None:
    model = ModelSettings(provider="two", name="x", reasoning_effort=given)

    assert way_of(settings(effort=default), model).effort is effort


@pytest.mark.parametrize(
    ("of", "model", "words"),
    [
        pytest.param(Settings(), None, "no model is configured", id="model"),
        pytest.param(settings(), ModelSettings(provider="gone", name="m"), "no provider 'gone'", id="provider"),
    ],
)
def test_what_is_missing_is_named(of: Settings, model: ModelSettings | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        way_of(of, model)
