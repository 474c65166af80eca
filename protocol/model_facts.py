"""What is known of a model: windows, caps, abilities, prices. Pure.

The configuration comes first, then the shipped table: by the host and the model's name there, else by the name alone.
Nothing is guessed: a name stands for its dated versions and for the tags that routers put behind it, and for more only
where the whole family shares a value. What nobody knows is None.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from .destination import Place, place_of
from .model_families import bare_name
from .model_table import SHELVES, Row, Shelf
from .prices import price_of
from .settings import ModelOverride, Price, ProviderSettings

CONFIGURED: Final = "config.yaml"

_OWN_DOMAINS: Final = frozenset({"internal", "lan", "local", "localhost"})
_VERSION: Final = re.compile(
    r"(?:-20[0-9]{6}|-20[0-9]{2}-[0-9]{2}-[0-9]{2}|-[0-9]{4})?(?:-preview)?(?:-latest)?(?:-v[0-9]+)?"
    r"(?::(?:batch|beta|cloud|exacto|floor|free|latest|nitro|online|[0-9]+))?"
)
"""What may stand behind a model's name and still mean the same model."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model at one provider; None is what nobody knows."""

    context_window: int | None = None
    """Tokens, in and out."""
    max_output_tokens: int | None = None
    has_tools: bool | None = None
    has_images: bool | None = None
    has_reasoning: bool | None = None
    price: Price | None = None
    """For people. What calls cost is counted by the configured prices alone (`ProviderSettings.prices`)."""
    price_source: str | None = None
    """Where the price is from: `config.yaml`, or what the table names."""
    source: str | None = None
    """Where the table has the rest from; `config.yaml` if anything of it was overridden."""
    as_of: str | None = None
    """The day it was read there."""


NOTHING: Final = ModelFacts()


def model_facts(provider: ProviderSettings, model: str) -> ModelFacts:
    """What is known of `model` there: the configuration before the shipped table. Never raises."""
    known = table_facts(provider.base_url, model)
    own, price = override_of(provider.models, model), price_of(provider.prices, model)
    if own is not None and own != ModelOverride():
        known = laid_over(known, own, source=CONFIGURED)
    if price is not None:
        known = msgspec.structs.replace(known, price=price, price_source=CONFIGURED)
    return known


def override_of(overrides: Mapping[str, ModelOverride], model: str) -> ModelOverride | None:
    """Find what is said of a model; capitals make no difference, as with prices."""
    exact = overrides.get(model)
    if exact is not None or not overrides:
        return exact
    return next((one for name, one in overrides.items() if name.lower() == model.lower()), None)


def laid_over(known: ModelFacts, own: ModelOverride, *, source: str, as_of: str | None = None) -> ModelFacts:
    """`known` with everything that `own` says, and where that is from."""
    said = {field: value for field in own.__struct_fields__ if (value := getattr(own, field)) is not None}
    return msgspec.structs.replace(known, **said, source=source, as_of=as_of)


@lru_cache(maxsize=4096)
def table_facts(base_url: str | None, model: str) -> ModelFacts:
    """What the shipped table knows of `model` at `base_url`."""
    place = place_of(base_url)
    shelf = _shelf_at(place.host) if place is not None else None
    found = _on(shelf, model) if shelf is not None else None
    if shelf is not None and found is not None:
        return _facts(found, has_price=_is_priced(shelf, place))
    shelf, found = _anywhere(model)
    if shelf is None or found is None:
        return NOTHING
    facts = _facts(found, has_price=False)
    if shelf.is_open and place is not None and is_own_machine(place.host):
        return msgspec.structs.replace(facts, context_window=None, max_output_tokens=None)
    return facts


def names_at(base_url: str | None) -> tuple[str, ...]:
    """The models the shipped table has for the vendor at `base_url`; none for any other host."""
    place = place_of(base_url)
    shelf = _shelf_at(place.host) if place is not None else None
    return tuple(row.name for row in shelf.rows if not row.is_family) if shelf is not None else ()


def is_own_machine(host: str) -> bool:
    """Whether a server of one's own is at `host`: here, or in a private network."""
    if "." not in host and ":" not in host:
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host.rpartition(".")[2] in _OWN_DOMAINS


def _facts(row: Row, *, has_price: bool) -> ModelFacts:
    price = row.price if has_price else None
    return ModelFacts(
        context_window=row.context_window,
        max_output_tokens=row.max_output_tokens,
        has_tools=None if row.can is None else "t" in row.can,
        has_images=None if row.can is None else "i" in row.can,
        has_reasoning=None if row.can is None else "r" in row.can,
        price=price,
        price_source=row.source.place if price is not None else None,
        source=row.source.place,
        as_of=row.source.as_of,
    )


def _is_priced(shelf: Shelf, place: Place | None) -> bool:
    return place is not None and f"{place.host}{place.path}".startswith(shelf.priced_at)


def _shelf_at(host: str) -> Shelf | None:
    return next(
        (shelf for shelf in SHELVES if any(host == one or host.endswith("." + one) for one in shelf.hosts)), None
    )


def _on(shelf: Shelf, model: str) -> Row | None:
    name = bare_name(model)
    fitting = [row for row in shelf.rows if _means(name, row)]
    return max(fitting, key=lambda row: len(row.name), default=None)


def _means(name: str, row: Row) -> bool:
    own = bare_name(row.name)
    if not name.startswith(own):
        return False
    rest = name[len(own) :]
    return _VERSION.fullmatch(rest) is not None or (row.is_family and not rest[:1].isalnum())


def _anywhere(model: str) -> tuple[Shelf | None, Row | None]:
    found = ((shelf, row) for shelf in SHELVES if (row := _on(shelf, model)) is not None)
    return next(found, (None, None))
