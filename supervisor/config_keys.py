"""Every key of config.yaml, in one table: kind, range, default, meaning.

Validation, `covey config`, and docs/config.md all read it. `<name>` stands for a provider's name.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

from ..protocol.settings import (
    BudgetPeriod,
    CallSettings,
    Effort,
    FleetSettings,
)
from .config_composites import Listing, Mapping
from .config_kinds import Bound, Choice, Number, Text, Whole
from .config_places import Tcp
from .config_provider_keys import BASE_URL, MODEL_NAME, OF_MODELS, PROVIDER_KEYS, PROVIDER_NAME, RATED
from .config_row import MODEL, NAME, Key, Path

__all__ = ["BASE_URL", "KEYS", "MODEL", "MODEL_NAME", "NAME", "OF_MODELS", "PROVIDER_NAME", "RATED", "Key", "Path"]

_CALLS: Final = CallSettings()
_FLEET: Final = FleetSettings()
_LIMITS: Final = _FLEET.limits
KEYS: Final = (
    *PROVIDER_KEYS,
    Key("model.provider", PROVIDER_NAME, None, "The provider of the default model: one of `providers`."),
    Key("model.name", MODEL_NAME, None, "The default model."),
    Key(
        "model.reasoning_effort",
        Choice(tuple(effort.value for effort in Effort)),
        None,
        "How much the model is asked to think; `none` asks it not to. Without it, requests say nothing about it.",
    ),
    Key(
        "model.fallbacks",
        Listing(Text("PROVIDER/MODEL", re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}/\S.*"))),
        None,
        "Where calls go that the model before cannot answer, in this order ([calls.md](calls.md)).",
    ),
    Key(
        "calls.total_seconds",
        Number(1, 86_400),
        _CALLS.total_seconds,
        "How long one call may take with all its attempts; waiting for slots is not counted.",
    ),
    Key(
        "calls.retry_seconds",
        Number(0, 86_400, "tries once"),
        _CALLS.retry_seconds,
        "Of these, what failed attempts at one model and the pauses between them may take.",
    ),
    Key(
        "calls.breaker_stale_calls",
        Whole(0, 1000, "never"),
        _CALLS.breaker_stale_calls,
        "So many stale calls in a row to one model at one provider, and it is left alone for a while.",
    ),
    Key(
        "calls.family_floor_seconds",
        Mapping(Number(0, 3600), MODEL_NAME, "{deepseek-r1: 600}"),
        None,
        "By the beginning of a model's name: how long it may at least be silent. Before the built-in table.",
    ),
    Key("fleet.workers", Whole(1, 64), _FLEET.workers, "Worker processes."),
    Key(
        "fleet.max_agents",
        Whole(1, 100_000),
        _FLEET.max_agents,
        "Agents alive at once in the whole fleet; more are refused.",
    ),
    Key(
        "fleet.max_spawn_depth",
        Whole(0, 32, "forbids delegation"),
        _FLEET.max_spawn_depth,
        "How deep delegation may go below the first agent.",
    ),
    Key("fleet.max_turns", Whole(1, 10_000), _FLEET.max_turns, "Model calls one agent may make for one goal."),
    Key(
        "fleet.listen",
        Tcp(),
        _FLEET.listen,
        "Where clients of other hosts come in; needs keys ([remote.md](remote.md)). Without it nobody does.",
    ),
    Key(
        "fleet.limits.rss_mb_soft",
        Bound(128, 1_048_576),
        _LIMITS.rss_mb_soft,
        "Resident memory (MiB) of a worker above which it gets no new agents; when it has none left, it is replaced.",
    ),
    Key(
        "fleet.limits.rss_mb_hard",
        Bound(128, 1_048_576),
        _LIMITS.rss_mb_hard,
        "Resident memory (MiB) of a worker above which it is replaced; its agents resume.",
    ),
    Key("fleet.limits.fds_soft", Bound(128, 1_048_576), _LIMITS.fds_soft, "The same for its open files."),
    Key("fleet.limits.fds_hard", Bound(128, 1_048_576), _LIMITS.fds_hard, "The same for its open files."),
    Key("fleet.limits.threads_soft", Bound(16, 65_536), _LIMITS.threads_soft, "The same for its threads."),
    Key("fleet.limits.threads_hard", Bound(16, 65_536), _LIMITS.threads_hard, "The same for its threads."),
    Key(
        "fleet.limits.memory_headroom_mb",
        Whole(0, 1_048_576, "is no limit"),
        _LIMITS.memory_headroom_mb,
        "Memory (MiB) that has to be available on the host and in the fleet's control group; with less, agents wait.",
    ),
    Key(
        "fleet.limits.memory_pressure_percent",
        Number(0, 100, "is no limit"),
        _LIMITS.memory_pressure_percent,
        "Time in which something waited for memory (PSI, `some avg10`); with more, agents wait.",
    ),
    Key(
        "fleet.budget.max_tokens",
        Whole(0, 1_000_000_000_000, "is no limit"),
        0,
        "Tokens, in and out, that all calls of the fleet may use in a period; a call that does not fit is not made.",
    ),
    Key(
        "fleet.budget.max_cost_usd",
        Number(0, 1_000_000_000, "is no limit"),
        0,
        "The same in US dollars, by `prices`; calls to models without a price are not made.",
    ),
    Key(
        "fleet.budget.period",
        Choice(tuple(period.value for period in BudgetPeriod)),
        _FLEET.budget.period.value,
        "When it begins anew: at midnight, on the first of a month (local time), or when the fleet starts.",
    ),
)

SOFT_AND_HARD: Final = tuple(
    (("fleet", "limits", f"{what}_soft"), ("fleet", "limits", f"{what}_hard")) for what in ("rss_mb", "fds", "threads")
)
"""Keys of limits that have to stand in this order."""

_BY_PATH: Final = {key.path: key for key in KEYS}
_SECTIONS: Final = {path[:length] for path in _BY_PATH for length in range(len(path))}


def find_key(path: Path) -> Key | None:
    """Find the row for `path`; None if it is no key."""
    return _BY_PATH.get(_generic(path))


def is_section(path: Path) -> bool:
    """Whether `path` holds other keys."""
    return _generic(path) in _SECTIONS


def names_below(path: Path) -> tuple[str, ...]:
    """What may stand directly below the section `path`, in the table's order; `<name>` for any name."""
    generic = _generic(path)
    below = (key.path for key in KEYS if key.path[: len(generic)] == generic)
    return tuple(dict.fromkeys(part[len(generic)] for part in below if len(part) > len(generic)))


