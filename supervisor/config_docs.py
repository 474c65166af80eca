"""docs/config.md, written from the key table: `python -m covey.supervisor.config_docs > docs/config.md`."""

from __future__ import annotations

import sys

from ..protocol.settings import ProviderSettings, builtin_providers
from .config_keys import KEYS, Key, provider_keys
from .config_kinds import Value, write_plain
from .config_text import DEEPEST, MOST_BYTES

_OPENING = """\
# config.yaml

<!-- Written by `python -m covey.supervisor.config_docs`; a test compares. -->

`config.yaml` in the home directory (`$COVEY_HOME`, or else `~/.covey`) holds all behaviour that can be configured.
A missing or empty file is all defaults. Environment variables carry secrets and the location of the home, nothing else.

```yaml
providers:
  zai:
    max_concurrent: 2
  local:
    base_url: http://127.0.0.1:8080/v1
model:
  provider: zai
  name: glm-4.6
```

- `covey config get [KEY]` prints effective values and where each comes from.
- `covey config set KEY VALUE` changes one value and leaves every other character of the file alone.
- `covey config check` reports everything that is wrong.

A file is accepted whole or refused whole, with file, line, key and what would be valid; `set` writes nothing when the
file is invalid, or would be. A `model` with only one of its two keys is no default model and gives a warning.

A running fleet reads the file again when it changes, within a second. Limits, weights, prices and `fleet.budget` hold
for the next call, and calls that run keep their slots; the other keys hold for agents that start from then on. Only
`fleet.workers`, `fleet.max_agents` and `fleet.listen` wait for the next start; the root's log says so.
A file that is refused, or gone, changes nothing: the last good one holds, and `covey status` says what is wrong.

A limit for single models stands inside the provider's, and `*` is the provider's:

```yaml
providers:
  zai:
    max_concurrent: {"*": 2, glm-5-turbo: 1}
    prices:
      glm-4.6: {input: 0.6, output: 2.2, cache_read: 0.11}
    credits:
      glm-5.3: {input: 690, output: 2400, cache_read: 170, peak_hours: Mon-Fri 14:00-18:00 +08:00, off_peak_factor: 0.5}
fleet:
  budget: {max_cost_usd: 20, period: day}
```

## Keys
"""

_CLOSING = """\
## What is not read

Anchors, aliases, tags and merge keys; tabs outside of quotes and comments; a key that stands twice; more than
{bytes} KiB or {depth} levels; an inline `api_key`. `0x10`, `010`, `1_000` and `1:30` are text; `yes`, `no`, `on`
and `off` are truth values, whatever their case; numbers in quotes are text.
"""


def page() -> str:
    """The page as it shall be in docs/."""
    closing = _CLOSING.format(bytes=MOST_BYTES // 1024, depth=DEEPEST)
    return "\n".join((_OPENING, _table(KEYS), "## Built-in providers\n", _builtins(), closing))


def _table(keys: tuple[Key, ...]) -> str:
    rows = [
        f"| `{key.pattern}` | {key.kind.valid} | {_code(key.default)} | {key.meaning} |" for key in keys
    ]  # fmt: skip
    return "\n".join(("| key | valid | default | meaning |", "|---|---|---|---|", *rows)) + "\n"


def _builtins() -> str:
    return "\n".join(_builtin(name, provider) for name, provider in builtin_providers().items())


def _builtin(name: str, provider: ProviderSettings) -> str:
    rows = [
        f"| `providers.{name}.{key.field}` | {_code(value)} |"
        for key in provider_keys()
        if (value := getattr(provider, key.field, None)) not in (None, {}, key.default)
    ]
    return "\n".join(("| key | value |", "|---|---|", *rows)) + "\n"


def _code(value: Value) -> str:
    return "none" if value is None else f"`{write_plain(value)}`"


if __name__ == "__main__":
    sys.stdout.write(page())
