"""`covey models`: what is known of the models of the configured providers, and where it is from."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

from ...protocol.errors import UsageError
from ..home import Home
from .common import add_home, add_json

if TYPE_CHECKING:
    from ...protocol.model_listing import Unlisted
    from ...protocol.settings import ProviderSettings, Settings
    from ..model_cache import Learned
    from .models_words import Shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--provider", metavar="NAME", help="only the models of this provider")
    parser.add_argument("--refresh", action="store_true", help="ask the providers, and keep what they say in the home")
    add_home(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Show; exit code 1 if `--refresh` asked providers and none of them answered."""
    from ..config import load

    home = Home.locate(args.home)
    settings = load(home.config).settings
    providers = _chosen(settings, args.provider)
    problems = _refresh(home, settings, providers) if args.refresh else {}
    shown = [_shown(home, settings, provider, problems.get(provider.name)) for provider in providers]
    if args.json:
        from .models_json import as_json
        from .output import print_json

        print_json(as_json(shown, home=str(home.path)))
    else:
        from .models_words import parts
        from .output import console

        out = console()
        for part in parts(shown):
            out.print(part)
    return 1 if providers and len(problems) == len(providers) else 0


def _chosen(settings: Settings, name: str | None) -> list[ProviderSettings]:
    if name is None:
        return list(settings.providers.values())
    if name not in settings.providers:
        raise UsageError(f"there is no provider {name}; valid: {', '.join(settings.providers)}")
    return [settings.providers[name]]


def _refresh(home: Home, settings: Settings, providers: list[ProviderSettings]) -> dict[str, str]:
    """Ask all of them and keep what they say; why some did not, by name. Raises `CredentialProblem`."""
    from ...protocol.model_listing import Unlisted
    from ..model_cache import keep_learned

    problems: dict[str, str] = {}
    answers = asyncio.run(_ask(home, settings, providers))
    for provider, found in zip(providers, answers, strict=True):
        if isinstance(found, Unlisted):
            problems[provider.name] = found.problem
        else:
            keep_learned(home, provider.name, found)
    return problems


async def _ask(home: Home, settings: Settings, providers: list[ProviderSettings]) -> list[Learned | Unlisted]:
    from ..command_keys import command_keys
    from ..model_refresh import ask_all
    from .output import warn

    async with command_keys(home, settings.providers, os.environ, warn=lambda text: warn([text])) as keys:
        return await ask_all(providers, keys)


def _shown(home: Home, settings: Settings, provider: ProviderSettings, problem: str | None) -> Shown:
    from ..model_lines import model_lines
    from ..models_request import models_url
    from .models_words import Shown

    learned = _learned(home, provider)
    at = models_url(provider).partition("?")[0]
    return Shown(
        provider=provider.name,
        base_url=provider.base_url,
        learned_at_ms=learned.learned_at_ms if learned is not None else None,
        problem=problem,
        models=tuple(model_lines(settings, provider, learned, at=at)),
    )


def _learned(home: Home, provider: ProviderSettings) -> Learned | None:
    from ..model_cache import Unreadable, read_learned
    from .output import warn

    found = read_learned(home, provider)
    if isinstance(found, Unreadable):
        warn([found])
        return None
    return found
