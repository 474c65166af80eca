"""`covey auth add`: a key or a login, into the file of credentials."""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

from ...actors.keys.key_command import unix_ms_of
from ...actors.keys.oauth import check_token_url
from ...protocol.destination import fingerprint
from ...protocol.errors import CoveyError, UsageError
from ...storage.credentials import Credential, Kept, OAuthCredential, PlainCredential
from .auth import file_of, rests_no_more
from .output import print_json, print_line

if TYPE_CHECKING:
    from ...protocol.settings import ProviderSettings
    from ..home import Home

MOST_CHARS: Final = 65_536
LONGEST_KEY: Final = 16_384

KEPT: Final = "was here, and has been renewed since: nothing changed"

_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")

_NAMES: Final = {
    "refresh_token": ("refresh_token", "refreshToken", "refresh"),
    "access_token": ("access_token", "accessToken", "access"),
    "client_id": ("client_id", "clientId"),
    "client_secret": ("client_secret", "clientSecret"),
    "expires": ("expires_at", "expiresAt", "expiry_date", "expires", "expiry"),
    "expires_in": ("expires_in", "expiresIn"),
}
"""What the fields of a login are called in the files of other tools."""


def add(home: Home, provider: ProviderSettings, args: argparse.Namespace) -> int:
    """Read the secret, keep it, and say under which name."""
    if args.surplus or args.given is not None:
        raise UsageError(
            "a secret is never an argument: other users of this machine could see it. Give it on stdin, or where it is "
            "asked for; if that was one, your shell may remember it"
        )
    if args.label is not None and not _LABEL.fullmatch(args.label):
        raise UsageError("a label is 1 to 64 letters, digits and . _ @ + -, and begins with a letter or a digit")
    if args.oauth:
        new: Credential = _login(args, _secret(f"refresh token of {provider.name}: "))
    elif args.token_url or args.client_id or args.scope:
        raise UsageError("--token-url, --client-id and --scope belong to a login; add --oauth")
    else:
        new = _key(args, _secret(f"key of {provider.name}: "))
    placed: list[tuple[Credential, str]] = []

    def place(kept: Kept) -> Kept:
        kept, credential, did = placed_in(kept, provider.name, new, wanted=args.label)
        placed[:] = [(credential, did)]
        return kept

    file_of(home).change(place)
    credential, did = placed[0]
    _say(provider.name, credential, did=did, as_json=args.json)
    try:
        rests_no_more(home, provider.name, account=credential.account, token=credential.account)
    except CoveyError as error:
        print(f"covey: warning: the running fleet was not told ({error}); it looks itself", file=sys.stderr)
    return 0


def _secret(prompt: str) -> str:
    """What was typed, unseen, or comes from stdin."""
    if sys.stdin is None:
        raise UsageError("stdin is closed; the secret is read from there")
    if sys.stdin.isatty():
        import getpass

        try:
            return getpass.getpass(prompt)
        except EOFError:
            raise UsageError("nothing was typed; nothing was added") from None
    try:
        text = sys.stdin.read(MOST_CHARS + 1)
    except UnicodeDecodeError:
        raise UsageError("what is on stdin is no text; nothing was added") from None
    if len(text) > MOST_CHARS:
        raise UsageError(f"more than {MOST_CHARS} characters on stdin; the secret alone is wanted")
    return text


def _key(args: argparse.Namespace, text: str) -> PlainCredential:
    return PlainCredential(label=args.label or "", key=_checked(text, "key"), added_ms=_now_ms())


def _checked(text: str, what: str) -> str:
    secret = text.strip()
    if not secret:
        raise UsageError(f"there is no {what} on stdin; nothing was added")
    if not (secret.isascii() and secret.isprintable()) or " " in secret or len(secret) > LONGEST_KEY:
        raise UsageError(
            f"the {what} holds characters that none has; copy it again, without line breaks; nothing was added"
        )
    return secret