def fields_of(section: Path) -> tuple[str, ...]:
    """The keys directly below `section`, without what is a section itself."""
    generic = _generic(section)
    return tuple(key.field for key in KEYS if key.path[:-1] == generic)


def provider_keys() -> tuple[Key, ...]:
    """The rows that exist once for each provider."""
    return tuple(key for key in KEYS if NAME in key.path and MODEL not in key.path)


def is_of_model(path: Path) -> bool:
    """Whether `path` is the section of one model: its price in money or credits, or what is known of it."""
    return len(path) == 4 and _generic(path)[3] == MODEL


def model_keys(section: str) -> tuple[Key, ...]:
    """The rows that exist once for each model in this section."""
    return tuple(key for key in KEYS if MODEL in key.path and section in key.path)


def split_key(text: str) -> Path:
    """Read a key as people write it; names of models may have dots in them."""
    parts = tuple(text.split("."))
    if not is_section(parts[:3]) or names_below(parts[:3]) != (MODEL,) or len(parts) <= 4:
        return parts
    fields = names_below((*parts[:3], MODEL))
    end = len(parts) - (parts[-1] in fields)
    return (*parts[:3], ".".join(parts[3:end]), *parts[end:])


def nearest(path: Path) -> str | None:
    """Guess which key was meant by the unknown `path`: a misspelt sibling, or the same name in another section."""
    *parent, name = path
    siblings = [word for word in names_below(tuple(parent)) if word not in (NAME, MODEL)]
    if close := difflib.get_close_matches(name.lower().replace("-", "_"), siblings, n=1):
        return ".".join((*parent, close[0]))
    return next((key.pattern for key in KEYS if key.field == name), None)


def _generic(path: Path) -> Path:
    if len(path) < 2 or path[0] != "providers":
        return path
    if path[2:3] and path[2] in OF_MODELS and len(path) > 3:
        return (path[0], NAME, path[2], MODEL, *path[4:])
    return (path[0], NAME, *path[2:])
