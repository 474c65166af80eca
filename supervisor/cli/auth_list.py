"""`covey auth list`: which keys there are, where they come from and how they stand. No secret is shown."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...actors.keys.sources import Sources
from ...protocol.errors import UsageError
from ...protocol.messages.credentials import CredentialsQuery, CredentialsView, CredentialView, KeySource
from ..quick import ask_credentials
from ..rest_file import RestFile
from ..running import running_root
from .auth import ASK_S, file_of, shown
from .budget_words import printable
from .common import local_time
from .output import console, print_json, print_line, table

if TYPE_CHECKING:
    from ...protocol.settings import ProviderSettings
    from ..home import Home


def show(home: Home, providers: Mapping[str, ProviderSettings], only: str | None, *, as_json: bool) -> int:
    """Print them; exit code 1 if the file of credentials cannot be used."""
    info = running_root(home)
    view = _asked(info.sockets) if info is not None else looked_up(home, providers, os.environ)
    names = dict.fromkeys([*providers, *(one.provider for one in view.credentials)])
    if only is not None and only not in names:
        raise UsageError(f"there is no provider {shown(only)}; there are: {', '.join(names)}")
    seen = [one for one in view.credentials if only in (None, one.provider)]
    bare = {
        name: why
        for name in names
        if only in (None, name) and (why := _why_bare(providers.get(name), seen, is_root=info is not None))
    }
    if as_json:
        print_json(
            {
                "home": str(home.path),
                "fleet": info is not None,
                "problem": view.problem,
                "credentials": [_as_json(one) for one in seen],
                "without": [{"provider": name, "problem": why} for name, why in bare.items()],
            }
        )
    else:
        _print(seen, bare, view.problem)
    return 1 if view.problem is not None else 0


def looked_up(home: Home, providers: Mapping[str, ProviderSettings], environ: Mapping[str, str]) -> CredentialsView:
    """What a fleet that is started from here would have. Raises `CredentialProblem`."""
    sources = Sources(providers, environ, wall_ms=lambda: time.time_ns() // 1_000_000)
    sources.kept = file_of(home).read()
    sources.rests = RestFile(home).load()
    return CredentialsView(credentials=sources.views())


def _asked(sockets: str) -> CredentialsView:
    view = ask_credentials(sockets, CredentialsQuery(), timeout_s=ASK_S)
    assert isinstance(view, CredentialsView), "the credentials answer a query with a view"
    return view


def _why_bare(provider: ProviderSettings | None, seen: list[CredentialView], *, is_root: bool) -> str | None:
    if provider is None or any(one.provider == provider.name for one in seen):
        return None
    if provider.api_key_env is None:
        return "needs no key, as it is configured"
    return f"{provider.api_key_env} is not set" + (" where the fleet was started" if is_root else "")


def state_of(view: CredentialView, *, now_ms: int) -> str:
    """`ok`, `rests` or `dead`."""
    if view.rest is None or not view.rest.holds(now_ms):
        return "ok"
    return "dead" if view.rest.is_dead else "rests"


def _as_json(view: CredentialView) -> dict[str, object]:
    state = state_of(view, now_ms=time.time_ns() // 1_000_000)
    rest = view.rest if state != "ok" else None
    return {
        "provider": view.provider,
        "label": view.label,
        "fingerprint": view.fingerprint,
        "kind": view.kind,
        "source": view.source.value,
        "state": state,
        "until_ms": rest.until_ms if rest is not None else None,
        "reason": rest.reason if rest is not None else None,
        "added_ms": view.added_ms,
        "expires_ms": view.expires_ms,
    }


def _print(seen: list[CredentialView], bare: Mapping[str, str], problem: str | None) -> None:
    from rich.text import Text

    now = time.time()
    rows = table("provider", "label", "fingerprint", "source", "state", "")
    for one in seen:
        state = state_of(one, now_ms=int(now * 1000))
        colour = {"ok": "green", "rests": "yellow", "dead": "red"}[state]
        until_ms = one.rest.until_ms if one.rest is not None and state == "rests" else None
        words = f"rests until {local_time(until_ms, now=now)}" if until_ms is not None else state
        note = one.rest.reason if one.rest is not None and state != "ok" else _note(one, now)
        cells = (one.provider, one.label, one.fingerprint or "", _source(one))
        rows.add_row(*(Text(printable(cell)) for cell in cells), Text(words, style=colour), Text(printable(note)))
    if seen:
        console().print(rows)
    for name, why in bare.items():
        print_line(f"{printable(name)}: {printable(why)}")
    if problem is not None:
        does = "goes on with what it read last" if seen else "takes no keys until the file is mended"
        print_line(f"the fleet {does}: {printable(problem)}")


def _source(view: CredentialView) -> str:
    if view.source is KeySource.STORE:
        return "store, login" if view.kind == "oauth" else "store"
    return view.source.value


def _note(view: CredentialView, now: float) -> str:
    if view.expires_ms is None:
        return ""
    return f"token good until {local_time(view.expires_ms, now=now)}"