def _login(args: argparse.Namespace, text: str) -> OAuthCredential:
    found: dict[str, object] = _fields(text) if text.lstrip().startswith("{") else {"refresh_token": text}
    client_id = args.client_id or found.get("client_id")
    if args.token_url is None or not client_id:
        raise UsageError("a login needs --token-url and --client-id, as the provider's documentation has them")
    check_token_url(args.token_url)
    for word in (args.token_url, str(client_id), args.scope or "", str(found.get("client_secret") or "")):
        if not word.isprintable():
            raise UsageError("the token URL, client id, secret and scope are printable text on one line")
    token = _checked(str(found.get("refresh_token") or ""), "refresh token")
    access = found.get("access_token")
    now_ms = _now_ms()
    expires_ms = _expires_ms(found, now_ms)
    return OAuthCredential(
        label=args.label or "",
        account=fingerprint(token) or "",
        refresh_token=token,
        token_url=args.token_url,
        client_id=str(client_id),
        added_ms=now_ms,
        # A token of which nobody knows how long it is good is not worth a refused call.
        access_token=_checked(str(access), "access token") if access and expires_ms is not None else None,
        expires_ms=expires_ms if access else None,
        client_secret=str(found["client_secret"]) if found.get("client_secret") else None,
        scope=args.scope,
    )


def _fields(text: str) -> dict[str, object]:
    """The fields of a login in JSON: at its top, or in the first object below that has a refresh token."""
    try:
        said = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        raise UsageError("what is on stdin begins like JSON and is none; nothing was added") from None
    for fields in (said, *(value for value in said.values() if isinstance(value, dict))):
        found = {
            ours: next((fields[name] for name in theirs if name in fields), None) for ours, theirs in _NAMES.items()
        }
        if found["refresh_token"]:
            return found
    raise UsageError("the JSON on stdin has no refresh_token; nothing was added")


def _expires_ms(found: dict[str, object], now_ms: int) -> int | None:
    try:
        seconds = found.get("expires_in")
        if isinstance(seconds, int | float | str) and found.get("expires") is None:
            return unix_ms_of(now_ms + float(seconds) * 1000)
        return unix_ms_of(found.get("expires"))
    except (ValueError, OverflowError):
        return None  # the token is renewed before its first use


def placed_in(kept: Kept, provider: str, new: Credential, *, wanted: str | None) -> tuple[Kept, Credential, str]:
    """What is kept from now on, what of it is `new`, and what was done. An account is there once, under one label."""
    label, is_new = _label(kept, provider, new, wanted=wanted)
    there = next((one for one in kept.of(provider) if one.account == new.account), None)
    named = msgspec.structs.replace(new, label=label)
    if isinstance(there, OAuthCredential) and isinstance(new, OAuthCredential) and _is_ahead(there, new):
        named = msgspec.structs.replace(there, label=label)
    if there is not None and there.label != label:
        kept = kept.without(provider, there)
    kept = kept.with_credential(provider, named)
    return kept, named, KEPT if named == there else "added" if is_new and there is None else "replaced"


def _is_ahead(there: OAuthCredential, new: OAuthCredential) -> bool:
    """Whether `there` began as `new` and was renewed since: the token that is given again may be used up by now."""
    return there.refused is None and there.refresh_token != new.refresh_token


def _label(kept: Kept, provider: str, new: Credential, *, wanted: str | None) -> tuple[str, bool]:
    """Its name, and whether nothing is replaced. A key that is there already keeps its name, unless told otherwise."""
    there = kept.of(provider)
    if wanted is not None:
        return wanted, all(one.label != wanted for one in there)
    for one in there:
        if one.account == new.account:
            return one.label, False
    taken = {one.label for one in there}
    kind = "login" if isinstance(new, OAuthCredential) else "key"
    return next(name for number in range(1, len(taken) + 2) if (name := f"{kind}{number}") not in taken), True


def _say(provider: str, credential: Credential, *, did: str, as_json: bool) -> None:
    kind = "oauth" if isinstance(credential, OAuthCredential) else "key"
    if as_json:
        print_json(
            {
                "provider": provider,
                "label": credential.label,
                "fingerprint": credential.account,
                "kind": kind,
                "replaced": did == "replaced",
                "unchanged": did == KEPT,
            }
        )
        return
    what = "login" if kind == "oauth" else "key"
    name = f"{credential.label} ({credential.account})"
    print_line(f"{provider}: {what} {name} {did}; `covey auth test {provider} {credential.label}` tries it")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
