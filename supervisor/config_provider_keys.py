"""The keys of config.yaml that exist once for each provider, in the table's order."""

from __future__ import annotations

import re
from typing import Final

from ..protocol.messages.broker import Priority
from ..protocol.peak_hours import PATTERN as PEAK_PATTERN
from ..protocol.peak_hours import VALID as PEAK_VALID
from ..protocol.settings import Dialect, KeyStrategy, Price, PromptCache, ProviderSettings
from .config_composites import Counts, Mapping
from .config_kinds import Choice, Number, Text, Truth, Whole
from .config_places import Proxy, Url
from .config_row import Key

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
_SECONDS: Final = Number(0.1, 86_400)
_TOKENS: Final = Whole(1024, 10_000_000)
_FILE: Final = Text("the path of a PEM file", longest=4096)
_HEADER: Final = Text(
    "a header's name in lower case, none that carries a key or says who we are",
    re.compile(
        r"(?!(?:user-agent|(?:proxy-)?authorization|cookie|(?:x-)?api-key|content-.*|accept|accept-encoding|host|connection"
        r"|transfer-encoding|x-stainless-.*)$)[a-z][a-z0-9-]{0,63}"
    ),
)
_ASCII: Final = Text("text of printable ASCII", re.compile(r"[ -~]+"), longest=1000)
RATED: Final = ("prices", "credits")
"""Sections of a provider that hold a price for each model."""
OF_MODELS: Final = {"prices": "input", "credits": "input", "models": "context_window"}
"""Sections of a provider that hold something for each model, and the first key of each."""
_PROVIDER: Final = ProviderSettings(name="", base_url="")
_FREE: Final = Price(input=0, output=0)


def _timeout(name: str, meaning: str) -> Key:
    return Key(f"providers.<name>.timeouts.{name}_seconds", _SECONDS, None, meaning)


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

PROVIDER_KEYS: Final = (
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
        "providers.<name>.api_key_command",
        Text("a command and its arguments, as a shell would split them", longest=1000),
        None,
        "A command that prints its key, run without a shell and once for the whole fleet ([auth.md](auth.md)).",
    ),
    Key(
        "providers.<name>.key_strategy",
        Choice(tuple(strategy.value for strategy in KeyStrategy)),
        _PROVIDER.key_strategy.value,
        "Which of several keys a call takes.",
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
    _timeout("connect", "How long connecting may take."),
    _timeout("headers", "From the request to the answer's head."),
    _timeout("first_byte", "From the head to the first byte of the answer."),
    _timeout("first_content", "From the head to the first piece that says something."),
    _timeout("content", "Between two pieces that say something; keep-alives do not."),
    _timeout(
        "silence",
        "Between two pieces of any kind. Without one of these, the built-in time, or the model family's if longer.",
    ),
    Key(
        "providers.<name>.prompt_cache",
        Choice(tuple(mode.value for mode in PromptCache)),
        _PROVIDER.prompt_cache.value,
        "Whether requests mark what to cache, and for how long; `auto` where the provider is known to understand it.",
    ),
    Key(
        "providers.<name>.session_affinity_header",
        _HEADER,
        None,
        "A header that gets a hash of the conversation, for providers that route by one.",
    ),
    Key(
        "providers.<name>.extra_headers",
        Mapping(_ASCII, _HEADER, "{x-title: my fleet}"),
        None,
        "Headers for every call. They are no place for keys.",
    ),
    Key(
        "providers.<name>.proxy",
        Proxy(),
        None,
        "The proxy for its calls, `direct` for none. Without it, the environment's (`HTTPS_PROXY`, `NO_PROXY`).",
    ),
    Key(
        "providers.<name>.ca_bundle", _FILE, None, "The authorities its certificate is checked against, and no others."
    ),
    Key("providers.<name>.client_cert", _FILE, None, "The certificate we show, with its key unless that is apart."),
    Key("providers.<name>.client_key", _FILE, None, "The key of `client_cert`."),
    Key(
        "providers.<name>.models.<model>.context_window",
        _TOKENS,
        None,
        "Tokens the model takes, in and out. Without it, what was learned or is known ([models.md](models.md)).",
    ),
    Key(
        "providers.<name>.models.<model>.max_output_tokens", Whole(1, 10_000_000), None, "The longest answer it gives."
    ),
    Key(
        "providers.<name>.models.<model>.has_tools", Truth(), None, "Whether it calls tools; for `covey models` alone."
    ),
    Key("providers.<name>.models.<model>.has_images", Truth(), None, "Whether it sees images; the same."),
    Key("providers.<name>.models.<model>.has_reasoning", Truth(), None, "Whether it thinks before it answers."),
    *_price_rows("prices", "US dollars for", "a model has no price"),
    *_price_rows("credits", "What a plan counts, in its own units, for", "it counts nothing that is known"),
)
