"""Getting the next pair of tokens from a provider's token endpoint (RFC 6749, section 6).

One POST, never repeated here: a refresh token is often good exactly once, and whether a lost answer used it up nobody
can tell. No text that leaves this module holds a token; the endpoint's own words are shown as far as they are codes.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec

from ...protocol.errors import ConnectionSettingRefused, UsageError
from ...storage.credentials import OAuthCredential
from ..calls.connection_faults import connection_fault
from ..http.clients import open_client
from ..http.proxies import is_loopback

REFRESH_S: Final = 20.0
MOST_BYTES: Final = 65_536

FINAL_CODES: Final = frozenset({
    "invalid_grant", "invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
    "invalid_token", "token_invalidated", "token_revoked", "token_expired", "refresh_token_reused",
    "refresh_token_expired", "refresh_token_invalidated", "access_denied",
})  # fmt: skip
"""No repetition helps after these: somebody has to log in again."""

_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")


@dataclass(frozen=True, slots=True)
class Rotated:
    """The new tokens."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    """None: the old one stays good."""
    expires_in_s: float | None
    scope: str | None


@dataclass(frozen=True, slots=True)
class RefreshRefused:
    """The refresh token is no good any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class RefreshFailed:
    """Nothing came of it, and another try may do better. `is_open`: whether the refresh token was used is not known."""

    reason: str
    is_open: bool


Refreshed = Rotated | RefreshRefused | RefreshFailed


class _Answer(msgspec.Struct):
    """Only the token has to be what it should: the old pair may be worthless by now, whatever else is odd."""

    access_token: str
    refresh_token: object = None
    expires_in: object = None
    scope: object = None


def check_token_url(url: str) -> None:
    """Raise `UsageError` for a URL that tokens must not be sent to: https, or this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or "@" in parts.netloc:
        raise UsageError("a token URL is https://HOST/PATH, without a user name")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise UsageError(f"tokens must not travel readable: the token URL at {host} has to be https")


async def refresh(credential: OAuthCredential, *, deadline_s: float = REFRESH_S) -> Refreshed:
    """Ask for new tokens once. Raises nothing for what the other side does; a redirect is not followed."""
    try:
        check_token_url(credential.token_url)
    except UsageError as error:
        return RefreshRefused(str(error))
    form = {"grant_type": "refresh_token", "refresh_token": credential.refresh_token, "client_id": credential.client_id}
    if credential.client_secret:
        form["client_secret"] = credential.client_secret
    if credential.scope:
        form["scope"] = credential.scope
    host = urlsplit(credential.token_url).netloc
    try:
        async with asyncio.timeout(deadline_s), open_client(credential.token_url) as client:
            status, body = await _post(client, credential.token_url, form)
    except TimeoutError:
        return RefreshFailed(f"{host} did not answer within {deadline_s:g} s", is_open=True)
    except ConnectionSettingRefused as error:
        return RefreshFailed(str(error), is_open=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        is_open = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.InvalidURL)
        return RefreshFailed(connection_fault(error, in_body=False).message, is_open=is_open)
    return read_refresh(status, body, host=host)


async def _post(client: httpx.AsyncClient, url: str, form: dict[str, str]) -> tuple[int, bytes]:
    # Unpacked by nobody, so that the bound on its size is one on memory too.
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    async with client.stream("POST", url, data=form, headers=headers) as response:
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > MOST_BYTES:
                break
        return response.status_code, bytes(body)


def read_refresh(status: int, body: bytes, *, host: str) -> Refreshed:
    """What an answer of a token endpoint means."""
    if 200 <= status < 300:
        return _read_success(body, host)
    code = _code_of(body)
    if code in FINAL_CODES and status < 500:
        return RefreshRefused(f"{host} says {code}")
    said = f" ({code})" if code else ""
    # An error inside the endpoint may have come before the new pair was made, or after.
    return RefreshFailed(f"{host} answers HTTP {status}{said}", is_open=status >= 500)


def _read_success(body: bytes, host: str) -> Refreshed:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        code = _code_of(body)
        if code in FINAL_CODES:
            return RefreshRefused(f"{host} says {code}")
        return RefreshFailed(f"{host} answers without an access token", is_open=True)
    access = answer.access_token.strip()
    if not _is_token(access):
        return RefreshFailed(f"{host} answers with an access token that is none", is_open=True)
    following = answer.refresh_token.strip() if isinstance(answer.refresh_token, str) else ""
    scope = answer.scope if isinstance(answer.scope, str) else None
    return Rotated(access, following or None, _seconds(answer.expires_in), scope)


def _is_token(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _seconds(value: object) -> float | None:
    if not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds < 1e9 else None


def _code_of(body: bytes) -> str | None:
    """The error code in an answer: `{"error": "code"}`, or inside of an object that is called so."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    error = said.get("error") if isinstance(said, dict) else None
    found = [error, *(error.get(name) for name in ("code", "type", "error"))] if isinstance(error, dict) else [error]
    if isinstance(said, dict):
        found.append(said.get("code"))
    codes = [one for one in found if isinstance(one, str) and _CODE.fullmatch(one)]
    return next((one for one in codes if one in FINAL_CODES), codes[0] if codes else None)
