"""Every key of config.yaml, in one table: kind, range, default, meaning.

Validation, `covey config`, and docs/config.md all read it. `<name>` stands for a provider's name.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

from ..protocol.messages.broker import Priority
from ..protocol.peak_hours import PATTERN as PEAK_PATTERN
from ..protocol.peak_hours import VALID as PEAK_VALID
from ..protocol.settings import BudgetPeriod, Dialect, FleetSettings, Price, ProviderSettings
from .config_kinds import Bound, Choice, Counts, Kind, Number, Scalar, Tcp, Text, Url, Whole

Path = tuple[str, ...]
"""A key in its parts: ("providers", "zai", "max_concurrent")."""

NAME: Final = "<name>"
MODEL: Final = "<model>"

PROVIDER_NAME: Final = Text(
    "a name of 1 to 64 letters, digits, _ and -, quoted if YAML would read it as something else",
    re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"),
)
MODEL_NAME: Final = Text("a model's name, as its provider spells it")
_VARIABLE: Final = Text(
    "the name of an environment variable, such as ZAI_API_KEY (not the key itself)",
    re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}"),
    is_shown=False,
)
_PRICE: Final = Number(0, 1_000_000)
_PEAK: Final = Text(PEAK_VALID, PEAK_PATTERN)
RATED: Final = ("prices", "credits")
"""Sections of a provider that hold a price for each model."""
_FLEET: Final = FleetSettings()
_LIMITS: Final = _FLEET.limits
_PROVIDER: Final = ProviderSettings(name="", base_url="")
_FREE: Final = Price(input=0, output=0)


@dataclass(frozen=True, slots=True)
class Key:
    """One row of the table. A default of None means that there is none."""

    pattern: str
    kind: Kind
    default: Scalar
    meaning: str

    @property
    def path(self) -> Path:
        """The pattern in its parts."""
        return tuple(self.pattern.split("."))

    @property
    def field(self) -> str:
        """The last part: the name of the field in `protocol.settings`."""
        return self.path[-1]


def _price_rows(section: str, unit: str, otherwise: str) -> tuple[Key, ...]:
    """A price for each model, in one of its two units."""
    below = f"providers.<name>.{section}.<model>"
    return (
        Key(
            f"{below}.input",
            _PRICE,
            None,
            f"{unit} a million tokens of input from no cache. Without this and `output`, {otherwise}.",
        ),
        Key(f"{below}.output", _PRICE, None, "The same for output, reasoning included."),
        Key(f"{below}.cache_read", _PRICE, None, "For input from a cache; without it, as `input`."),
        Key(f"{below}.cache_write", _PRICE, None, "For input put into a cache; as above."),
        Key(f"{below}.cache_write_1h", _PRICE, None, "The same for an hour; without it, as `cache_write`."),
        Key(f"{below}.request", _PRICE, _FREE.request, f"{unit} each call, whatever it uses."),
        Key(
            f"{below}.peak_hours",
            _PEAK,
            None,
            "When this is the full price; without it, always. Caps count the full one.",
        ),
        Key(f"{below}.off_peak_factor", Number(0, 1), _FREE.off_peak_factor, "What is left of it at other times."),
    )


BASE_URL: Final = Key(
    "providers.<name>.base_url",
    Url(),
    None,
    "Where the provider is. Required, except for providers that are built in.",
)

KEYS: Final = (
    BASE_URL,
    Key(
        "providers.<name>.dialect",
        Choice(tuple(dialect.value for dialect in Dialect)),
        _PROVIDER.dialect.value,
        "The wire format it speaks.",
    ),
    Key(
        "providers.<name>.api_key_env",
        _VARIABLE,
        None,
        "The environment variable that holds its key. Without it, calls carry no key.",
    ),
    Key(
        "providers.<name>.max_concurrent",
        Counts(Whole(0, 10_000, "is no limit"), MODEL_NAME),
        0,
        "Calls in flight at once, over all processes of the fleet and all its clients; a model's own is inside of it.",
    ),
    Key(
        "providers.<name>.acquire_timeout_seconds",
        Number(0, 86_400, "waits without end"),
        _PROVIDER.acquire_timeout_seconds,
        "How long a call waits for a slot before it fails without having been made.",
    ),
    Key(
        "providers.<name>.release_lag_ms",
        Number(0, 60_000),
        _PROVIDER.release_lag_ms,
        "How long the provider goes on counting a call that is over; more is learned from its refusals.",
    ),
    Key(
        "providers.<name>.max_requests_per_minute",
        Whole(0, 1_000_000, "is no limit"),
        0,
        "Calls that start within 60 seconds.",
    ),
    Key(
        "providers.<name>.max_tokens_per_minute",
        Whole(0, 1_000_000_000, "is no limit"),
        0,
        "Tokens, in and out, of calls that start within 60 seconds: estimated at the start, corrected at the end.",
    ),
    Key(
        "providers.<name>.quota_poll_seconds",
        Number(0, 86_400, "never reads it"),
        _PROVIDER.quota_poll_seconds,
        "How often the account's quota is read while calls run. Without it, what suits the provider.",
    ),
    *(
        Key(
            f"providers.<name>.priority_weights.{priority.value}",
            Whole(1, 1000),
            None,
            f"Share of the slots for calls of class {priority.value} while classes compete. Without it, the usual one.",
        )
        for priority in Priority
    ),
    *_price_rows("prices", "US dollars for", "a model has no price"),
    *_price_rows("credits", "What a plan counts, in its own units, for", "it counts nothing that is known"),
    Key("model.provider", PROVIDER_NAME, None, "The provider of the default model: one of `providers`."),
    Key("model.name", MODEL_NAME, None, "The default model."),
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


def is_price(path: Path) -> bool:
    """Whether `path` is the section of one model's price, in money or credits."""
    return len(path) == 4 and _generic(path)[3] == MODEL


def price_keys(section: str) -> tuple[Key, ...]:
    """The rows that exist once for each model with a price in this section."""
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
    if path[2:3] and path[2] in RATED and len(path) > 3:
        return (path[0], NAME, path[2], MODEL, *path[4:])
    return (path[0], NAME, *path[2:])
