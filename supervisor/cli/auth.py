"""`covey auth add|list|remove|test`: the keys that calls to providers are made with."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from ...protocol.errors import UsageError
from ...protocol.messages.credentials import KeyWorks
from ...protocol.redaction import redact
from ...protocol.settings import ProviderSettings
from ..config import load
from ..credential_file import CredentialFile
from ..home import Home
from ..quick import ask_credentials
from ..rest_file import RestFile
from ..running import running_root
from .common import add_home, add_json

ASK_S = 5.0
LONGEST_NAME = 30
_GIVEN = ("--key", "--api-key", "--token", "--access-token", "--refresh-token", "--secret", "--password", "--value")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare add, list, remove and test."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="auth_action")
    add = actions.add_parser("add", help="keep a key or a login; it is read from stdin or asked for, never an argument")
    add.add_argument("provider", metavar="PROVIDER")
    # Taken, to be refused without being repeated: what is typed here is a key more often than not.
    add.add_argument("surplus", nargs="*", default=[], help=argparse.SUPPRESS)
    add.add_argument(*_GIVEN, dest="given", help=argparse.SUPPRESS)
    add.add_argument("--label", metavar="NAME", help="what to call it; a name that is taken is replaced")
    add.add_argument("--oauth", action="store_true", help="a login: a refresh token, or what another tool has as JSON")
    add.add_argument("--token-url", metavar="URL", help="where tokens are renewed")
    add.add_argument("--client-id", metavar="ID", help="whom the tokens were given to")
    add.add_argument("--scope", metavar="WORDS", help="what to ask for when they are renewed (default: nothing)")
    listing = actions.add_parser("list", help="show keys by name and fingerprint, where they come from, and which rest")
    listing.add_argument("provider", metavar="PROVIDER", nargs="?")
    remove = actions.add_parser("remove", help="keep a key no longer")
    remove.add_argument("provider", metavar="PROVIDER")
    remove.add_argument("name", metavar="NAME", nargs="?", help="its label or fingerprint, if there are several")
    test = actions.add_parser("test", help="ask the provider for its models with each key; 1 if one is not taken")
    test.add_argument("provider", metavar="PROVIDER")
    test.add_argument("name", metavar="NAME", nargs="?", help="the label or fingerprint of one key")
    for action in (add, listing, remove, test):
        add_home(action)
        add_json(action)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    home = Home.locate(args.home)
    providers = load(home.config).settings.providers
    match args.auth_action:
        case "add":
            from .auth_add import add

            return add(home, known(providers, args.provider), args)
        case "list":
            from .auth_list import show

            return show(home, providers, args.provider, as_json=args.json)
        case "remove":
            from .auth_remove import remove

            return remove(home, providers, args.provider, args.name, as_json=args.json)
        case action:
            assert action == "test", f"argparse let {action} through"
            from .auth_test import test

            return test(home, providers, known(providers, args.provider), args.name, as_json=args.json)


def known(providers: Mapping[str, ProviderSettings], name: str) -> ProviderSettings:
    """The provider of that name; raises `UsageError` with the names there are."""
    if name not in providers:
        raise UsageError(
            f"there is no provider {shown(name)}; there are: {', '.join(providers)}. "
            "Another one needs a base_url first: `covey config set providers.NAME.base_url URL`"
        )
    return providers[name]


def shown(name: str) -> str:
    """A name that nobody has, as far as it is none: what stands here may be the key, given too early."""
    text = redact(name)
    return f"{text!r}" if text == name and len(name) <= LONGEST_NAME else "of that name"


def file_of(home: Home) -> CredentialFile:
    """The file of credentials; that its mode had to be mended goes to stderr."""
    return CredentialFile(home, on_mended=lambda text: print(f"covey: warning: {text}", file=sys.stderr))


def rests_no_more(home: Home, provider: str, *, account: str, token: str) -> None:
    """This key is good: neither a running fleet nor the next one leaves it alone."""
    info = running_root(home)
    if info is not None:
        ask_credentials(info.sockets, KeyWorks(provider=provider, account=account, token=token), timeout_s=ASK_S)
    else:
        RestFile(home).forget(provider, account, token)
