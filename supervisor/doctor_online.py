"""One small question to each provider with a key: whether it answers, takes the key, and is the plan that is meant."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ..actors.quota_reading import get, read_quota
from ..protocol.destination import is_zai, url_of
from ..protocol.quota import QuotaUnread, full_windows
from ..protocol.settings import ProviderSettings
from .doctor_findings import Finding, fail, ok, warn
from .doctor_providers import Plan, plan_of

ASK_S = 10.0


def check_online(providers: list[ProviderSettings], environ: Mapping[str, str]) -> list[Finding]:
    """Ask all of them at once. Costs no tokens; a key goes to no host but its own."""
    return asyncio.run(_check(providers, environ))


async def _check(providers: list[ProviderSettings], environ: Mapping[str, str]) -> list[Finding]:
    asked = [(one, environ.get(one.api_key_env or "", "").strip()) for one in providers]
    return await asyncio.gather(*(_ask(one, key) for one, key in asked if key or one.api_key_env is None))


async def _ask(provider: ProviderSettings, key: str) -> Finding:
    if is_zai(provider.base_url, provider.name):
        return await _ask_zai(provider, key)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    got = await get(f"{url_of(provider.base_url).rstrip('/')}/models", headers=headers, deadline_s=ASK_S)
    if isinstance(got, str):
        return fail("online", f"{provider.name} cannot be reached: {got}", "check base_url, proxy and network")
    if got.status in (401, 403):
        return fail(
            "online", f"{provider.name} does not take the key (HTTP {got.status})", f"check {provider.api_key_env}"
        )
    if got.status != 200:
        says = f"{provider.name} answers, but not with its models (HTTP {got.status})"
        return warn("online", says, "check base_url, unless the provider has no list of models")
    return ok("online", f"{provider.name} answers and takes the key" if key else f"{provider.name} answers")


async def _ask_zai(provider: ProviderSettings, key: str) -> Finding:
    found = await read_quota(provider.base_url, key, deadline_s=ASK_S)
    name = provider.name
    if isinstance(found, QuotaUnread):
        if found.is_key_refused:
            return fail("online", f"{name} does not take the key: {found.problem}", f"check {provider.api_key_env}")
        return warn("online", f"{name}: the quota is not known: {found.problem}", "look again; calls may work anyway")
    has_plan = any(window.blocks for window in found)
    if has_plan and plan_of(provider.base_url) is Plan.GENERAL:
        url = provider.base_url.replace("/api/paas/", "/api/coding/paas/")
        to_do = f"`covey config set providers.{name}.base_url {url}`"
        return fail("online", f"the key of {name} belongs to a coding plan, its URL does not", to_do)
    if full := full_windows(found):
        names = ", ".join(window.name for window in full)
        return warn(
            "online", f"{name} answers, but its quota is used up: {names}", "`covey budget quota` says until when"
        )
    return ok("online", f"{name} answers and takes the key" + ("; it has a coding plan" if has_plan else ""))
