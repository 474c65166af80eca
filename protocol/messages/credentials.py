"""The conversation with the fleet's credentials: which keys a provider has, and a new one for one that was refused.

Secrets travel here, so this is spoken over the sockets of this host alone, never over the gate for others. Two
fingerprints name a key: `account` stays as it is when a token is renewed (budgets and rests go by it), that of the
secret itself says which token it is. For a plain key they are the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ..fault_kinds import FaultKind
from ..secrecy import Guarded
from .base import Done, Failed, Wire

_CLOCKS_DIFFER_MS: Final = 60_000


class KeySource(StrEnum):
    """Where a key comes from, in the order in which a pool has them."""

    STORE = "store"
    """`covey auth add` put it into the home."""
    ENVIRONMENT = "environment"
    COMMAND = "command"


class Rest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a key is left alone, and until when."""

    kind: FaultKind
    reason: str
    """One line for people, without secrets."""
    since_ms: int
    until_ms: int | None = None
    """Unix time; None: until somebody replaces the key (`covey auth add`), or shows that it works
    (`covey auth test`)."""

    @property
    def is_dead(self) -> bool:
        """Whether time alone does not end it."""
        return self.until_ms is None

    def holds(self, now_ms: int) -> bool:
        """Whether the key still rests. A clock that was set back since says nothing: the key is tried."""
        return self.until_ms is None or self.since_ms - _CLOCKS_DIFFER_MS <= now_ms < self.until_ms


class OfferedKey(Guarded, frozen=True, kw_only=True, omit_defaults=True):
    """One key of a provider's pool, as it stands."""

    account: str
    label: str
    source: KeySource
    secret: str | None = None
    """None: it has to be fetched first (`RenewKey`): no token is good now, or its command was not run yet."""
    expires_ms: int | None = None
    """Unix time; None where nobody says so."""
    rest: Rest | None = None


class KeysQuery(Wire, frozen=True, kw_only=True, tag="keys_query"):
    """Answered by `KeysOffered`, at once."""

    provider: str


class KeysOffered(Wire, frozen=True, kw_only=True, tag="keys_offered"):
    """The pool of a provider, in its order; those that rest are in it."""

    keys: tuple[OfferedKey, ...] = ()
    problem: str | None = None
    """Why there are none, or not all: what is wrong, where, and what to do."""


class RenewKey(Wire, frozen=True, kw_only=True, tag="renew_key"):
    """Give me a key of this account that is good: it has none, or the one I have was refused. Answered by `KeyRenewed`.

    Many may ask at once and again: one request to the provider answers them all, and none is made where the account has
    another key by now. The answer takes as long as that request.
    """

    provider: str
    account: str
    stale: str | None = None
    """Fingerprint of the secret that was refused; None: I have none."""


class KeyRenewed(Wire, frozen=True, kw_only=True, tag="key_renewed"):
    """The key that took the place of the refused one, or why there is none."""

    key: OfferedKey | None = None
    problem: str | None = None


class KeyTrouble(Wire, frozen=True, kw_only=True, tag="key_trouble"):
    """A provider refused this key for longer than a moment. Answered by `Done`; again, it changes nothing."""

    provider: str
    account: str
    token: str
    """Fingerprint of the secret that was sent."""
    rest: Rest


class KeyWorks(Wire, frozen=True, kw_only=True, tag="key_works"):
    """A call with this key succeeded: it rests no more. Answered by `Done`."""

    provider: str
    account: str
    token: str


class CredentialsQuery(Wire, frozen=True, kw_only=True, tag="credentials_query"):
    """Answered by `CredentialsView`: what people are shown. No secrets."""


class CredentialView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One key as people see it."""

    provider: str
    label: str
    source: KeySource
    fingerprint: str | None = None
    """Its `account`."""
    kind: str = "key"
    """`key`, `oauth` or `command`."""
    added_ms: int | None = None
    expires_ms: int | None = None
    rest: Rest | None = None


class CredentialsView(Wire, frozen=True, kw_only=True, tag="credentials_view"):
    """Every key of every provider, and what is wrong with the file."""

    credentials: tuple[CredentialView, ...] = ()
    problem: str | None = None


CredentialsRequest = KeysQuery | RenewKey | KeyTrouble | KeyWorks | CredentialsQuery
CredentialsReply = KeysOffered | KeyRenewed | CredentialsView | Done | Failed
