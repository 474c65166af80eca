"""`covey budget quota`: what is left of the accounts' plans, read from their providers now, with or without a fleet."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...actors.http.clients import Clients
from ...actors.ports import Key
from ...actors.quota_reading import read_quota
from ...protocol.destination import budget_key, provider_for
from ...protocol.errors import CoveyError, UsageError
from ...protocol.ids import BudgetKey
from ...protocol.messages.broker import Destination, ProviderLimit, QuotaSeen, QuotaWindow
from ...protocol.quota import QuotaUnread, full_windows, is_key_refused, reads_quota
from ..command_keys import CommandKeys, Unfetched, command_keys
from ..config import load
from ..quick import ask_broker
from ..running import running_root
from .budget_list import ASK_S
from .budget_words import printable, quota_words
from .output import console, print_json, table, warn

if TYPE_CHECKING:
    from ...protocol.settings import ProviderSettings
    from ..home import Home


@dataclass(frozen=True, slots=True)
class Account:
    """Whose quota is read: one account for each key."""

    provider: ProviderSettings
    key: Key | Unfetched
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
    providers = load(home.config).settings.providers
    asked = asked_providers(providers, provider)
    readings = [
        Reading(account, found, _tell(home, account, found))
        for account, found in asyncio.run(_read_all(home, providers, asked))
    ]
    if as_json:
        print_json({"accounts": [_as_json(reading) for reading in readings]})
    else:
        for reading in readings:
            _show(reading)
    return 1 if any(isinstance(reading.found, QuotaUnread) for reading in readings) else 0


def asked_providers(providers: Mapping[str, ProviderSettings], name: str | None) -> list[ProviderSettings]:
    """The provider `name`, or all whose quota can be read; raises `UsageError` where there is none."""
    if name is not None and name not in providers:
        raise UsageError(f"there is no provider {name}; valid: {', '.join(providers)}")
    asked = [one for one in providers.values() if one.name == name or (name is None and _has_quota(one))]
    if not asked:
        raise UsageError("no provider is known to have a quota; name one to ask it all the same")
    return asked


def _has_quota(provider: ProviderSettings) -> bool:
    return reads_quota(provider.base_url, provider.name) or bool(provider.quota_poll_seconds)


async def _read_all(
    home: Home, providers: Mapping[str, ProviderSettings], asked: list[ProviderSettings]
) -> list[tuple[Account, tuple[QuotaWindow, ...] | QuotaUnread]]:
    async with command_keys(home, providers, os.environ, warn=lambda text: warn([text])) as keys:
        accounts = await _accounts(keys, providers, asked)
        clients = Clients()
        try:
            found = await asyncio.gather(*(_read(keys, clients, account) for account in accounts))
        finally:
            await clients.close()
    return list(zip(accounts, found, strict=True))


async def _accounts(
    keys: CommandKeys, providers: Mapping[str, ProviderSettings], asked: list[ProviderSettings]
) -> list[Account]:
    """The account of each key. Those that rest are read too: a quota that is used up is why they do."""
    limits = [
        ProviderLimit(provider=one.name, base_url=one.base_url, max_concurrent=one.max_concurrent)
        for one in providers.values()
        if one.max_concurrent
    ]
    accounts = [_account(one, key, limits) for one in asked for key in await keys.every(one)]
    if not accounts:
        raise UsageError(f"no key to read a quota with: {'; '.join(keys.why_none(one) for one in asked)}")
    return accounts


def _account(provider: ProviderSettings, key: Key | Unfetched, limits: list[ProviderLimit]) -> Account:
    destination = Destination(base_url=provider.base_url, credential=key.fingerprint, provider=provider.name)
    owner = provider_for(destination, limits)
    return Account(provider, key, budget_key(owner, key.fingerprint) if owner else None)


async def _read(keys: CommandKeys, clients: Clients, account: Account) -> tuple[QuotaWindow, ...] | QuotaUnread:
    provider, key = account.provider, account.key
    if isinstance(key, Unfetched):
        return QuotaUnread(problem=f"its key is not to be had: {key.reason}")

    async def read(secret: str) -> tuple[QuotaWindow, ...] | QuotaUnread:
        return await read_quota(clients, provider, secret)

    return await keys.asked(provider, key, read, is_refused=is_key_refused)


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
        "provider": reading.account.provider.name,
        "key": reading.account.key.label,
        "budget": reading.account.budget,
        "windows": [window_json(window) for window in windows],
        "is_blocked": None if isinstance(found, QuotaUnread) else bool(full_windows(windows)),
        "problem": found.problem if isinstance(found, QuotaUnread) else None,
        "told_fleet": reading.is_told,
    }


def _show(reading: Reading) -> None:
    from rich.text import Text

    out, now = console(), time.time()
    account = reading.account
    head = f"{account.provider.name}, {account.key.label} ({account.budget or 'no budget'})"
    if isinstance(reading.found, QuotaUnread):
        out.print(Text(f"{head}: {printable(reading.found.problem)}", style="red"))
        return
    out.print(Text(head + (": the running fleet could not be told" if reading.is_told is False else "")))
    rows = table("window", "")
    for window in reading.found:
        is_full = bool(full_windows([window]))
        rows.add_row(Text(printable(window.name)), Text(quota_words(window, now=now), style="red" if is_full else ""))
    out.print(rows if reading.found else Text("no windows: nothing limits this account"))
