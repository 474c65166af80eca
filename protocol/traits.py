"""How a target wants its requests: by host, dialect, model and configuration. Pure.

A host counts by its labels, a model by its family and version; whoever is not known gets the dialect alone. What is
said here of thinking only matters where a caller says how much of it there is to be.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .destination import host_of, is_zai
from .dialects.ask import Layout, Thinking, Traits
from .model_facts import model_facts
from .model_versions import claude_of, glm_of, gpt_of, stem_of
from .settings import Dialect, PromptCache, ProviderSettings

CACHE_KEY: Final = "prompt_cache_key"
_SESSION_ID: Final = "session_id"
_ROUTERS_EFFORTS: Final = ("minimal", "low", "medium", "high", "xhigh")
_AFFINITY_HEADERS: Final = (("opencode.ai", "x-opencode-session"), ("x.ai", "x-grok-conv-id"))
"""By domain: what routes a conversation to the machine that has its cache."""


def traits_of(provider: ProviderSettings, model: str) -> Traits:
    """How `provider` wants requests to `model`."""
    host = host_of(provider.base_url) or ""
    facts = model_facts(provider, model)
    known = _known(host, provider, model)
    thinks = known.thinking if facts.has_reasoning is not False else Thinking.NONE
    layout = _layout(host, provider, known.layout)
    header = next((name for domain, name in _AFFINITY_HEADERS if is_at(host, domain)), None)
    return msgspec.structs.replace(
        known,
        layout=layout,
        # Alibaba's caches hold for five minutes, whatever they are told.
        cache_hour=provider.prompt_cache is PromptCache.LONG and layout is not Layout.NONE and stem_of(model) != "qwen",
        thinking=thinks,
        affinity_header=provider.session_affinity_header or header,
        affinity_field=None if provider.prompt_cache is PromptCache.OFF else known.affinity_field,
        max_tokens=facts.max_output_tokens if provider.dialect is Dialect.ANTHROPIC else None,
        extra_headers=tuple(provider.extra_headers.items()),
    )


def is_at(host: str, domain: str) -> bool:
    """Whether a host is the domain's, by whole labels."""
    return host == domain or host.endswith(f".{domain}")


def _known(host: str, provider: ProviderSettings, model: str) -> Traits:
    """What host, dialect and model say; the configuration is not asked yet."""
    if is_zai(provider.base_url, provider.name):
        return _zai(provider.dialect, model)
    if provider.dialect is Dialect.ANTHROPIC:
        return _anthropic(host, model)
    if is_at(host, "openrouter.ai"):
        return _openrouter(provider.dialect, model)
    if is_at(host, "openai.com"):
        return _openai(provider.dialect, model)
    if is_at(host, "opencode.ai") and provider.dialect is Dialect.CHAT and stem_of(model) == "qwen":
        return Traits(layout=Layout.ENVELOPE)
    return Traits()


def _layout(host: str, provider: ProviderSettings, known: Layout) -> Layout:
    """Where breakpoints go; who asks for a time in the configuration knows that the provider understands them."""
    match provider.prompt_cache:
        case PromptCache.AUTO:
            return known
        case PromptCache.OFF:
            return Layout.NONE
    if provider.dialect is Dialect.ANTHROPIC:
        return Layout.BLOCKS
    is_refused = provider.dialect is Dialect.RESPONSES or is_at(host, "openai.com")
    return Layout.NONE if is_refused or is_zai(provider.base_url, provider.name) else Layout.ENVELOPE


def _zai(dialect: Dialect, model: str) -> Traits:
    """GLM before 4.5 knows no thinking, and from 5.3 on nothing else."""
    version = glm_of(model)
    if version is None or version < (4, 5) or dialect is Dialect.RESPONSES:
        return Traits()
    if dialect is Dialect.ANTHROPIC:
        return Traits(thinking=Thinking.BUDGET, always_thinks=version >= (5, 3))
    if version < (5, 2):
        return Traits(thinking=Thinking.SWITCH)
    if version < (5, 3):
        return Traits(thinking=Thinking.SWITCH, efforts=("high", "max"))
    return Traits(thinking=Thinking.SWITCH, efforts=("low", "high", "max"), always_thinks=True)


def _anthropic(host: str, model: str) -> Traits:
    is_cached = is_at(host, "anthropic.com") or is_at(host, "minimax.io") or is_at(host, "minimaxi.com")
    is_cached = is_cached or (is_at(host, "openrouter.ai") and claude_of(model) is not None)
    layout = Layout.BLOCKS if is_cached else Layout.NONE
    version = claude_of(model)
    if version is None or version < (3, 7):
        return Traits(layout=layout)
    if version < (4, 6):
        return Traits(layout=layout, thinking=Thinking.BUDGET)
    most = ("max",) if version < (4, 7) else ("xhigh", "max")
    return Traits(layout=layout, thinking=Thinking.ADAPTIVE, efforts=("low", "medium", "high", *most))


def _openrouter(dialect: Dialect, model: str) -> Traits:
    is_marked = dialect is Dialect.CHAT and stem_of(model) in ("claude", "kimi")
    glm = glm_of(model)
    return Traits(
        layout=Layout.ENVELOPE if is_marked else Layout.NONE,
        thinking=Thinking.OBJECT,
        efforts=_ROUTERS_EFFORTS,
        always_thinks=model == "openrouter/auto" or (glm is not None and glm >= (5, 3)),
        affinity_field=_SESSION_ID,
    )


def _openai(dialect: Dialect, model: str) -> Traits:
    known = gpt_of(model)
    field = (
        "max_tokens"
        if (known is not None and known.is_older) or dialect is Dialect.RESPONSES
        else "max_completion_tokens"
    )
    efforts = known.efforts if known is not None else ()
    return Traits(
        thinking=Thinking.EFFORT if efforts else Thinking.NONE,
        efforts=efforts,
        always_thinks="none" not in efforts,
        affinity_field=CACHE_KEY,
        max_tokens_field=field,
    )
