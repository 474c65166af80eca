"""What keys each provider has right now, from all sources: the store, the environment, its command. Pure.

A login whose token is refused or has expired, and a command that was not run yet, are offered without a secret: it can
be fetched. While that cannot succeed, they rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from ...protocol.destination import fingerprint
from ...protocol.fault_kinds import FaultKind
from ...protocol.messages.credentials import CredentialView, KeySource, OfferedKey, Rest
from ...protocol.settings import ProviderSettings
from ...storage.credentials import Kept, OAuthCredential, PlainCredential
from .key_command import CommandKey
from .rests import longer

FRESH_MS: Final = 30_000
"""A token refused so soon after it was made is not replaced by another one: the refusal is about the account."""

Account = tuple[str, str]
"""A provider and one of its accounts."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A key could not be fetched: not before the end of `rest` again."""

    rest: Rest
    tries: int


class Sources:
    """The keys of all providers. Whoever owns it changes its attributes; nothing in here does."""

    def __init__(
        self, providers: Mapping[str, ProviderSettings], environ: Mapping[str, str], *, wall_ms: Callable[[], int]
    ) -> None:
        self.providers = providers
        self.kept: Kept | None = None
        """What the store holds; None while it could never be read."""
        self.rests: dict[str, dict[str, Rest]] = {}
        """By provider and fingerprint, of an account or of one token."""
        self.commanded: dict[str, CommandKey] = {}
        """What commands printed, by account."""
        self.failures: dict[Account, Failure] = {}
        self._environ = environ
        self._wall_ms = wall_ms

    def keys(self, provider: str) -> tuple[OfferedKey, ...]:
        """The pool of a provider, in the order of its sources; an account that two sources have is in it once."""
        found: dict[str, OfferedKey] = {}
        for key in self._keys(provider):
            found.setdefault(key.account, key)
        return tuple(found.values())

    def key(self, provider: str, account: str) -> OfferedKey | None:
        """One of them."""
        return next((one for one in self.keys(provider) if one.account == account), None)

    def logins(self, provider: str) -> tuple[OAuthCredential, ...]:
        """The logins of a provider."""
        kept = self.kept.of(provider) if self.kept is not None else ()
        return tuple(one for one in kept if isinstance(one, OAuthCredential))

    def login(self, provider: str, account: str) -> OAuthCredential | None:
        """One of them."""
        return self.kept.oauth(provider, account) if self.kept is not None else None

    def command(self, provider: str) -> str | None:
        """The command that prints its key."""
        settings = self.providers.get(provider)
        return settings.api_key_command if settings is not None else None

    def rest_of(self, provider: str, name: str) -> Rest | None:
        """The rest of an account or a token, if it holds."""
        rest = self.rests.get(provider, {}).get(name)
        return rest if rest is not None and rest.holds(self._wall_ms()) else None

    def blocked(self, provider: str, account: str) -> Rest | None:
        """Why no key of this account can be fetched now."""
        login = self.login(provider, account)
        if login is not None and login.refused is not None:
            reason = f"{login.refused}; log in again, then `covey auth add {provider} --oauth --label {login.label}`"
            return Rest(kind=FaultKind.AUTH, reason=reason, since_ms=login.added_ms)
        failure = self.failures.get((provider, account))
        return failure.rest if failure is not None and failure.rest.holds(self._wall_ms()) else None

    def is_renewable(self, provider: str, account: str) -> bool:
        """Whether another key can be fetched for this account."""
        command = self.command(provider)
        is_command = command is not None and account == command_account(provider, command)
        return is_command or self.login(provider, account) is not None

    def is_fresh(self, provider: str, account: str, token: str) -> bool:
        """Whether `token` is the present one of a login, and was made just now.

        Of a command never: it may print another key as soon as somebody has mended what it reads.
        """
        login = self.login(provider, account)
        if login is None or login.issued_ms is None or login.token != token:
            return False
        return 0 <= self._wall_ms() - login.issued_ms < FRESH_MS

    def needs_one(self, provider: str) -> bool:
        """Whether its calls cannot go out without a key: one is configured, or nothing is known of it."""
        settings = self.providers.get(provider)
        return settings is None or settings.api_key_env is not None or settings.api_key_command is not None

    def why_none(self, provider: str) -> str:
        """What to do for a provider without any key."""
        settings = self.providers.get(provider)
        if settings is not None and settings.api_key_env:
            return f"{settings.api_key_env} is not set where the fleet was started; or `covey auth add {provider}`"
        return f"add one with `covey auth add {provider}`"

    def views(self) -> tuple[CredentialView, ...]:
        """Every key of every provider, without its secret."""
        kept = self.kept or Kept()
        names = dict.fromkeys([*self.providers, *kept.providers])
        return tuple(_view(name, key, kept) for name in names for key in self.keys(name))

    # --- the sources -------------------------------------------------------------------------------------------------

    def _keys(self, provider: str) -> Iterator[OfferedKey]:
        for credential in self.kept.of(provider) if self.kept is not None else ():
            match credential:
                case PlainCredential(key=secret, label=label):
                    yield self._plain(provider, secret, label, KeySource.STORE)
                case OAuthCredential():
                    yield self._login(provider, credential)
        settings = self.providers.get(provider)
        if settings is None:
            return
        variable = settings.api_key_env or ""
        if secret := self._environ.get(variable, "").strip():
            yield self._plain(provider, secret, variable, KeySource.ENVIRONMENT)
        if settings.api_key_command is not None:
            yield self._command(provider, command_account(provider, settings.api_key_command))

    def _plain(self, provider: str, secret: str, label: str, source: KeySource) -> OfferedKey:
        account = fingerprint(secret) or ""
        rest = self.rest_of(provider, account)
        return OfferedKey(account=account, label=label, source=source, secret=secret, rest=rest)

    def _login(self, provider: str, login: OAuthCredential) -> OfferedKey:
        key = OfferedKey(account=login.account, label=login.label, source=KeySource.STORE)
        if login.is_good(self._wall_ms()):
            key = msgspec.structs.replace(key, secret=login.access_token, expires_ms=login.expires_ms)
        return self._fetched(provider, key)

    def _command(self, provider: str, account: str) -> OfferedKey:
        key = OfferedKey(account=account, label="command", source=KeySource.COMMAND)
        got = self.commanded.get(account)
        if got is not None and self._wall_ms() < got.until_ms:
            key = msgspec.structs.replace(key, secret=got.secret, expires_ms=got.until_ms)
        return self._fetched(provider, key)

    def _fetched(self, provider: str, key: OfferedKey) -> OfferedKey:
        """A key that can be fetched anew, as it stands: one whose secret is refused has none until then."""
        rest = self.rest_of(provider, key.account)
        if key.secret is not None and self.rest_of(provider, fingerprint(key.secret) or "") is None:
            return msgspec.structs.replace(key, rest=rest)
        rest = longer(rest, self.blocked(provider, key.account))
        return msgspec.structs.replace(key, secret=None, expires_ms=None, rest=rest)


def command_account(provider: str, command: str) -> str:
    """Name the account behind a command: its keys come and go, the account stays."""
    return fingerprint(f"command\0{provider}\0{command}") or ""


def without_keys(environ: Mapping[str, str], providers: Mapping[str, ProviderSettings]) -> dict[str, str]:
    """The environment for commands: a key of one provider is no business of another one's command."""
    names = {provider.api_key_env for provider in providers.values()}
    return {name: value for name, value in environ.items() if name not in names}


def _view(provider: str, key: OfferedKey, kept: Kept) -> CredentialView:
    stored = kept.named(provider, key.account) if key.source is KeySource.STORE else None
    kind = "command" if key.source is KeySource.COMMAND else "oauth" if isinstance(stored, OAuthCredential) else "key"
    return CredentialView(
        provider=provider,
        label=key.label,
        source=key.source,
        fingerprint=key.account,
        kind=kind,
        added_ms=stored.added_ms if stored is not None else None,
        expires_ms=key.expires_ms,
        rest=key.rest,
    )
