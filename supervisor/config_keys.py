"""Every key of config.yaml, in one table: kind, range, default, meaning.

Validation, `covey config`, and docs/config.md all read it. `<name>` stands for a provider's name.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

from ..protocol.settings import Dialect, FleetSettings, ProviderSettings
from .config_kinds import Choice, Kind, Number, Scalar, Tcp, Text, Url, Whole

Path = tuple[str, ...]
"""A key in its parts: ("providers", "zai", "max_concurrent")."""

NAME: Final = "<name>"

PROVIDER_NAME: Final = Text(
    "a name of 1 to 64 letters, digits, _ and -, quoted if YAML would read it as something else",
    re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"),
)
_VARIABLE: Final = Text(
    "the name of an environment variable, such as ZAI_API_KEY (not the key itself)",
    re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}"),
    is_shown=False,
)
_FLEET: Final = FleetSettings()
_PROVIDER: Final = ProviderSettings(name="", base_url="")


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
        Whole(0, 10_000, "is no limit"),
        0,
        "Calls in flight at once, over all processes of the fleet and all its clients.",
    ),
    Key(
        "providers.<name>.acquire_timeout_seconds",
        Number(0, 86_400, "waits without end"),
        _PROVIDER.acquire_timeout_seconds,
        "How long a call waits for a slot before it fails without having been made.",
    ),
    Key("model.provider", PROVIDER_NAME, None, "The provider of the default model: one of `providers`."),
    Key("model.name", Text("a model's name, as its provider spells it"), None, "The default model."),
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
)

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


def provider_keys() -> tuple[Key, ...]:
    """The rows that exist once for each provider."""
    return tuple(key for key in KEYS if NAME in key.path)


def nearest(path: Path) -> str | None:
    """Guess which key was meant by the unknown `path`: a misspelt sibling, or the same name in another section."""
    *parent, name = path
    siblings = [word for word in names_below(tuple(parent)) if word != NAME]
    if close := difflib.get_close_matches(name.lower().replace("-", "_"), siblings, n=1):
        return ".".join((*parent, close[0]))
    return next((key.pattern for key in KEYS if key.field == name), None)


def _generic(path: Path) -> Path:
    return (path[0], NAME, *path[2:]) if len(path) > 1 and path[0] == "providers" else path
