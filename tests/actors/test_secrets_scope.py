"""A profile's secrets: what a scope has not is missing, and a hop to a thread must carry the scope along."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from covey.actors.secrets_scope import (
    ScopedSecrets,
    UnscopedSecret,
    in_scope,
    profile_scope,
    secret,
    serve_many_profiles,
)


@pytest.fixture
def many() -> Iterator[None]:
    serve_many_profiles()
    yield
    serve_many_profiles(False)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "of-the-process")


def test_without_profiles_the_environment_answers() -> None:
    assert (secret("THE_KEY"), secret("NO_SUCH_KEY")) == ("of-the-process", None)


def test_a_scope_is_all_there_is() -> None:
    with profile_scope({"OTHER": "of-the-profile"}):
        assert (secret("OTHER"), secret("THE_KEY")) == ("of-the-profile", None)
        with profile_scope({}):
            assert secret("OTHER") is None
        assert secret("OTHER") == "of-the-profile"
    assert secret("THE_KEY") == "of-the-process"


@pytest.mark.usefixtures("many")
def test_with_many_profiles_a_secret_outside_of_all_is_an_error() -> None:
    with pytest.raises(UnscopedSecret, match="THE_KEY"):
        secret("THE_KEY")
    with profile_scope({"THE_KEY": "of-the-profile"}):
        assert secret("THE_KEY") == "of-the-profile"
    with pytest.raises(UnscopedSecret):
        secret("THE_KEY")


@pytest.mark.usefixtures("many")
def test_tasks_have_the_scope_they_were_made_in() -> None:
    async def ask(name: str) -> str | None:
        with profile_scope({"THE_KEY": name}):
            first = asyncio.get_running_loop().create_task(look())
        with profile_scope({"THE_KEY": "another"}):
            return await first

    async def look() -> str | None:
        await asyncio.sleep(0)
        return secret("THE_KEY")

    async def main() -> list[str | None]:
        return await asyncio.gather(*(ask(f"profile-{number}") for number in range(3)))

    assert asyncio.run(main()) == ["profile-0", "profile-1", "profile-2"]


def hop(wrap: Callable[[Callable[[str], str | None]], Callable[[str], str | None]]) -> str | None:
    """Ask for the key on a thread of an executor that was started outside of the scope."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: None).result()
        with profile_scope({"THE_KEY": "of-the-profile"}):
            return pool.submit(wrap(secret), "THE_KEY").result(timeout=10)


@pytest.mark.usefixtures("many")
def test_a_bare_executor_has_no_scope_and_fails_closed() -> None:
    with pytest.raises(UnscopedSecret):
        hop(lambda work: work)


@pytest.mark.usefixtures("many")
def test_a_hop_carries_its_scope() -> None:
    assert hop(in_scope) == "of-the-profile"


@pytest.mark.usefixtures("many")
def test_one_hop_runs_on_many_threads_at_once() -> None:
    async def main() -> list[str | None]:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(4) as pool, profile_scope({"THE_KEY": "of-the-profile"}):
            look = in_scope(secret)
            return await asyncio.gather(*(loop.run_in_executor(pool, look, "THE_KEY") for _ in range(50)))

    assert set(asyncio.run(main())) == {"of-the-profile"}


@pytest.mark.usefixtures("many")
def test_as_an_environment_it_shows_the_scope_alone() -> None:
    with profile_scope({"THE_KEY": "of-the-profile"}):
        assert dict(ScopedSecrets()) == {"THE_KEY": "of-the-profile"}
    assert list(ScopedSecrets()) == []
    with pytest.raises(UnscopedSecret):
        ScopedSecrets()["THE_KEY"]
