"""Whom an agent's calls ask, by the configuration: its model or the default one, then the fallbacks. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.errors import UsageError
from ...protocol.settings import Effort, Fallback, ModelSettings, Settings
from .route import Target


@dataclass(frozen=True, slots=True)
class Way:
    """Where calls go, and how much the models there are to think."""

    targets: tuple[Target, ...]
    effort: Effort | None


def way_of(settings: Settings, model: ModelSettings | None) -> Way:
    """The way of an agent that was given `model`; None: the default one. Raises `UsageError` where there is none.

    What a given model leaves open, the default's fallbacks and its effort, is taken from there.
    """
    default = settings.model
    model = model or default
    if model is None:
        raise UsageError("no model is configured; set model.provider and model.name")
    if model.provider not in settings.providers:
        raise UsageError(f"there is no provider {model.provider!r}; add it under providers")
    fallbacks = model.fallbacks or (default.fallbacks if default is not None else ())
    effort = model.reasoning_effort or (default.reasoning_effort if default is not None else None)
    # In their order, each once; a provider that went away with a change of the configuration is no target.
    chain = dict.fromkeys([Fallback(provider=model.provider, name=model.name), *fallbacks])
    return Way(
        tuple(
            Target(settings.providers[step.provider], step.name)
            for step in chain
            if step.provider in settings.providers
        ),
        effort,
    )
