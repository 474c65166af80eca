"""The doctor: looks at everything a fleet needs, changes nothing, and says what to do.

Every check stands for itself: one that cannot be made says so and stops no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from ..protocol.errors import ConfigError, HomeError
from ..protocol.settings import ProviderSettings, Settings, builtin_providers
from .config import Accepted, Origin, Refused, examine
from .config_text import read_text
from .doctor_credentials import check_credentials
from .doctor_findings import Finding, Level, fail, ok, warn
from .doctor_fleet import check_fleet, variables_of
from .doctor_home import check_home
from .doctor_host import check_host
from .doctor_providers import check_providers
from .doctor_routes import check_routes
from .home import Home, RootInfo
from .running import running_root


def look(home: Home, environ: Mapping[str, str], *, is_online: bool) -> Iterator[Finding]:
    """All findings, as they come. Offline it takes well under a second."""
    accepted = _read(home)
    yield from _check_config(home, accepted)
    settings = accepted.settings if isinstance(accepted, Accepted) else Settings(providers=builtin_providers())
    stored, findings = check_credentials(home)
    info, problem = _root(home)
    if problem is not None:
        yield problem
    if isinstance(accepted, Accepted):
        at_root = variables_of(info) if info is not None else None
        yield from findings
        yield from check_providers(settings, _configured(accepted), environ, at_root=at_root, stored=stored)
        yield from check_routes(settings, _configured(accepted))
    yield from check_home(home)
    yield from check_fleet(home, info)
    yield from check_host(settings.fleet, environ, newest_unix=_newest(home))
    if is_online and isinstance(accepted, Accepted):
        from .doctor_online import check_online

        if worst(findings) is Level.FAIL:
            # No other key takes the place of those in a file that cannot be used: it might be another account's.
            yield warn("online", "no provider was asked: see credentials above", "mend the file, then look again")
        else:
            yield from check_online(home, _used(accepted), settings.providers, environ)


def worst(findings: list[Finding]) -> Level:
    """The worst level of all."""
    levels = {finding.level for finding in findings}
    return next((level for level in (Level.FAIL, Level.WARN) if level in levels), Level.OK)


def _read(home: Home) -> Accepted | Refused:
    try:
        return examine(read_text(home.config), str(home.config))
    except ConfigError as error:
        return Refused((error,))


def _check_config(home: Home, found: Accepted | Refused) -> Iterator[Finding]:
    match found:
        case Refused(errors):
            for error in errors:
                place = f"{error.file}:{error.line}" if error.line is not None else error.file
                says = f"{place}: {error.key}: {error.problem}" if error.key else f"{place}: {error.problem}"
                yield fail("config", says, f"valid: {error.valid}")
        case Accepted(warnings=warnings):
            for warning in warnings:
                yield warn("config", str(warning), f"`covey config set {warning.key} …`")
            if not warnings:
                there = "valid" if home.config.exists() else "not there; everything is at its default"
                yield ok("config", f"{home.config}: {there}")


def _root(home: Home) -> tuple[RootInfo | None, Finding | None]:
    try:
        return running_root(home), None
    except HomeError as error:
        return None, warn("fleet", str(error), "`covey up` writes it anew")


def _configured(accepted: Accepted) -> frozenset[str]:
    """The providers that the file says something about."""
    values = (value for value in accepted.values if value.origin is Origin.FILE)
    return frozenset(value.key.split(".")[1] for value in values if value.key.startswith("providers."))


def _used(accepted: Accepted) -> list[ProviderSettings]:
    model, names = accepted.settings.model, _configured(accepted)
    return [
        one
        for one in accepted.settings.providers.values()
        if one.name in names or (model and one.name == model.provider)
    ]


def _newest(home: Home) -> float | None:
    times = []
    for path in (home.config, home.state_db, home.root_info, home.run):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times, default=None)
