"""Which provider and model an agent uses: what was asked for, filled in from the settings."""

from __future__ import annotations

from ..protocol.errors import UsageError
from ..protocol.settings import ModelSettings, Settings


def resolve_model(asked: ModelSettings | None, settings: Settings) -> ModelSettings:
    """The provider and model meant; raises `UsageError` saying what to configure.

    A name without a provider may carry one as `provider/name`; a slash that is part of a model's name is left alone.
    """
    default = settings.model
    if asked is None:
        if default is None:
            raise UsageError("no model is configured: `covey config set model.provider NAME` and `model.name NAME`")
        return default
    provider, name = asked.provider, asked.name
    if not provider:
        head, slash, tail = name.partition("/")
        if slash and tail and head in settings.providers:
            provider, name = head, tail
        elif default is not None:
            provider = default.provider
        else:
            raise UsageError(
                f"model {name} names no provider and none is configured: `covey config set model.provider NAME`"
            )
    if provider not in settings.providers:
        raise UsageError(f"there is no provider {provider!r}; configured are {', '.join(sorted(settings.providers))}")
    return ModelSettings(provider=provider, name=name)
