"""What a user can configure, as facts: parsed and checked once (`supervisor/config`), trusted everywhere else."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .peak_hours import PeakHours

ZAI_BASE_URL = "https://api.z.ai/api/coding/paas/v4"
"""Z.AI's coding plan in the OpenAI shape (docs.z.ai)."""

ZAI_MAX_CONCURRENT = 2
"""Calls in flight a coding-plan key bears: reports range from 1 to 10 and change within weeks; 2 is what held."""


class Dialect(StrEnum):
    """The wire format a provider speaks."""

    CHAT = "chat"
    ANTHROPIC = "anthropic"
    RESPONSES = "responses"


class KeyStrategy(StrEnum):
    """Which key of several a call takes; keys that rest are passed over by all of them."""

    FILL_FIRST = "fill_first"
    """The first in the order they were added."""
    ROUND_ROBIN = "round_robin"
    LEAST_USED = "least_used"
    RANDOM = "random"


class PromptCache(StrEnum):
    """Whether requests say where the provider is to cache them, and for how long."""

    AUTO = "auto"
    """Where the provider is known to understand it."""
    OFF = "off"
    SHORT = "5m"
    LONG = "1h"


class Effort(StrEnum):
    """How much a model is asked to think. Providers that know fewer steps get the nearest one."""

    NONE = "none"
    """Not at all: thinking is switched off where the provider lets one."""
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    MAX = "max"


