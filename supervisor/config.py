"""config.yaml to `Settings`: defaults filled in, built-in providers merged key by key with what the user wrote.

A file is accepted whole or refused whole. A missing or empty one is all defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from ..protocol.destination import is_zai
from ..protocol.errors import ConfigError, ConfigErrors
from ..protocol.peak_hours import peak_hours_of
from ..protocol.settings import (
    BudgetSettings,
    CallSettings,
    Fallback,
    FleetSettings,
    LimitSettings,
    ModelSettings,
    Price,
    ProviderSettings,
    Settings,
    builtin_providers,
)
from . import config_keys as keys
from .config_composites import EVERYBODY
from .config_entries import Entries, read_entries
from .config_kinds import Value
from .config_text import read_text


class Origin(StrEnum):
    """Where an effective value comes from."""

    FILE = "file"
    BUILTIN = "built in"
    DEFAULT = "default"


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """A key's value as the fleet sees it; `line` only for values from the file."""

    key: str
    value: Value
    origin: Origin
    line: int | None = None


class ConfigWarning(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is allowed and probably not meant."""

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        return f"{place}: {self.key}: {self.message}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A file that can be used."""

    settings: Settings
    values: tuple[Effective, ...]
    """Every key of the table, once for each provider, in the table's order."""
    warnings: tuple[ConfigWarning, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that cannot be used: at least one error, in the order of the file."""

    errors: tuple[ConfigError, ...]

    def as_error(self) -> ConfigError:
        """One exception for all of them."""
        return self.errors[0] if len(self.errors) == 1 else ConfigErrors(self.errors)


def load(path: Path) -> Accepted:
    """Read a file that has to be usable; raises `ConfigError` (`ConfigErrors` for several)."""
    match examine(read_text(path), str(path)):
        case Refused() as refused:
            raise refused.as_error()
        case Accepted() as accepted:
            return accepted


def examine(text: str, file: str) -> Accepted | Refused:
    """Check `text` as the content of `file`, which is not read."""
    entries = read_entries(text, file)
    values = _effective(entries)
    _check_together(entries, values)
    if entries.errors:
        return Refused(tuple(sorted(entries.errors, key=lambda error: error.line or 0)))
    return Accepted(_settings(values), tuple(values.values()), tuple(_warnings(entries.file, values)))


def _effective(entries: Entries) -> dict[str, Effective]:
    """All keys with the values they have, whether or not they make sense together."""
    found: dict[str, Effective] = {}
    for provider in _provider_names(entries):
        for key in keys.provider_keys():
            path = ("providers", provider, *key.path[2:])
            found[".".join(path)] = _effective_value(entries, path, key)
        for section in keys.OF_MODELS:
            for model in _models_named(entries, provider, section):
                for key in keys.model_keys(section):
                    path = ("providers", provider, section, model, key.field)
                    found[".".join(path)] = _effective_value(entries, path, key)
    for key in keys.KEYS:
        if keys.NAME not in key.path:
            found[key.pattern] = _effective_value(entries, key.path, key)
    return found


def _provider_names(entries: Entries) -> list[str]:
    configured = (path[1] for path in entries.sections if path[0] == "providers" and len(path) == 2)
    return list(dict.fromkeys((*builtin_providers(), *configured)))


def _models_named(entries: Entries, provider: str, section: str) -> list[str]:
    return [path[3] for path in entries.sections if keys.is_of_model(path) and path[1:3] == (provider, section)]


def _effective_value(entries: Entries, path: keys.Path, key: keys.Key) -> Effective:
    name = ".".join(path)
    if entry := entries.values.get(path):
        return Effective(key=name, value=entry.value, origin=Origin.FILE, line=entry.line)
    builtin = builtin_providers().get(path[1]) if path[0] == "providers" else None
    value = getattr(builtin, key.field) if builtin and len(path) == 3 else None
    if value not in (None, {}, key.default):
        return Effective(key=name, value=value, origin=Origin.BUILTIN)
    return Effective(key=name, value=key.default, origin=Origin.DEFAULT)


def _check_together(entries: Entries, values: dict[str, Effective]) -> None:
    """Check what one key alone cannot tell, where the keys by themselves are right."""
    refused = {error.key for error in entries.errors}
    for path, line in entries.sections.items():
        key = ".".join((*path, "base_url"))
        if path[0] == "providers" and len(path) == 2 and key not in refused and values[key].value is None:
            entries.refuse((*path, "base_url"), line, "is missing", keys.BASE_URL.kind.valid)
    provider, names = values["model.provider"], _provider_names(entries)
    if provider.value is not None and provider.value not in names and "providers" not in refused:
        line = entries.values["model", "provider"].line
        entries.refuse(("model", "provider"), line, f"there is no provider {provider.value}", " or ".join(names))
    _check_fallbacks(entries, values, names)
    _check_certificates(entries, values, names)
    for soft, hard in keys.SOFT_AND_HARD:
        _check_order(entries, values, soft, hard)


def _check_fallbacks(entries: Entries, values: dict[str, Effective], names: list[str]) -> None:
    path, found = ("model", "fallbacks"), values["model.fallbacks"]
    for fallback in _fallbacks(values):
        if fallback.provider not in names:
            assert found.line is not None, "only the file has fallbacks"
            entries.refuse(path, found.line, f"there is no provider {fallback.provider}", " or ".join(names))
    if found.value and values["model.name"].value is None:
        assert found.line is not None, "only the file has fallbacks"
        entries.refuse(
            path, found.line, "there is no model that they could stand in for", "model.provider and model.name"
        )


def _check_certificates(entries: Entries, values: dict[str, Effective], names: list[str]) -> None:
    for name in names:
        key, certificate = (values[f"providers.{name}.client_{part}"] for part in ("key", "cert"))
        if key.value is not None and certificate.value is None:
            assert key.line is not None, "only the file has keys"
            path = ("providers", name, "client_key")
            entries.refuse(path, key.line, "a key without its certificate", "client_cert beside it")


def _check_order(entries: Entries, values: dict[str, Effective], soft: keys.Path, hard: keys.Path) -> None:
    """A soft limit above its hard one would never be noticed. The blame goes to the one that stands in the file."""
    low, high = values[".".join(soft)], values[".".join(hard)]
    assert isinstance(low.value, int), "its kind takes whole numbers only"
    assert isinstance(high.value, int), "its kind takes whole numbers only"
    if 0 in (low.value, high.value) or low.value <= high.value:
        return
    if low.line is not None:
        problem, valid = f"{low.value} is above {high.key}", f"at most {high.value}, or a higher {high.key}"
        entries.refuse(soft, low.line, problem, valid)
    elif high.line is not None:
        problem, valid = f"{high.value} is below {low.key}", f"at least {low.value}, or a lower {low.key}"
        entries.refuse(hard, high.line, problem, valid)


def _settings(values: dict[str, Effective]) -> Settings:
    providers = {name: _provider(name, values) for name in _names(values)}
    return Settings(providers=providers, model=_model(values), calls=_calls(values), fleet=_fleet(values))


def _names(values: dict[str, Effective]) -> list[str]:
    return [key.split(".")[1] for key in values if key.startswith("providers.") and key.endswith(".base_url")]


def _provider(name: str, values: dict[str, Effective]) -> ProviderSettings:
    path = ("providers", name)
    of = _below(path, values)
    of |= {field: of[field] or None for field in ("max_requests_per_minute", "max_tokens_per_minute")}
    limit = of["max_concurrent"]
    models = {model: count for model, count in limit.items() if model != EVERYBODY} if isinstance(limit, dict) else {}
    weights = _below((*path, "priority_weights"), values)
    settings = {
        **of,
        "name": name,
        "max_concurrent": _for_all(limit) or None,
        "model_limits": {model: count for model, count in models.items() if count},
        "priority_weights": {priority: weight for priority, weight in weights.items() if weight is not None},
        "extra_headers": of["extra_headers"] or {},
        "timeouts": _below((*path, "timeouts"), values),
        "models": {model: _below((*path, "models", model), values) for model in _models(name, "models", values)},
        **{section: _prices(name, section, values) for section in keys.RATED},
    }
    return msgspec.convert(settings, ProviderSettings)


def _for_all(limit: Value) -> Value:
    return limit[EVERYBODY] if isinstance(limit, dict) else limit


def _prices(name: str, section: str, values: dict[str, Effective]) -> dict[str, Price]:
    models = _models(name, section, values)
    priced = {model: _below(("providers", name, section, model), values) for model in models}
    return {model: _price(price) for model, price in priced.items() if not _missing(price)}


def _price(values: dict[str, Value]) -> Price:
    hours = values["peak_hours"]
    return msgspec.convert({**values, "peak_hours": peak_hours_of(hours) if isinstance(hours, str) else None}, Price)


def _models(name: str, section: str, values: dict[str, Effective]) -> list[str]:
    start, end = f"providers.{name}.{section}.", f".{keys.OF_MODELS[section]}"
    return [key[len(start) : -len(end)] for key in values if key.startswith(start) and key.endswith(end)]


def _priced(name: str, values: dict[str, Effective]) -> list[tuple[str, str]]:
    return [(section, model) for section in keys.RATED for model in _models(name, section, values)]


def _missing(price: dict[str, Value]) -> list[str]:
    return [field for field in ("input", "output") if price[field] is None]


def _model(values: dict[str, Effective]) -> ModelSettings | None:
    provider, name = values["model.provider"].value, values["model.name"].value
    if provider is None or name is None:
        return None
    settings = {**_below(("model",), values), "fallbacks": _fallbacks(values)}
    return msgspec.convert(settings, ModelSettings)


def _fallbacks(values: dict[str, Effective]) -> list[Fallback]:
    listed = values["model.fallbacks"].value
    parts = [str(item).partition("/") for item in listed] if isinstance(listed, list) else []
    return [Fallback(provider=provider, name=model) for provider, _, model in parts]


def _calls(values: dict[str, Effective]) -> CallSettings:
    settings = _below(("calls",), values)
    return msgspec.convert({**settings, "family_floor_seconds": settings["family_floor_seconds"] or {}}, CallSettings)


def _fleet(values: dict[str, Effective]) -> FleetSettings:
    limits = msgspec.convert(_below(("fleet", "limits"), values), LimitSettings)
    budget = _below(("fleet", "budget"), values)
    budget |= {field: budget[field] or None for field in ("max_tokens", "max_cost_usd")}
    sections = {"limits": limits, "budget": msgspec.convert(budget, BudgetSettings)}
    return msgspec.convert({**_below(("fleet",), values), **sections}, FleetSettings)


def _below(section: keys.Path, values: dict[str, Effective]) -> dict[str, Value]:
    """The values directly below `section`, by the names of their fields."""
    return {field: values[".".join((*section, field))].value for field in keys.fields_of(section)}


def _warnings(file: str, values: dict[str, Effective]) -> list[ConfigWarning]:
    found = []
    for name in _names(values):
        limit = values[f"providers.{name}.max_concurrent"]
        if _for_all(limit.value) == 0 and is_zai(str(values[f"providers.{name}.base_url"].value)):
            message = "no limit, but Z.AI refuses calls above the account's; 2 is known to hold"
            found.append(ConfigWarning(file=file, line=limit.line, key=limit.key, message=message))
        found += _price_warnings(file, name, values)
    provider, model = values["model.provider"], values["model.name"]
    if (provider.value is None) != (model.value is None):
        missing, present = (provider, model) if provider.value is None else (model, provider)
        message = f"is not set, so there is no default model ({present.key} alone does not make one)"
        found.append(ConfigWarning(file=file, line=present.line, key=missing.key, message=message))
    return found


def _price_warnings(file: str, name: str, values: dict[str, Effective]) -> list[ConfigWarning]:
    found = []
    for section, model in _priced(name, values):
        path = ("providers", name, section, model)
        for field in _missing(_below(path, values)):
            present = next(values[".".join((*path, other))] for other in keys.fields_of(path) if other != field)
            means = "price: calls under a cap in money are refused" if section == "prices" else "price in credits"
            message = f"is not set, so {model} has no {means}"
            key = ".".join((*path, field))
            found.append(ConfigWarning(file=file, line=present.line, key=key, message=message))
    return found
