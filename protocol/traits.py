"""How a target wants its requests: by host, dialect, model and configuration. Pure."""

from __future__ import annotations

from .dialects.ask import Traits
from .settings import ProviderSettings


def traits_of(provider: ProviderSettings, model: str) -> Traits:
    """How `provider` wants requests to `model`."""
    del model
    return Traits(affinity_header=provider.session_affinity_header, extra_headers=tuple(provider.extra_headers.items()))
