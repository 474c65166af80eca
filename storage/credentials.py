"""What is kept of credentials, apart from the configuration. Pure: reading and writing the file is somebody else's.

A provider may have several. One is known by its label; `account` names it without telling it, and stays the same
while tokens come and go.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..protocol.destination import fingerprint
from ..protocol.secrecy import Guarded

VERSION: Final = 1

SKEW_MS: Final = 120_000
"""So long before its end a token is renewed."""

_SKEW_SHARE: Final = 0.2
"""But never for more than this share of its life, or one of a minute would be renewed with every call."""


class PlainCredential(Guarded, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="key"):
    """A key that is good until its owner withdraws it."""

    label: str
    key: str
    added_ms: int

    @property
    def account(self) -> str:
        """Its name."""
        return fingerprint(self.key) or ""


class OAuthCredential(Guarded, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="oauth"):
    """A login: a token for calls, and one that gets the next pair of tokens, often exactly once."""

    label: str
    account: str
    refresh_token: str
    token_url: str
    client_id: str
    added_ms: int
    access_token: str | None = None
    expires_ms: int | None = None
    issued_ms: int | None = None
    client_secret: str | None = None
    scope: str | None = None
    renewing_ms: int | None = None
    """When a request for new tokens began whose answer nobody has seen: the refresh token may be used up."""
    refused: str | None = None
    """Why the refresh token is no good any more; a person has to log in again."""

    @property
    def token(self) -> str | None:
        """The fingerprint of the token for calls."""
        return fingerprint(self.access_token)

    def is_good(self, now_ms: int) -> bool:
        """Whether there is a token that has not expired."""
        return self.access_token is not None and (self.expires_ms is None or now_ms < self.expires_ms)

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time to renew it, though calls may not have noticed."""
        if self.access_token is None:
            return True
        return self.expires_ms is not None and now_ms >= self.expires_ms - self._skew_ms()

    def _skew_ms(self) -> float:
        if self.expires_ms is None or self.issued_ms is None:
            return SKEW_MS
        return min(SKEW_MS, max(0, self.expires_ms - self.issued_ms) * _SKEW_SHARE)


Credential = PlainCredential | OAuthCredential


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All credentials of a home, by provider, in the order they were added."""

    version: int = VERSION
    providers: dict[str, tuple[Credential, ...]] = {}

    def of(self, provider: str) -> tuple[Credential, ...]:
        """Those of one provider."""
        return self.providers.get(provider, ())

    def oauth(self, provider: str, account: str) -> OAuthCredential | None:
        """The login with this name."""
        found = (one for one in self.of(provider) if isinstance(one, OAuthCredential) and one.account == account)
        return next(found, None)

    def with_credential(self, provider: str, credential: Credential) -> Kept:
        """The same with this one: in the place of the one with its label, or as the last."""
        rest = list(self.of(provider))
        at = next((at for at, one in enumerate(rest) if one.label == credential.label), len(rest))
        rest[at : at + 1] = [credential]
        return msgspec.structs.replace(self, providers={**self.providers, provider: tuple(rest)})

    def without(self, provider: str, credential: Credential) -> Kept:
        """The same without this one."""
        left = tuple(one for one in self.of(provider) if one is not credential)
        providers = {**self.providers, provider: left}
        if not left:
            del providers[provider]
        return msgspec.structs.replace(self, providers=providers)

    def named(self, provider: str, word: str) -> Credential | None:
        """The one with this label or fingerprint."""
        return next((one for one in self.of(provider) if word in (one.label, one.account)), None)
