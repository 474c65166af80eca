"""A worker's keys, over the real actor and the real files, without a socket between them."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey.actors.keys.credentials import Credentials, Providers, Settle
from covey.actors.keys.oauth import Refreshed, RefreshFailed, RefreshRefused, Rotated
from covey.actors.keys.sources import FRESH_MS, command_account
from covey.actors.ports import Key, Request
from covey.actors.runtime.ref import ActorRef
from covey.protocol.destination import fingerprint
from covey.protocol.errors import AskTimeout, NoKey
from covey.protocol.fault_kinds import Fault, FaultAction, FaultKind, FaultScope
from covey.protocol.frames import BodyDecoder
from covey.protocol.ids import Incarnation
from covey.protocol.messages.base import Done, Wire
from covey.protocol.messages.credentials import (
    CredentialsQuery,
    CredentialsReply,
    CredentialsView,
    KeyRenewed,
    KeysQuery,
    KeyTrouble,
    KeyWorks,
    RenewKey,
)
from covey.protocol.messages.remote import RemoteBrokerRequest, RemoteLedgerRequest, RemoteRootRequest
from covey.protocol.peer import Peer
from covey.protocol.session import body_of
from covey.protocol.settings import KeyStrategy, ProviderSettings
from covey.storage.credentials import Credential, Kept, OAuthCredential, PlainCredential
from covey.storage.owners import me
from covey.supervisor.credential_file import CredentialFile
from covey.supervisor.credentials_service import LocalRequest, shared_desk
from covey.supervisor.home import Home
from covey.supervisor.keys_port import FRESH_S, LOOK_S, FleetKeys
from covey.supervisor.rest_file import RestFile

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
PEER = Peer(role="worker", name="worker-1", incarnation=Incarnation("life-1"), owner=me())


class World:
    """A home, a clock that tests move, the credentials, and a link to them that counts what is asked."""

    def __init__(self, folder: Path, environ: Mapping[str, str], **provider: Any) -> None:
        self.home = Home(folder / "home")
        self.home.prepare()
        self.file = CredentialFile(self.home)
        self.environ = dict(environ)
        self.provider = ProviderSettings(name="sim", base_url="https://api.example.org/v1", **provider)
        self.now_ms = START_MS
        self.asked: list[Wire] = []
        self.is_silent = self.link_is_stuck = False
        self.exchanges: list[OAuthCredential] = []
        self.answers: list[Refreshed] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def start(self) -> FleetKeys:
        self.actor: ActorRef = await Credentials.start_ready(
            providers={"sim": self.provider},
            store=self.file,
            rests=RestFile(self.home),
            environ=self.environ,
            exchange=self.exchange,
            wall_ms=lambda: self.now_ms,
        )
        return self.worker()

    def worker(self) -> FleetKeys:
        return FleetKeys(
            self, self.environ, self.home, wall_ms=lambda: self.now_ms, clock=lambda: self.now_ms / 1000,
            chance=lambda: 0.0,
        )  # fmt: skip

    async def exchange(self, login: OAuthCredential) -> Refreshed:
        self.exchanges.append(login)
        await self.gate.wait()
        if self.answers:
            return self.answers.pop(0)
        number = len(self.exchanges)
        return Rotated(f"access-{number}", f"refresh-{number}", 3600.0, None)

    async def ask(self, message: Wire, *, timeout_s: float | None) -> Wire:
        if self.is_silent:
            raise AskTimeout(type(message).__name__, "broker", timeout_s or 0.0)
        self.asked.append(message)
        if self.link_is_stuck:
            await asyncio.Event().wait()
        reply: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()
        # As over a socket: what is said is encoded, and only this union is understood.
        body = BodyDecoder(LocalRequest).decode(body_of(message))
        self.actor.tell(Request(PEER, body, reply.set_result))
        return BodyDecoder(CredentialsReply).decode(body_of(await asyncio.wait_for(reply, 10)))

    def post(self, message: Wire) -> None:
        self.asked.append(message)
        self.actor.tell(Request(PEER, message, lambda reply: None))

    def add(self, *credentials: Credential) -> None:
        def place(kept: Kept) -> Kept:
            for credential in credentials:
                kept = kept.with_credential("sim", credential)
            return kept

        if credentials:
            self.file.change(place)

    def later(self, ms: float) -> None:
        self.now_ms += int(ms)


def key(number: int) -> PlainCredential:
    return PlainCredential(label=f"key{number}", key=f"sk-{number}", added_ms=START_MS)


def login(**more: Any) -> OAuthCredential:
    said: dict[str, Any] = {
        "label": "login1",
        "account": "acc000000000",
        "refresh_token": "refresh-0",
        "token_url": "https://login.example.org/token",
        "client_id": "covey",
        "added_ms": START_MS,
        "access_token": "access-0",
        "issued_ms": START_MS - HOUR_MS,
        "expires_ms": START_MS + HOUR_MS,
    }
    return OAuthCredential(**{**said, **more})


def fault(kind: FaultKind, **more: Any) -> Fault:
    return Fault(kind=kind, scope=FaultScope.CREDENTIAL, action=FaultAction.ROTATE, message="no", **more)


Body = Callable[[World, FleetKeys], Awaitable[None]]


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., Callable[[Body], None]]:
    """`world(environ, credentials, provider settings…)(body)` runs `body(world, keys)` on a loop."""

    def build(environ: Mapping[str, str] | None = None, *credentials: Credential, **provider: Any) -> Any:
        def play(body: Body) -> None:
            async def main() -> None:
                made = World(tmp_path, environ or {}, **provider)
                made.add(*credentials)
                keys = await made.start()
                await body(made, keys)
                made.actor.stop()
                await made.actor.stopped(deadline_s=5)

            asyncio.run(main())

        return play

    return build


class TestTheFastPath:
    def test_a_key_of_the_environment_alone_is_nobody_s_business(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            world.is_silent = True

            found = await keys.choose(world.provider)
            keys.trouble(world.provider, found, fault(FaultKind.AUTH))
            renewed = await keys.renew(world.provider, found)

            assert (found.secret, found.fingerprint, renewed) == ("sk-env", fingerprint("sk-env"), None)
            assert world.asked == []

        world({"SIM_KEY": "sk-env"}, api_key_env="SIM_KEY")(body)

    def test_it_is_chosen_without_giving_the_loop_away(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            coroutine = keys.choose(world.provider)
            with pytest.raises(StopIteration) as ended:
                coroutine.send(None)
            assert ended.value.value.secret == "sk-env"

        world({"SIM_KEY": "sk-env"}, api_key_env="SIM_KEY")(body)

    def test_a_provider_with_no_source_needs_no_key(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            found = await keys.choose(world.provider)
            assert (found.secret, found.fingerprint, world.asked) == (None, None, [])

        world({})(body)

    def test_credentials_of_another_provider_are_no_reason_to_ask(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            world.file.change(lambda kept: kept.with_credential("other", key(1)))
            world.later(LOOK_S * 1000)
            assert (await keys.choose(world.provider)).secret == "sk-env"
            assert world.asked == []

        world({"SIM_KEY": "sk-env"}, api_key_env="SIM_KEY")(body)

    def test_a_key_that_is_added_meanwhile_is_used_from_the_next_look_on(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            before = await keys.choose(world.provider)
            world.add(key(1))
            world.later(LOOK_S * 1000)
            after = await keys.choose(world.provider)
            assert (before.secret, after.secret, after.label) == ("sk-env", "sk-1", "key1")

        world({"SIM_KEY": "sk-env"}, api_key_env="SIM_KEY")(body)


class TestPools:
    def test_the_sources_have_their_order(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            found = [(await keys.choose(world.provider)).secret for _ in range(5)]
            assert found == ["sk-1", "sk-2", "sk-env", "sk-command", "sk-1"]

        world(
            {"SIM_KEY": "sk-env"}, key(1), key(2), api_key_env="SIM_KEY", key_strategy=KeyStrategy.ROUND_ROBIN,
            api_key_command="printf sk-command",
        )(body)  # fmt: skip

    def test_a_pool_is_asked_for_once_in_a_while_however_many_choose(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            await asyncio.gather(*(keys.choose(world.provider) for _ in range(50)))
            first = len(world.asked)
            world.later(FRESH_S * 1000)
            await keys.choose(world.provider)
            assert (first, len(world.asked)) == (1, 2)

        world({}, key(1))(body)

    @pytest.mark.parametrize("kind", [FaultKind.RATE, FaultKind.CONCURRENCY, FaultKind.OVERLOADED, FaultKind.TIMEOUT])
    def test_a_busy_provider_benches_no_key(self, world: Any, kind: FaultKind) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            found = await keys.choose(world.provider)
            keys.trouble(world.provider, found, fault(kind, retry_after_s=60.0))
            assert (await keys.choose(world.provider)).secret == "sk-1"

        world({}, key(1), key(2))(body)

    def test_a_key_that_is_used_up_rests_for_all_processes_until_it_is_not(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            other = world.worker()
            found = await keys.choose(world.provider)
            keys.trouble(world.provider, found, fault(FaultKind.QUOTA, resets_at=(START_MS + HOUR_MS) / 1000))
            here, there = (await keys.choose(world.provider)).secret, (await other.choose(world.provider)).secret
            world.later(HOUR_MS)
            again = (await keys.choose(world.provider)).secret
            assert (here, there, again) == ("sk-2", "sk-2", "sk-1")

        world({}, key(1), key(2))(body)

    def test_when_all_rest_the_caller_learns_until_when(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            for hours in (2, 1):
                found = await keys.choose(world.provider)
                keys.trouble(world.provider, found, fault(FaultKind.QUOTA, retry_after_s=hours * 3600.0))
            with pytest.raises(NoKey, match="2 of its 2 keys rest") as refused:
                await keys.choose(world.provider)
            assert refused.value.until == START_MS / 1000 + 3600

        world({}, key(1), key(2))(body)

    def test_keys_to_avoid_are_not_chosen(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            first = await keys.choose(world.provider)
            second = await keys.choose(world.provider, avoid=frozenset({first.fingerprint or ""}))
            with pytest.raises(NoKey, match="each of its keys was refused"):
                await keys.choose(world.provider, avoid=frozenset({first.fingerprint or "", second.fingerprint or ""}))
            assert second.secret == "sk-2"

        world({}, key(1), key(2))(body)

    def test_a_dead_key_stays_dead_for_the_next_life_until_it_works(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            found = await keys.choose(world.provider)
            keys.trouble(world.provider, found, fault(FaultKind.AUTH))
            await keys.choose(world.provider)
            await until(lambda: RestFile(world.home).load() != {})
            world.actor.stop()
            await world.actor.stopped(deadline_s=5)
            await world.start()
            world.later(FRESH_S * 1000)

            dead = await keys.choose(world.provider)
            world.post(KeyWorks(provider="sim", account=found.fingerprint or "", token=found.fingerprint or ""))
            world.later(FRESH_S * 1000)
            alive = await keys.choose(world.provider)

            assert (found.secret, dead.secret, alive.secret) == ("sk-1", "sk-2", "sk-1")

        world({}, key(1), key(2))(body)

    def test_a_broker_that_is_away_does_not_take_a_known_pool_away(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            await keys.choose(world.provider)
            world.is_silent = True
            world.later(FRESH_S * 1000)
            assert (await keys.choose(world.provider)).secret == "sk-1"
            with pytest.raises(NoKey, match="cannot be asked"):
                await world.worker().choose(world.provider)

        world({}, key(1))(body)

    def test_one_who_is_cancelled_takes_nothing_from_the_others(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            tasks = [asyncio.ensure_future(keys.choose(world.provider)) for _ in range(3)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(found[0], asyncio.CancelledError)
            assert [one.secret for one in found[1:] if isinstance(one, Key)] == ["sk-1", "sk-1"]

        world({}, key(1))(body)

    def test_a_broker_that_is_stuck_holds_up_no_call_whose_pool_is_known(
        self, world: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("covey.supervisor.keys_port.KNOWN_S", 0.05)

        async def body(world: World, keys: FleetKeys) -> None:
            await keys.choose(world.provider)
            world.later(FRESH_S * 1000)
            world.link_is_stuck = True
            async with asyncio.timeout(5):
                assert (await keys.choose(world.provider)).secret == "sk-1"

        world({}, key(1))(body)

    def test_a_clock_that_is_set_back_leaves_no_key_resting_for_the_difference(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            found = await keys.choose(world.provider)
            keys.trouble(world.provider, found, fault(FaultKind.QUOTA, retry_after_s=3600.0))
            with pytest.raises(NoKey):
                await keys.choose(world.provider)
            world.later(-24 * HOUR_MS)
            assert (await world.worker().choose(world.provider)).secret == "sk-1"

        world({}, key(1))(body)


class TestADamagedFile:
    def test_a_provider_that_needs_no_key_goes_on_without_one(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            world.file.change(lambda kept: kept.with_credential("other", key(1)))
            world.later(10_000)
            await world.ask(KeysQuery(provider="sim"), timeout_s=5)
            world.file.path.write_bytes(b"{")
            world.later(10_000)
            assert (await keys.choose(world.provider)).secret is None

        world({})(body)

    @pytest.mark.parametrize("place", ["file", "folder"])
    def test_a_mode_that_was_mended_is_noticed_by_the_running_fleet(self, world: Any, place: str) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            refused = world.file.path if place == "file" else world.home.path
            mode = refused.stat().st_mode & 0o777
            refused.chmod(0o722)
            world.actor.stop()
            await world.actor.stopped(deadline_s=5)
            keys = await world.start()
            with pytest.raises(NoKey, match="can be written by others"):
                await keys.choose(world.provider)

            refused.chmod(mode)
            world.later(10_000)

            assert (await keys.choose(world.provider)).secret == "sk-1"

        world({}, key(1))(body)

    def test_a_fleet_that_never_read_it_shows_no_key_that_it_would_not_take(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            world.file.path.write_bytes(b"{")
            world.actor.stop()
            await world.actor.stopped(deadline_s=5)
            await world.start()

            view = await world.ask(CredentialsQuery(), timeout_s=5)

            assert isinstance(view, CredentialsView)
            assert (view.credentials, "is damaged" in (view.problem or "")) == ((), True)

        world({"SIM_KEY": "sk-paid"}, key(1), api_key_env="SIM_KEY")(body)

    def test_the_fleet_goes_on_with_what_it_read_last(self, world: Any, caplog: pytest.LogCaptureFixture) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            await keys.choose(world.provider)
            world.file.path.write_bytes(b"{")
            world.later(10_000)
            found = [(await keys.choose(world.provider)).secret for _ in range(2)]
            assert found == ["sk-1", "sk-1"]
            assert caplog.text.count("credentials_refused") == 1

        with caplog.at_level(logging.ERROR):
            world({"SIM_KEY": "sk-paid"}, key(1), api_key_env="SIM_KEY")(body)

    def test_a_fleet_that_never_read_it_does_not_fall_back_to_another_key(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            world.file.path.write_bytes(b"{")
            world.actor.stop()
            await world.actor.stopped(deadline_s=5)
            keys = await world.start()

            with pytest.raises(NoKey, match=r"credentials\.json is damaged .*covey auth add"):
                await keys.choose(world.provider)

            world.file.path.unlink()
            world.later(10_000)
            assert (await keys.choose(world.provider)).secret == "sk-paid"

        world({"SIM_KEY": "sk-paid"}, key(1), api_key_env="SIM_KEY")(body)


class TestLogins:
    def test_a_refused_token_is_renewed_once_for_all_and_adopted_after_that(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            workers = [keys, *(world.worker() for _ in range(3))]
            stale = await keys.choose(world.provider)
            renewed = await asyncio.gather(*(one.renew(world.provider, stale) for one in workers for _ in range(5)))
            late = await world.worker().renew(world.provider, stale)

            assert {one.secret for one in [*renewed, late] if one is not None} == {"access-1"}
            assert [one.refresh_token for one in world.exchanges] == ["refresh-0"]
            assert (await keys.choose(world.provider)).fingerprint == stale.fingerprint == "acc000000000"

        world({}, login())(body)

    def test_the_pair_is_on_the_disk_before_anybody_has_it(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            seen: list[bytes] = []
            write = world.file.write

            def watched(kept: Any) -> None:
                write(kept)
                seen.append(world.file.path.read_bytes())

            world.file.write = watched  # type: ignore[method-assign]
            await keys.renew(world.provider, await keys.choose(world.provider))
            assert len(seen) == 2
            assert b"renewing_ms" in seen[0]
            assert b"refresh-1" in seen[1]
            assert b"renewing_ms" not in seen[1]

        world({}, login())(body)

    def test_a_token_is_renewed_before_it_ends_and_nobody_waits(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            world.later(HOUR_MS - 60_000)
            world.gate.clear()
            first = await keys.choose(world.provider)
            world.gate.set()
            await until(lambda: b"access-1" in world.file.path.read_bytes())
            world.later(5_000)
            second = await keys.choose(world.provider)
            assert (first.secret, second.secret, len(world.exchanges)) == ("access-0", "access-1", 1)

        world({}, login())(body)

    def test_a_token_that_has_ended_is_never_offered(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            world.later(HOUR_MS)
            found = await asyncio.gather(*(keys.choose(world.provider) for _ in range(10)))
            assert {one.secret for one in found} == {"access-1"}
            assert len(world.exchanges) == 1

        world({}, login())(body)

    def test_a_token_that_ends_while_its_pool_is_believed_is_not_chosen(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            world.later(HOUR_MS - 1_000)
            world.answers = [RefreshFailed("HTTP 500", is_open=True)]
            await keys.choose(world.provider)
            await until(lambda: len(world.exchanges) == 1)
            world.later(1_500)
            with pytest.raises(NoKey, match="HTTP 500"):
                await keys.choose(world.provider)
            world.later(10_000)
            assert (await keys.choose(world.provider)).secret == "access-2"

        world({}, login())(body)

    def test_a_dead_login_lets_the_next_key_have_the_call(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            world.later(HOUR_MS)
            world.answers = [RefreshRefused("login.example.org says invalid_grant")]
            found = [(await keys.choose(world.provider)).secret for _ in range(3)]
            assert found == ["sk-1"] * 3
            assert len(world.exchanges) == 1

        world({}, login(), key(1))(body)

    def test_an_endpoint_that_fails_is_left_alone_longer_each_time(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            world.later(HOUR_MS)
            world.answers = [RefreshFailed("HTTP 500", is_open=True)] * 3
            asked_at = []
            for _ in range(40):
                before = len(world.exchanges)
                with suppress(NoKey):
                    await keys.choose(world.provider)
                if len(world.exchanges) > before:
                    asked_at.append((world.now_ms - START_MS - HOUR_MS) // 1000)
                world.later(1_000)
            assert asked_at == [0, 5, 15, 35]

        world({}, login())(body)

    def test_a_token_refused_as_soon_as_it_is_made_ends_the_account_and_not_the_refresh_token(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            renewed = await keys.renew(world.provider, await keys.choose(world.provider))
            assert renewed is not None
            again = await keys.renew(world.provider, renewed)
            keys.trouble(world.provider, renewed, fault(FaultKind.AUTH))
            with pytest.raises(NoKey) as refused:
                await keys.choose(world.provider)
            assert (again, refused.value.until, len(world.exchanges)) == (None, None, 1)

        world({}, login())(body)

    def test_an_old_token_that_is_refused_costs_one_renewal_and_no_more(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            stale = await keys.choose(world.provider)
            keys.trouble(world.provider, stale, fault(FaultKind.AUTH))
            world.later(FRESH_MS)
            found = [(await keys.choose(world.provider)).secret for _ in range(3)]
            assert (found, len(world.exchanges)) == (["access-1"] * 3, 1)

        world({}, login())(body)

    def test_a_login_that_was_removed_is_not_renewed(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            stale = await keys.choose(world.provider)
            world.file.change(lambda kept: kept.without("sim", kept.of("sim")[0]))
            assert await keys.renew(world.provider, stale) is None
            assert world.exchanges == []

        world({}, login(), key(1))(body)

    def test_a_full_disk_stops_the_renewal_before_the_refresh_token_is_spent(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            stale = await keys.choose(world.provider)
            world.file.path.with_name("credentials.lock").unlink(missing_ok=True)
            world.home.path.chmod(0o777)
            assert await keys.renew(world.provider, stale) is None
            world.home.path.chmod(0o700)
            assert world.exchanges == []

        world({}, login())(body)


class TestCommands:
    def command(self, folder: Path) -> str:
        """Prints another key each time, and leaves a line for each time it ran."""
        code = f"n=open('{folder}/runs','a+'); n.write('x'); n.flush(); n.seek(0); print('sk-%d' % len(n.read()))"
        return shlex.join([sys.executable, "-I", "-c", code])

    def test_it_runs_once_for_the_fleet_and_again_when_its_key_is_old(self, world: Any, tmp_path: Path) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            workers = [keys, *(world.worker() for _ in range(5))]
            found = await asyncio.gather(*(one.choose(world.provider) for one in workers))
            world.later(901_000)
            later = await keys.choose(world.provider)
            assert {one.secret for one in found} == {"sk-1"}
            assert later.secret == "sk-2"
            assert {one.fingerprint for one in [*found, later]} == {command_account("sim", self.command(tmp_path))}

        world({}, api_key_command=self.command(tmp_path))(body)

    def test_a_refused_key_is_fetched_anew(self, world: Any, tmp_path: Path) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            stale = await keys.choose(world.provider)
            world.later(FRESH_MS)
            renewed = await asyncio.gather(*(keys.renew(world.provider, stale) for _ in range(5)))
            assert {one.secret for one in renewed if one is not None} == {"sk-2"}

        world({}, api_key_command=self.command(tmp_path))(body)

    def test_a_command_that_prints_the_refused_key_again_is_no_renewal(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            stale = await keys.choose(world.provider)
            world.later(FRESH_MS)
            assert await keys.renew(world.provider, stale) is None
            keys.trouble(world.provider, stale, fault(FaultKind.AUTH))
            with pytest.raises(NoKey, match="printed the key again"):
                await keys.choose(world.provider)

        world({}, api_key_command="printf sk-same")(body)

    def test_a_command_that_fails_is_said_and_not_run_again_at_once(self, world: Any, tmp_path: Path) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            for _ in range(3):
                with pytest.raises(NoKey, match="exit code 1"):
                    await keys.choose(world.provider)
            assert (tmp_path / "ran").read_text() == "x"

        world({}, api_key_command=f"sh -c 'printf x >> {tmp_path}/ran; exit 1'")(body)

    def test_a_configuration_with_another_command_holds_from_now_on(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            await keys.choose(world.provider)
            changed = msgspec.structs.replace(world.provider, api_key_command="printf sk-b")
            world.actor.tell(Providers({"sim": changed}))
            world.later(FRESH_S * 1000)
            assert (await keys.choose(changed)).secret == "sk-b"

        world({}, api_key_command="printf sk-a")(body)

    def test_the_key_of_a_provider_that_was_configured_meanwhile_is_kept_from_it(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            other = ProviderSettings(name="other", base_url="https://other.example.org/v1", api_key_env="OTHER_KEY")
            world.actor.tell(Providers({"sim": world.provider, "other": other}))
            assert (await keys.choose(world.provider)).secret == "none"

        environ = {**os.environ, "OTHER_KEY": "sk-other"}
        world(environ, api_key_command="sh -c 'echo ${OTHER_KEY:-none}'")(body)

    def test_an_end_in_another_age_ends_no_broker(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            with pytest.raises(NoKey, match="an end that is no time"):
                await keys.choose(world.provider)

        world({}, api_key_command="""printf '{"key": "sk-1", "expires_in": 1e30}'""")(body)

    def test_a_fleet_that_stops_waits_for_no_command_and_whoever_asked_asks_the_successor(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            replies: list[Wire] = []
            account = command_account("sim", "sleep 60")
            world.actor.tell(Request(PEER, RenewKey(provider="sim", account=account), replies.append))
            await world.ask(KeysQuery(provider="sim"), timeout_s=5)
            async with asyncio.timeout(5):
                await world.actor.ask(Settle(), deadline_s=5)
            world.actor.tell(Request(PEER, RenewKey(provider="sim", account=account), replies.append))
            await world.ask(KeysQuery(provider="sim"), timeout_s=5)
            assert [one for one in replies if isinstance(one, KeyRenewed)] == []

        world({"PATH": os.environ["PATH"]}, api_key_command="sleep 60")(body)


class TestSecrecy:
    def test_what_people_are_shown_has_no_secret(self, world: Any) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            view = await world.ask(CredentialsQuery(), timeout_s=5)
            assert isinstance(view, CredentialsView)
            assert [one.label for one in view.credentials] == ["login1", "key1", "SIM_KEY", "command"]
            for secret in (b"sk-1", b"sk-env", b"access-0", b"refresh-0"):
                assert secret not in msgspec.json.encode(view)

        world({"SIM_KEY": "sk-env"}, login(), key(1), api_key_env="SIM_KEY", api_key_command="printf sk-c")(body)

    def test_nothing_that_is_said_shows_a_secret_in_its_text(
        self, world: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def body(world: World, keys: FleetKeys) -> None:
            offered = await world.ask(KeysQuery(provider="sim"), timeout_s=5)
            stale = await keys.choose(world.provider)
            renewed = await world.ask(RenewKey(provider="sim", account="acc000000000", stale=fingerprint("access-0")), timeout_s=5)  # noqa: E501  # fmt: skip
            keys.trouble(world.provider, stale, fault(FaultKind.AUTH))
            texts = [repr(offered), repr(renewed), repr(stale), repr(world.asked), caplog.text]
            for secret in ("sk-1", "access-0", "access-1", "refresh-0", "refresh-1"):
                assert not [text for text in texts if secret in text]

        with caplog.at_level(logging.DEBUG):
            world({}, login(), key(1))(body)

    @pytest.mark.parametrize("union", [RemoteRootRequest, RemoteBrokerRequest, RemoteLedgerRequest])
    def test_other_hosts_cannot_ask_for_keys(self, union: Any) -> None:
        from covey.protocol.errors import ProtocolError

        for message in (KeysQuery(provider="sim"), RenewKey(provider="sim", account="a"), CredentialsQuery()):
            with pytest.raises(ProtocolError):
                BodyDecoder(union).decode(body_of(message))

    def test_the_broker_never_sees_what_is_for_the_credentials(self) -> None:
        class Told:
            def __init__(self) -> None:
                self.told: list[Any] = []

            def tell(self, message: Any) -> None:
                self.told.append(message.body)

        broker, credentials = Told(), Told()
        desk = shared_desk(broker, credentials)  # type: ignore[arg-type]

        for body in (KeysQuery(provider="sim"), Done()):
            desk(Request(PEER, body, lambda reply: None))

        assert (credentials.told, broker.told) == ([KeysQuery(provider="sim")], [Done()])


def test_the_same_trouble_from_many_is_one_entry_and_a_shorter_one_changes_nothing(world: Any) -> None:
    async def body(world: World, keys: FleetKeys) -> None:
        found = await keys.choose(world.provider)
        for hours in (2.0, 1.0, 2.0):
            keys.trouble(world.provider, found, fault(FaultKind.QUOTA, retry_after_s=hours * 3600))
        with pytest.raises(NoKey) as refused:
            await keys.choose(world.provider)
        assert refused.value.until == START_MS / 1000 + 7200
        assert len([one for one in world.asked if isinstance(one, KeyTrouble)]) == 3

    world({}, key(1))(body)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a file that nobody sends a message about."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a file sends no events
            await asyncio.sleep(0.01)
