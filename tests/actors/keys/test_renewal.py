"""Renewing a login over a store whose writes fail: no pair of tokens that was got is lost, none is asked for twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from covey.actors.keys.oauth import Refreshed, Rotated
from covey.actors.keys.renewal import WRITE_TRIES, NotRenewed, Renewed, Renewer
from covey.protocol.errors import HomeError
from covey.storage.credentials import Kept, OAuthCredential

LOGIN = OAuthCredential(
    label="work",
    account="account",
    refresh_token="refresh-0",
    token_url="https://login.example.org/token",
    client_id="covey",
    added_ms=1,
    access_token="access-0",
    expires_ms=10_000_000,
)


class FailingStore:
    """In memory; the writes whose numbers are in `failing` fail."""

    def __init__(self, failing: set[int]) -> None:
        self.kept = Kept().with_credential("sim", LOGIN)
        self.failing = failing
        self.writes = 0

    def signature(self) -> object:
        return self.writes

    def read(self) -> Kept:
        return self.kept

    def write(self, kept: Kept) -> None:
        self.writes += 1
        if self.writes in self.failing:
            raise HomeError("credentials.json", "cannot be written: No space left on device")
        self.kept = kept

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        yield


class SlowStore(FailingStore):
    """Its writes wait to be let end, and it knows whether it is locked."""

    def __init__(self, failing: set[int]) -> None:
        super().__init__(failing)
        self.is_writing, self.may_end = threading.Event(), threading.Event()
        self.is_locked = False

    def write(self, kept: Kept) -> None:
        self.is_writing.set()
        self.may_end.wait(10)
        super().write(kept)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        self.is_locked = True
        try:
            yield
        finally:
            self.is_locked = False


class Endpoint:
    """Takes each refresh token once."""

    def __init__(self, store: FailingStore) -> None:
        self.store = store
        self.asked: list[str] = []

    async def __call__(self, login: OAuthCredential) -> Refreshed:
        assert self.store.kept.of("sim")[0] != LOGIN, "nothing is asked before it is on file"
        self.asked.append(login.refresh_token)
        return Rotated("access-1", "refresh-1", 3600.0, None)


def renewed_with(failing: set[int], times: int = 1) -> tuple[FailingStore, Endpoint, list[Renewed | NotRenewed]]:
    store = FailingStore(failing)
    endpoint = Endpoint(store)
    renewer = Renewer(store, endpoint, wall_ms=lambda: 1000, write_again_s=0.0)

    async def refused() -> list[Renewed | NotRenewed]:
        return [await renewer.renew("sim", "account", LOGIN.token) for _ in range(times)]

    return store, endpoint, asyncio.run(refused())


@pytest.mark.parametrize("failures", range(WRITE_TRIES))
def test_a_write_that_fails_is_repeated_and_the_pair_is_kept(failures: int) -> None:
    store, endpoint, (found,) = renewed_with(set(range(2, 2 + failures)))

    kept = store.kept.oauth("sim", "account")
    assert isinstance(found, Renewed)
    assert kept == found.credential
    assert (kept.refresh_token, kept.renewing_ms, endpoint.asked) == ("refresh-1", None, ["refresh-0"])


def test_a_disk_that_is_full_before_spends_no_refresh_token() -> None:
    store, endpoint, (found,) = renewed_with({1})

    assert isinstance(found, NotRenewed)
    assert not found.is_final
    assert (endpoint.asked, store.kept.of("sim")) == ([], (LOGIN,))


def test_a_disk_that_becomes_full_hands_the_pair_out_once_it_is_written() -> None:
    store, endpoint, (first, second) = renewed_with(set(range(2, 2 + WRITE_TRIES)), times=2)

    assert isinstance(first, NotRenewed)
    assert not first.is_final
    assert isinstance(second, Renewed)
    assert endpoint.asked == ["refresh-0"]
    assert store.kept.of("sim") == (second.credential,)


def test_a_renewal_that_is_cancelled_lets_nobody_in_before_its_write_is_over() -> None:
    async def main() -> None:
        store = SlowStore(set())
        renewal = asyncio.ensure_future(
            Renewer(store, Endpoint(store), wall_ms=lambda: 1000).renew("sim", "account", LOGIN.token)
        )
        await asyncio.to_thread(store.is_writing.wait, 10)
        renewal.cancel()
        await asyncio.sleep(0)
        assert store.is_locked
        store.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await renewal
        assert (store.is_locked, store.writes) == (False, 1)

    asyncio.run(main())


def test_a_login_that_was_made_anew_meanwhile_is_not_overwritten() -> None:
    store = FailingStore(set(range(2, 2 + WRITE_TRIES)))
    renewer = Renewer(store, Endpoint(store), wall_ms=lambda: 1000, write_again_s=0.0)

    async def main() -> Renewed | NotRenewed:
        await renewer.renew("sim", "account", LOGIN.token)
        again = OAuthCredential(
            label="work",
            account="account",
            refresh_token="refresh-of-a-person",
            token_url=LOGIN.token_url,
            client_id="covey",
            added_ms=2,
            access_token="access-of-a-person",
            expires_ms=10_000_000,
        )
        store.kept = Kept().with_credential("sim", again)
        return await renewer.renew("sim", "account", LOGIN.token)

    found = asyncio.run(main())

    assert isinstance(found, Renewed)
    assert found.credential.refresh_token == "refresh-of-a-person"
