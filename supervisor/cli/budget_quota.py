"""`covey budget quota`: what is left of the accounts' plans, read from their providers now, with or without a fleet."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...actors.quota_reading import read_quota
from ...protocol.destination import budget_key, fingerprint, provider_for
from ...protocol.errors import CoveyError, UsageError
from ...protocol.ids import BudgetKey
from ...protocol.messages.broker import Destination, ProviderLimit, QuotaSeen, QuotaWindow
from ...protocol.quota import QuotaUnread, full_windows, reads_quota
from ..config import load
from ..quick import ask_broker
from ..running import running_root
from .budget_list import ASK_S
from .budget_words import printable, quota_words
from .output import console, print_json, table

if TYPE_CHECKING:
    from ...protocol.settings import ProviderSettings
    from ..home import Home


@dataclass(frozen=True, slots=True)
class Account:
    """Whose quota is read."""

    provider: str
    base_url: str
    api_key: str
    budget: BudgetKey | None
    """None for an account whose calls nobody counts."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of it. `is_told` says whether the running fleet knows by now; None if none had to be told."""

    account: Account
    found: tuple[QuotaWindow, ...] | QuotaUnread
    is_told: bool | None


def quota(home: Home, provider: str | None, *, as_json: bool) -> int:
    """Read and show; exit code 1 if an account could not be read."""
    accounts = accounts_of(load(home.config).settings.providers, provider, os.environ)
    found = asyncio.run(_read(accounts))
    readings = [
        Reading(account, windows, _tell(home, account, windows))
        for account, windows in zip(accounts, found, strict=True)
    ]
    if as_json:
        print_json({"accounts": [_as_json(reading) for reading in readings]})
    else:
        for reading in readings:
            _show(reading)
    return 1 if any(isinstance(reading.found, QuotaUnread) for reading in readings) else 0


def accounts_of(
    providers: Mapping[str, ProviderSettings], name: str | None, environ: Mapping[str, str]
) -> list[Account]:
    """The account of the provider `name`, or all that can be read and have a key; raises `UsageError` without any."""
    if name is not None and name not in providers:
        raise UsageError(f"there is no provider {name}; valid: {', '.join(providers)}")
    asked = [one for one in providers.values() if one.name == name or (name is None and _has_quota(one))]
    keyed = [(one, key) for one in asked if (key := environ.get(one.api_key_env or "", "").strip())]
    if not keyed:
        variables = ", ".join(sorted({one.api_key_env for one in asked if one.api_key_env}))
        if variables:
            raise UsageError(f"no key to read a quota with; set {variables}")
        raise UsageError(f"no key to read a quota with; give {name or 'a provider at Z.AI'} an api_key_env")
    limits = [
        ProviderLimit(provider=one.name, base_url=one.base_url, max_concurrent=one.max_concurrent)
        for one in providers.values()
        if one.max_concurrent
    ]
    return [_account(one, key, limits) for one, key in keyed]


def _has_quota(provider: ProviderSettings) -> bool:
    return reads_quota(provider.base_url, provider.name) or bool(provider.quota_poll_seconds)


def _account(provider: ProviderSettings, key: str, limits: list[ProviderLimit]) -> Account:
    credential = fingerprint(key)
    destination = Destination(base_url=provider.base_url, credential=credential, provider=provider.name)
    owner = provider_for(destination, limits)
    return Account(provider.name, provider.base_url, key, budget_key(owner, credential) if owner else None)


async def _read(accounts: list[Account]) -> list[tuple[QuotaWindow, ...] | QuotaUnread]:
    return await asyncio.gather(*(read_quota(account.base_url, account.api_key) for account in accounts))


def _tell(home: Home, account: Account, found: tuple[QuotaWindow, ...] | QuotaUnread) -> bool | None:
    info = running_root(home)
    if info is None or account.budget is None or isinstance(found, QuotaUnread):
        return None
    try:
        ask_broker(info.sockets, QuotaSeen(budget=account.budget, windows=found), timeout_s=ASK_S)
    except CoveyError:
        return False  # what was read is shown anyway
    return True


def _as_json(reading: Reading) -> dict[str, object]:
    from .budget_json import window_json

    found = reading.found
    windows = () if isinstance(found, QuotaUnread) else found
    return {
        "provider": reading.account.provider,
        "budget": reading.account.budget,
        "windows": [window_json(window) for window in windows],
        "is_blocked": None if isinstance(found, QuotaUnread) else bool(full_windows(windows)),
        "problem": found.problem if isinstance(found, QuotaUnread) else None,
        "told_fleet": reading.is_told,
    }


def _show(reading: Reading) -> None:
    from rich.text import Text

    out, now = console(), time.time()
    head = f"{reading.account.provider} ({reading.account.budget or 'no budget'})"
    if isinstance(reading.found, QuotaUnread):
        out.print(Text(f"{head}: {printable(reading.found.problem)}", style="red"))
        return
    out.print(Text(head + (": the running fleet could not be told" if reading.is_told is False else "")))
    rows = table("window", "")
    for window in reading.found:
        is_full = bool(full_windows([window]))
        rows.add_row(Text(printable(window.name)), Text(quota_words(window, now=now), style="red" if is_full else ""))
    out.print(rows if reading.found else Text("no windows: nothing limits this account"))
