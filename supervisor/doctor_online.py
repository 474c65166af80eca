"""One small question with each key of a provider: whether it answers, takes the key, and is the plan that is meant."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ..actors.http.clients import Clients
from ..actors.ports import Key
from ..actors.quota_reading import Got, read_quota
from ..protocol.destination import is_zai
from ..protocol.errors import CoveyError
from ..protocol.messages.broker import QuotaWindow
from ..protocol.quota import QuotaUnread, full_windows, is_key_refused
from ..protocol.settings import ProviderSettings
from .command_keys import CommandKeys, Unfetched, command_keys
from .doctor_findings import Finding, fail, ok, warn
from .doctor_providers import Plan, plan_of
from .home import Home
from .models_request import ask_models_at, can_be_sent, models_url

ONLINE = "online"
ASK_S = 10.0

_REFUSED = (401, 403)


def check_online(
    home: Home, used: Sequence[ProviderSettings], providers: Mapping[str, ProviderSettings], environ: Mapping[str, str]
) -> list[Finding]:
    """Ask those that are used, with the keys that calls go out with. Costs no tokens, shows a key to no other host.

    A login whose token has ended is renewed, as a call would have it.
    """
    return asyncio.run(_check(home, used, providers, environ))


async def _check(
    home: Home, used: Sequence[ProviderSettings], providers: Mapping[str, ProviderSettings], environ: Mapping[str, str]
) -> list[Finding]:
    mended: list[str] = []
    clients = Clients(environment=environ)
    try:
        async with command_keys(home, providers, environ, warn=mended.append) as keys:
            found = await asyncio.gather(*(_of_provider(keys, clients, one) for one in used))
    except CoveyError as error:
        return [fail(ONLINE, f"nobody was asked: {error}", "see above; `covey auth list` shows the keys")]
    finally:
        await clients.close()
    said = [warn(ONLINE, text, "`covey auth list` says whose keys are concerned") for text in mended]
    return [*said, *(finding for findings in found for finding in findings)]


async def _of_provider(keys: CommandKeys, clients: Clients, provider: ProviderSettings) -> list[Finding]:
    """One finding for each of its keys; none where it has none and needs one, which was said before."""
    there = await keys.every(provider)
    if not there and provider.api_key_env is None:
        return [await _ask(keys, clients, provider, Key(secret=None, fingerprint=None), provider.name)]
    names = [provider.name if len(there) == 1 else f"{provider.name} with {key.label}" for key in there]
    # One after the other: a pool that asks all at once would look like something else.
    return [await _of_key(keys, clients, provider, key, name) for key, name in zip(there, names, strict=True)]


async def _of_key(
    keys: CommandKeys, clients: Clients, provider: ProviderSettings, key: Key | Unfetched, name: str
) -> Finding:
    if isinstance(key, Unfetched):
        return fail(ONLINE, f"{name}: its key is not to be had: {key.reason}", f"`covey auth test {provider.name}`")
    if not can_be_sent((key.secret or "").strip()):
        to_do = "copy it again, without line breaks and typographic characters"
        return fail(ONLINE, f"{name}: the key holds characters that no key has", to_do)
    if is_zai(provider.base_url, provider.name):
        return await _ask_zai(keys, clients, provider, key, name)
    return await _ask(keys, clients, provider, key, name)


async def _ask(keys: CommandKeys, clients: Clients, provider: ProviderSettings, key: Key, name: str) -> Finding:
    async def models(secret: str) -> Got | str:
        return await ask_models_at(clients, provider, models_url(provider), secret, deadline_s=ASK_S)

    got = await keys.asked(
        provider, key, models, is_refused=lambda got: isinstance(got, Got) and got.status in _REFUSED
    )
    if isinstance(got, str):
        return fail(ONLINE, f"{name} cannot be reached: {got}", "check base_url, proxy, certificates and network")
    if got.status in _REFUSED:
        wants = "does not take the key" if key.secret else "wants a key"
        return fail(ONLINE, f"{name} {wants} (HTTP {got.status})", _to_mend(provider, key))
    if got.status != 200:
        says = f"{name} answers, but not with its models (HTTP {got.status})"
        return warn(ONLINE, says, "check base_url, unless the provider has no list of models")
    return ok(ONLINE, f"{name} answers and takes the key" if key.secret else f"{name} answers")


async def _ask_zai(keys: CommandKeys, clients: Clients, provider: ProviderSettings, key: Key, name: str) -> Finding:
    async def read(secret: str) -> tuple[QuotaWindow, ...] | QuotaUnread:
        return await read_quota(clients, provider, secret, deadline_s=ASK_S)

    found = await keys.asked(provider, key, read, is_refused=is_key_refused)
    if not isinstance(found, QuotaUnread):
        return _of_plan(provider, found, name)
    if found.is_key_refused:
        return fail(ONLINE, f"{name} does not take the key: {found.problem}", _to_mend(provider, key))
    return warn(ONLINE, f"{name}: the quota is not known: {found.problem}", "look again; calls may work anyway")


def _of_plan(provider: ProviderSettings, windows: Sequence[QuotaWindow], name: str) -> Finding:
    has_plan = any(window.blocks for window in windows)
    if has_plan and plan_of(provider.base_url) is Plan.GENERAL:
        url = provider.base_url.replace("/api/paas/", "/api/coding/paas/")
        to_do = f"`covey config set providers.{provider.name}.base_url {url}`"
        return fail(ONLINE, f"the key of {name} belongs to a coding plan, its URL does not", to_do)
    if full := full_windows(windows):
        names = ", ".join(window.name for window in full)
        return warn(
            ONLINE, f"{name} answers, but its quota is used up: {names}", "`covey budget quota` says until when"
        )
    return ok(ONLINE, f"{name} answers and takes the key" + ("; it has a coding plan" if has_plan else ""))


def _to_mend(provider: ProviderSettings, key: Key) -> str:
    if key.label == provider.api_key_env:
        return f"check {provider.api_key_env}"
    return f"`covey auth list {provider.name}`, then `covey auth add {provider.name}`"
