"""Who would answer: provider, model, URL and key; and whether one backend's failure is another's too. Pure.

A failure has a scope, and every scope has a *surface*: what of a backend it speaks about. Two backends fail together
if they have the same surface. An axis that is not known (None) is part of no proof: whoever skips too much strands a
call that could have been answered, whoever tries once too often has lost a round trip.

The name in the configuration is part of a surface only where a request is judged (`REQUEST`): there it stands for the
dialect. Elsewhere two names for one URL, model and key are one backend, and two keys under one name are two.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Final

import msgspec

from .destination import is_zai, place_of
from .fault_kinds import FaultScope

NO_CREDENTIAL: Final = "none"
"""The `credential` of a backend that is known to need no key; None is one nobody knows."""

_ZAI_PAY_AS_YOU_GO: Final = "/api/paas/"


class Backend(msgspec.Struct, frozen=True):
    """One place that could answer a call. None is an axis nobody knows; `credential` is a key's fingerprint."""

    provider: str | None
    """The entry's name in the configuration."""
    model: str | None
    base_url: str | None
    credential: str | None = None


def is_same(candidate: Backend, failed: Backend, scope: FaultScope) -> bool:
    """Whether what failed at `failed` along `scope` would fail at `candidate` too.

    REQUEST: the same request would meet the same judge: one entry, URL and model, whatever the key. Any other model,
    or dialect, gets to decide for itself. MODEL: one model at one URL for one key. CREDENTIAL: one key at one host.
    ACCOUNT: what that key pays from. ENDPOINT: one URL. LOCAL: never, for it says nothing about anybody.
    """
    found = surface(candidate, scope)
    return found is not None and found == surface(failed, scope)


@lru_cache(maxsize=4096)  # asked several times for every call; reading a URL takes 3 µs
def surface(backend: Backend, scope: FaultScope) -> Hashable | None:
    """What of `backend` a fault of `scope` speaks about, to compare and to look up; None where that is not known."""
    match scope:
        case FaultScope.REQUEST:
            return _known(_text(backend.provider), _url(backend), _text(backend.model))
        case FaultScope.MODEL:
            return _known(_url(backend), _text(backend.model), _text(backend.credential))
        case FaultScope.CREDENTIAL:
            return _key_surface(backend)
        case FaultScope.ACCOUNT:
            return _account(backend)
        case FaultScope.ENDPOINT:
            return _known(_url(backend))
        case FaultScope.LOCAL:
            return None


def same_url(base_url: str) -> str:
    """`base_url` in the one spelling that is compared: no space around it, no slash at its end, and scheme and
    authority in lower case. A path keeps its capitals: to a server they are other letters."""
    text = base_url.strip().rstrip("/")
    head, mark, rest = text.partition("://")
    if not mark:
        head, rest = "", text
    authority, slash, path = rest.partition("/")
    return f"{head.lower()}{mark}{authority.lower()}{slash}{path}"


def _key_surface(backend: Backend) -> Hashable | None:
    """One key at one host: another host knows other keys, if they have the same letters or not."""
    if _text(backend.credential) == NO_CREDENTIAL:
        return _known(NO_CREDENTIAL, _url(backend))
    return _known(_text(backend.credential), _host(backend))


def _account(backend: Backend) -> Hashable | None:
    """What a key pays from. Z.AI keys have two purses, and the path says which: one may be empty and the other not."""
    key = _key_surface(backend)
    if key is None or not is_zai(backend.base_url):
        return key
    place = place_of(backend.base_url)
    is_paid_by_use = place is not None and f"{place.path}/".startswith(_ZAI_PAY_AS_YOU_GO)
    return (key, is_paid_by_use)


def _host(backend: Backend) -> Hashable | None:
    place = place_of(backend.base_url)
    return None if place is None else (place.host, place.port)


def _url(backend: Backend) -> str | None:
    url = _text(backend.base_url)
    return None if url is None else same_url(url)


def _text(axis: str | None) -> str | None:
    return axis.strip() or None if axis is not None else None


def _known(*parts: Hashable | None) -> Hashable | None:
    return None if None in parts else parts
