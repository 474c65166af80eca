"""Renewing a login: one request for the whole fleet, and the new pair on the disk before anybody has it.

Whoever renews holds the lock of the file, in whichever process: the others find another token than the one that failed
and adopt it. That a request is out is on file before it is sent, so a death in between is known afterwards, and a disk
that takes nothing is noticed while the old refresh token is still good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, ParamSpec, Protocol, TypeVar, assert_never

import msgspec

from ...protocol.errors import CoveyError
from ...storage.credentials import Kept, OAuthCredential
from ...storage.logs import log_event
from .oauth import Refreshed, RefreshFailed, RefreshRefused, Rotated

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

WRITE_TRIES: Final = 5
WRITE_AGAIN_S: Final = 0.5


class CredentialStore(Protocol):
    """The file of credentials. Its methods block, and raise a `CoveyError` where the file cannot be used."""

    def signature(self) -> object:
        """Something that differs whenever the content may have changed."""
        ...

    def read(self) -> Kept:
        """What is in it."""
        ...

    def write(self, kept: Kept) -> None:
        """Replace it, on the disk when this returns; for whoever has the lock."""
        ...

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Keep every other writer out."""
        ...


@dataclass(frozen=True, slots=True)
class Renewed:
    """The login with a token that is good; `was_asked` tells whether the provider had to be asked for it."""

    credential: OAuthCredential
    was_asked: bool


@dataclass(frozen=True, slots=True)
class NotRenewed:
    """There is no other token. `is_final`: none will come without a person."""

    reason: str
    is_final: bool


Exchange = Callable[[OAuthCredential], Awaitable[Refreshed]]


class Renewer:
    """Renews logins of one store. What was got and could not be written yet is kept here, and written next time."""

    def __init__(
        self,
        store: CredentialStore,
        exchange: Exchange,
        *,
        wall_ms: Callable[[], int],
        write_again_s: float = WRITE_AGAIN_S,
    ) -> None:
        self._store = store
        self._exchange = exchange
        self._wall_ms = wall_ms
        self._write_again_s = write_again_s
        self._unwritten: dict[tuple[str, str], OAuthCredential] = {}

    async def renew(self, provider: str, account: str, stale: str | None) -> Renewed | NotRenewed:
        """A token that is not `stale`: one that is there by now, or a new one. To be let end once it was begun."""
        try:
            async with self._store.locked():
                return await self._renew(provider, account, stale)
        except CoveyError as error:
            return NotRenewed(str(error), is_final=False)

    async def _renew(self, provider: str, account: str, stale: str | None) -> Renewed | NotRenewed:
        kept = await _to_the_end(self._store.read)
        credential = kept.oauth(provider, account)
        if credential is None:
            return NotRenewed("it was removed", is_final=True)
        if (unwritten := self._unwritten.get((provider, account))) is not None:
            if unwritten.added_ms == credential.added_ms:
                return await self._put(kept, provider, unwritten)
            del self._unwritten[provider, account]  # somebody has logged in anew since
        if credential.token != stale and not credential.is_due(self._wall_ms()):
            return Renewed(credential, was_asked=False)
        if credential.refused is not None:
            return NotRenewed(_again(provider, credential, credential.refused), is_final=True)
        begun = msgspec.structs.replace(credential, renewing_ms=self._wall_ms())
        kept = kept.with_credential(provider, begun)
        await _to_the_end(self._store.write, kept)
        return await self._take(kept, provider, credential, await self._exchange(credential))

    async def _take(
        self, kept: Kept, provider: str, before: OAuthCredential, answer: Refreshed
    ) -> Renewed | NotRenewed:
        match answer:
            case Rotated():
                return await self._put(kept, provider, self._with_tokens(before, answer))
            case RefreshRefused(reason=reason):
                if before.renewing_ms is not None:
                    at = datetime.fromtimestamp(before.renewing_ms / 1000).astimezone()
                    reason += f" (an earlier renewal, of {at:%Y-%m-%d %H:%M:%S}, never got its answer)"
                refused = msgspec.structs.replace(before, renewing_ms=None, refused=reason)
                await _to_the_end(self._store.write, kept.with_credential(provider, refused))
                return NotRenewed(_again(provider, before, reason), is_final=True)
            case RefreshFailed(reason=reason, is_open=is_open):
                if not is_open:
                    await _to_the_end(self._store.write, kept.with_credential(provider, before))
                return NotRenewed(reason, is_final=False)
            case _:
                assert_never(answer)

    def _with_tokens(self, before: OAuthCredential, new: Rotated) -> OAuthCredential:
        now_ms = self._wall_ms()
        return msgspec.structs.replace(
            before,
            access_token=new.access_token,
            refresh_token=new.refresh_token or before.refresh_token,
            issued_ms=now_ms,
            expires_ms=None if new.expires_in_s is None else now_ms + int(new.expires_in_s * 1000),
            renewing_ms=None,
            refused=None,
        )

    async def _put(self, kept: Kept, provider: str, new: OAuthCredential) -> Renewed | NotRenewed:
        """Write the new pair; a disk that was full a moment ago is given a moment."""
        error: CoveyError | None = None
        for tries_left in reversed(range(WRITE_TRIES)):
            try:
                await _to_the_end(self._store.write, kept.with_credential(provider, new))
            except CoveyError as failed:
                error = failed
                self._unwritten[provider, new.account] = new
                log_event(log, "credential_unwritten", level=logging.ERROR, provider=provider, problem=failed)
                await asyncio.sleep(self._write_again_s if tries_left else 0)
            else:
                self._unwritten.pop((provider, new.account), None)
                return Renewed(new, was_asked=True)
        return NotRenewed(f"the new token is here, but {error}", is_final=False)


async def _to_the_end(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`work` on a thread, which nobody can cancel: the lock is held until it is over, and so is the caller."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _again(provider: str, credential: OAuthCredential, reason: str) -> str:
    return f"{reason}; log in again, then `covey auth add {provider} --oauth --label {credential.label}`"
