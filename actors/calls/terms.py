"""How one target wants to be asked and waited for: worked out once for a configuration, not for every attempt. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from ...protocol.destination import place_of
from ...protocol.dialects.ask import Traits
from ...protocol.settings import CallSettings, Effort, ProviderSettings
from ...protocol.traits import traits_of
from ..http.proxies import is_loopback
from .clocks import Clocks, clocks_for
from .route import Target

KEPT: Final = 1024


class Terms(NamedTuple):
    """The clocks are those of a whole call; an attempt may have less left."""

    traits: Traits
    clocks: Clocks


def terms_of(target: Target, calls: CallSettings, effort: Effort | None) -> Terms:
    """What holds for attempts at `target`."""
    return _terms(_Same(target.provider), _Same(calls), target.model, effort)


class _Same:
    """Settings as a key: they hold dicts and have no hash, but they are the same objects until the next change."""

    __slots__ = ("settings",)

    def __init__(self, settings: ProviderSettings | CallSettings) -> None:
        self.settings = settings

    def __hash__(self) -> int:
        return id(self.settings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.settings is other.settings


@lru_cache(maxsize=KEPT)
def _terms(provider: _Same, calls: _Same, model: str, effort: Effort | None) -> Terms:
    there, patience = provider.settings, calls.settings
    assert isinstance(there, ProviderSettings), "the first is whom it is about"
    assert isinstance(patience, CallSettings), "the second is for how long"
    place = place_of(there.base_url)
    is_local = place is not None and is_loopback(place.host)
    return Terms(traits_of(there, model), clocks_for(there.timeouts, patience, model, effort, is_local=is_local))
