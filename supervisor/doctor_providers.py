"""What can be told about providers without asking them: keys, URLs and plans that do not go together. Pure.

Z.AI has two kinds of account at the same host. A key of one at the URL of the other is refused with a code that says
`insufficient balance` (1113), which sends people to the wrong desk; so the URL is looked at first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from ..protocol.destination import budget_key, fingerprint, host_of, is_zai, place_of, url_of
from ..protocol.settings import ZAI_BASE_URL, ProviderSettings, Settings
from .doctor_findings import Finding, fail, ok, warn

KEYS: Final = "keys"
URLS: Final = "urls"
MODEL: Final = "model"


class Plan(Enum):
    """What a URL of Z.AI is for."""

    CODING = "the coding plan"
    GENERAL = "pay as you go"
    UNKNOWN = "unknown"


def plan_of(base_url: str) -> Plan:
    """Which kind of account answers at a URL of Z.AI."""
    place = place_of(base_url)
    path = place.path.rstrip("/") + "/" if place is not None else ""
    if path.startswith(("/api/coding/", "/api/anthropic/")):
        return Plan.CODING
    return Plan.GENERAL if path.startswith("/api/paas/") else Plan.UNKNOWN


def check_providers(
    settings: Settings,
    configured: frozenset[str],
    environ: Mapping[str, str],
    *,
    at_root: frozenset[str] | None,
    stored: frozenset[str] = frozenset(),
) -> Iterator[Finding]:
    """Look at keys and URLs. `configured` are the providers that config.yaml names; the others are only built in.

    `at_root` are the names of the variables that the running fleet was started with, None where none runs; `stored` the
    providers that have keys in the home.
    """
    yield _check_model(settings)
    default = settings.model.provider if settings.model else None
    used = [one for one in settings.providers.values() if one.name in configured or one.name == default]
    for provider in used:
        if provider.name in stored:
            yield ok(KEYS, f"{provider.name}: its keys are kept in the home (`covey auth list`)")
        elif provider.api_key_command is not None:
            yield ok(KEYS, f"{provider.name}: a command prints its key (`covey auth test {provider.name}`)")
        else:
            yield from _check_key(provider, environ, is_default=provider.name == default, at_root=at_root)
        if is_zai(provider.base_url, provider.name):
            yield from _check_zai(provider)
        elif (
            url_of(provider.base_url).startswith("http://")
            and _is_remote(provider.base_url)
            and (provider.api_key_env or provider.api_key_command or provider.name in stored)
        ):
            yield _in_clear(provider)
    yield from _check_pairs([one for one in used if is_zai(one.base_url, one.name)])


def _check_model(settings: Settings) -> Finding:
    model = settings.model
    if model is None:
        todo = "`covey config set model.provider NAME` and `covey config set model.name NAME`, or say --model each time"
        return warn(MODEL, "there is no default model", todo)
    return ok(MODEL, f"the default model is {model.provider}/{model.name}")


def _check_key(
    provider: ProviderSettings, environ: Mapping[str, str], *, is_default: bool, at_root: frozenset[str] | None
) -> Iterator[Finding]:
    variable = provider.api_key_env
    if variable is None:
        if is_zai(provider.base_url, provider.name):
            set_variable = f"`covey config set providers.{provider.name}.api_key_env ZAI_API_KEY`"
            to_do = f"`covey auth add {provider.name}`, or {set_variable}"
            yield fail(KEYS, f"{provider.name} has no api_key_env, and Z.AI takes no call without a key", to_do)
        else:
            yield ok(KEYS, f"{provider.name} needs no key")
        return
    key = environ.get(variable, "").strip()
    if not key and at_root is not None and variable in at_root:
        yield ok(KEYS, f"{provider.name}: the running fleet has {variable}, here it is not set")
        return
    if not key:
        make = fail if is_default else warn
        to_do = f"`covey auth add {provider.name}`, or export {variable}=… where covey is started"
        yield make(KEYS, f"{provider.name}: {variable} is not set", to_do)
        return
    if not (key.isascii() and key.isprintable()):
        to_do = "copy it again, without line breaks and typographic characters"
        yield fail(KEYS, f"{provider.name}: the key in {variable} holds characters that no key has", to_do)
        return
    if at_root is not None and variable not in at_root:
        to_do = "`covey down`, then `covey up` from here"
        yield fail(KEYS, f"{provider.name}: the running fleet was started without {variable}", to_do)
        return
    budget = budget_key(provider.name, fingerprint(key))
    yield ok(
        KEYS, f"{provider.name}: the key is in {variable}" + (f", budget {budget}" if provider.max_concurrent else "")
    )


def _check_zai(provider: ProviderSettings) -> Iterator[Finding]:
    set_url = f"`covey config set providers.{provider.name}.base_url URL`"
    if not url_of(provider.base_url).startswith("https://"):
        yield _in_clear(provider)
    match plan_of(provider.base_url):
        case Plan.GENERAL:
            says = f"{provider.name} is at the pay-as-you-go URL; a key of the coding plan is refused there with 1113"
            coding = provider.base_url.replace("/api/paas/", "/api/coding/paas/")
            yield warn(URLS, says, f"with a coding plan: {set_url} with {coding}; with credit: nothing")
        case Plan.UNKNOWN:
            says = f"{provider.name}: no account of Z.AI is known to answer at {provider.base_url}"
            yield warn(URLS, says, f"{set_url}, for the coding plan with {ZAI_BASE_URL}")
        case Plan.CODING:
            yield ok(URLS, f"{provider.name} is at the URL of the coding plan")


def _check_pairs(providers: list[ProviderSettings]) -> Iterator[Finding]:
    """One key is good for one kind of account on one of the two hosts."""
    for at, one in enumerate(providers):
        for other in providers[at + 1 :]:
            if one.api_key_env is None or one.api_key_env != other.api_key_env:
                continue
            to_do = f"give each its own api_key_env; one of them is refused with {one.api_key_env}"
            if host_of(one.base_url) != host_of(other.base_url):
                yield warn(URLS, f"{one.name} and {other.name} share a key, but keys hold for one host", to_do)
            elif plan_of(one.base_url) is not plan_of(other.base_url):
                yield warn(URLS, f"{one.name} and {other.name} share a key, but not a plan", to_do)


def _in_clear(provider: ProviderSettings) -> Finding:
    to_do = f"`covey config set providers.{provider.name}.base_url https://…`"
    return fail(URLS, f"{provider.name}: its key would travel readable, over http", to_do)


def _is_remote(base_url: str) -> bool:
    host = host_of(base_url) or ""
    return not (host in ("localhost", "::1") or host.startswith(("127.", "10.", "192.168.", "172.")))