class Price(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model costs per million tokens: in US dollars (`prices`), or in credits of a plan (`credits`)."""

    input: float
    output: float
    cache_read: float | None = None
    """None costs what input does."""
    cache_write: float | None = None
    cache_write_1h: float | None = None
    """Into a cache for an hour; None costs what `cache_write` does."""
    request: float = 0.0
    """For each call, whatever it uses."""
    peak_hours: PeakHours | None = None
    """When the price is the full one; None: always."""
    off_peak_factor: float = 1.0
    """From 0 to 1: what is left of it outside of `peak_hours`."""


class TimeoutSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long a provider may be silent, in seconds; None: the built-in time, and no less than the model's family has.

    What is set here holds as it is, also where it is shorter than that.
    """

    connect_seconds: float | None = None
    headers_seconds: float | None = None
    """From the request to the answer's head."""
    first_byte_seconds: float | None = None
    """From the head to the first byte of the body."""
    first_content_seconds: float | None = None
    """From the head to the first piece that says something."""
    content_seconds: float | None = None
    """Between two pieces that say something; keep-alives say nothing."""
    silence_seconds: float | None = None
    """Between two pieces of any kind."""


class ModelOverride(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the configuration knows better about a model than the shipped table does; None: nothing."""

    context_window: int | None = None
    """Tokens, in and out."""
    max_output_tokens: int | None = None
    has_tools: bool | None = None
    has_images: bool | None = None
    has_reasoning: bool | None = None


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of `providers`."""

    name: str
    base_url: str
    dialect: Dialect = Dialect.CHAT
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; None for a provider that needs none."""
    api_key_command: str | None = None
    """A command whose output is the key; split like a shell would, and run without one."""
    key_strategy: KeyStrategy = KeyStrategy.FILL_FIRST
    max_concurrent: int | None = None
    """Calls in flight over all processes; None means that nobody counts (no budget)."""
    acquire_timeout_seconds: float = 0.0
    """How long a call waits for a slot before it fails locally; 0 waits without end."""
    model_limits: dict[str, int] = {}
    """Calls in flight of single models, inside `max_concurrent`."""
    release_lag_ms: float = 0.0
    """How long the provider goes on counting a call that is over; more is learned from its refusals."""
    priority_weights: dict[str, int] = {}
    """Shares of the slots by class of priority where classes compete; empty: the built-in ones."""
    max_requests_per_minute: int | None = None
    max_tokens_per_minute: int | None = None
    quota_poll_seconds: float | None = None
    """How often the account's quota is read while calls run; 0 never, None what the provider's kind suggests."""
    prices: dict[str, Price] = {}
    """By model. Caps in money refuse calls to models that are not in here."""
    credits: dict[str, Price] = {}
    """By model: what a plan counts."""
    models: dict[str, ModelOverride] = {}
    timeouts: TimeoutSettings = TimeoutSettings()
    prompt_cache: PromptCache = PromptCache.AUTO
    session_affinity_header: str | None = None
    """A header that gets the conversation's affinity key, for providers that route by one; name in lower case."""
    extra_headers: dict[str, str] = {}
    """Sent with every call; names in lower case. Never one that says who we are or carries a key."""
    proxy: str | None = None
    """The proxy for its calls; `direct` for none; None: what the environment says."""
    ca_bundle: str | None = None
    """A PEM file of the authorities its certificate is checked against, instead of the usual ones."""
    client_cert: str | None = None
    """A PEM file with the certificate (and key) we show."""
    client_key: str | None = None


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call goes that the model before it in the chain cannot answer."""

    provider: str
    name: str


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The default model: a provider's name and the model's name there."""

    provider: str
    name: str
    reasoning_effort: Effort | None = None
    """None: requests say nothing about it."""
    fallbacks: tuple[Fallback, ...] = ()
    """In the order they are tried."""


class CallSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`calls`: how long a call is worth trying. Waiting for a slot is in none of these."""

    total_seconds: float = 1800.0
    """One call: all its attempts, and the pauses between them."""
    retry_seconds: float = 600.0
    """Of these, what failed attempts and pauses at one target may take together."""
    breaker_stale_calls: int = 5
    """So many stale calls to one backend in a row, and it is left alone for a while; 0: never."""
    family_floor_seconds: dict[str, float] = {}
    """By the beginning of a model's name: no clock of its silence is shorter; before the built-in table."""


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`fleet.limits`: what one worker may use, and what has to be free before an agent is placed. 0 is no limit.

    Over a soft limit a worker gets no new agents, over a hard one it is replaced.
    """

    rss_mb_soft: int = 1024
    rss_mb_hard: int = 2048
    fds_soft: int = 4096
    fds_hard: int = 8192
    threads_soft: int = 64
    threads_hard: int = 128
    memory_headroom_mb: int = 256
    memory_pressure_percent: float = 40.0


class BudgetPeriod(StrEnum):
    """When the fleet's budget begins anew."""

    DAY = "day"
    MONTH = "month"
    LIFE = "life"
    """With every start of the fleet."""


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`fleet.budget`: what all calls of the fleet may use in one period. None is no limit."""

    max_tokens: int | None = None
    max_cost_usd: float | None = None
    period: BudgetPeriod = BudgetPeriod.DAY

    @property
    def has_limit(self) -> bool:
        """Whether there is anything to count."""
        return self.max_tokens is not None or self.max_cost_usd is not None


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `fleet` section."""

    workers: int = 2
    """Worker processes; 1 to 64."""
    max_agents: int = 1000
    """Agents alive at once in the whole fleet; more are refused."""
    max_spawn_depth: int = 3
    """How deep delegation may go below the first agent."""
    max_turns: int = 50
    """Model calls one agent may make for one goal."""
    listen: str | None = None
    """Where clients of other hosts come in, `tcp://HOST:PORT`; None lets nobody in."""
    limits: LimitSettings = LimitSettings()
    budget: BudgetSettings = BudgetSettings()


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of `config.yaml`, defaults filled in."""

    providers: dict[str, ProviderSettings] = {}
    model: ModelSettings | None = None
    calls: CallSettings = CallSettings()
    fleet: FleetSettings = FleetSettings()


def builtin_providers() -> dict[str, ProviderSettings]:
    """Providers that exist without being configured."""
    zai = ProviderSettings(
        name="zai", base_url=ZAI_BASE_URL, api_key_env="ZAI_API_KEY", max_concurrent=ZAI_MAX_CONCURRENT
    )
    return {"zai": zai}
