"""The keys of commands that ask a provider something small: from all sources, with and without a fleet."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from json_server import JsonHandler, JsonServer

from covey.__main__ import main
from covey.actors.ports import Key, Request
from covey.protocol.destination import fingerprint
from covey.protocol.errors import NoKey
from covey.protocol.fault_kinds import FaultKind
from covey.protocol.ids import Incarnation
from covey.protocol.messages.credentials import CredentialsRequest, Rest
from covey.protocol.peer import Peer
from covey.protocol.settings import KeyStrategy, ProviderSettings
from covey.protocol.version import VERSION
from covey.storage.credentials import OAuthCredential, PlainCredential
from covey.storage.owners import me
from covey.supervisor.command_keys import CommandKeys, Unfetched, command_keys
from covey.supervisor.credential_file import CredentialFile, CredentialProblem
from covey.supervisor.credentials_service import LocalRequest, start_credentials
from covey.supervisor.home import Home, RootInfo
from covey.supervisor.hub import Hub
from covey.supervisor.rest_file import RestFile
from covey.supervisor.sockets import make_context

HOUR_MS = 3_600_000
DAMAGED = '{"version": 1, "providers": {"sim": [{"ki'
PLAIN = ProviderSettings(name="sim", base_url="http://127.0.0.1:1/v1", api_key_env="SIM_KEY")
COMMAND = ProviderSettings(name="sim", base_url="http://127.0.0.1:1/v1", api_key_command="printf sk-command")
OPEN = ProviderSettings(name="sim", base_url="http://127.0.0.1:1/v1")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Portal(JsonServer):
    """Renews tokens, tells models and quota for what it gave out last and for `sk-…`; as a proxy does, for any host."""

    def __init__(self) -> None:
        super().__init__(Handler)
        self.posts = 0
        self.asked, self.held = threading.Event(), threading.Event()
        self.held.set()
        self.seen: list[tuple[str, str | None]] = []


class Handler(JsonHandler):
    server: Portal

    def do_GET(self) -> None:
        key = self.headers["authorization"]
        self.server.seen.append((self.path, key))
        good = (f"access-{self.server.posts}", "sk-store", "sk-env", "sk-command")
        is_good = (key or "").removeprefix("Bearer ") in good
        limits = [{"type": "TOKENS_LIMIT", "unit": 3, "number": 5, "percentage": 7}]
        said = {"data": {"limits": limits}} if "quota" in self.path else {"data": [{"id": "m"}]}
        self.say(200 if is_good else 401, said if is_good else {"error": {"message": "no"}})

    def do_POST(self) -> None:
        self.form()
        self.server.posts += 1
        self.server.asked.set()
        self.server.held.wait(10)
        token = f"access-{self.server.posts}"
        self.say(200, {"access_token": token, "refresh_token": f"refresh-{self.server.posts}", "expires_in": 3600})


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal() as portal:
        yield portal


@pytest.fixture
def home() -> Iterator[Home]:
    # Short, for the sockets of a fleet are in it.
    with TemporaryDirectory(prefix="cvc-", dir="/tmp") as folder:
        home = Home(Path(folder))
        home.prepare()
        yield home


def keep(home: Home, *credentials: PlainCredential | OAuthCredential) -> None:
    for credential in credentials:
        CredentialFile(home).change(lambda kept, new=credential: kept.with_credential("sim", new))  # type: ignore[misc]


def damage(home: Home) -> None:
    path = CredentialFile(home).path
    path.touch(mode=0o600)
    path.write_text(DAMAGED)


def plain(key: str) -> PlainCredential:
    return PlainCredential(label=key.replace("sk", "key"), key=key, added_ms=0)


def login(portal: Portal, *, token: str | None = None, expires_ms: int | None = None) -> OAuthCredential:
    return OAuthCredential(
        label="work",
        account=fingerprint("refresh-0") or "",
        refresh_token="refresh-0",
        token_url=f"{portal.url}/token",
        client_id="c",
        added_ms=0,
        access_token=token,
        expires_ms=expires_ms,
    )


def rest(home: Home, key: str, *, until_ms: int | None) -> None:
    why = Rest(kind=FaultKind.QUOTA, reason="the allowance is used up", since_ms=now_ms(), until_ms=until_ms)
    rests = RestFile(home)
    of_sim = rests.load().get("sim", {})
    rests.save({"sim": {**of_sim, fingerprint(key) or "": why}})


def asked(
    home: Home, provider: ProviderSettings, ask: Callable[[CommandKeys], Any], environ: dict[str, str] | None = None
) -> Any:
    async def scene() -> Any:
        async with command_keys(home, {"sim": provider}, environ or {}, warn=pytest.fail) as keys:
            return await ask(keys)

    return asyncio.run(scene())


def chosen(home: Home, provider: ProviderSettings, environ: dict[str, str] | None = None) -> Key:
    key = asked(home, provider, lambda keys: keys.choose(provider), environ)
    assert isinstance(key, Key)
    return key


class TestWithoutAFleet:
    @pytest.mark.parametrize(
        ("stored", "environ", "label", "secret"),
        [
            pytest.param(["sk-store"], {"SIM_KEY": "sk-env"}, "key-store", "sk-store", id="the store comes first"),
            pytest.param([], {"SIM_KEY": " sk-env\n"}, "SIM_KEY", "sk-env", id="then the environment"),
        ],
    )
    def test_a_key_is_the_one_a_fleet_started_from_here_would_take(
        self, home: Home, stored: list[str], environ: dict[str, str], label: str, secret: str
    ) -> None:
        keep(home, *map(plain, stored))

        assert chosen(home, PLAIN, environ) == Key(secret=secret, fingerprint=fingerprint(secret), label=label)

    def test_a_command_is_run_and_its_account_keeps_its_name(self, home: Home) -> None:
        key = chosen(home, COMMAND)

        assert (key.secret, key.label) == ("sk-command", "command")
        assert key.fingerprint != fingerprint("sk-command")

    def test_the_command_of_one_provider_does_not_see_the_key_of_another(self, home: Home) -> None:
        spy = ProviderSettings(name="spy", base_url=OPEN.base_url, api_key_command='sh -c "echo seen-$SIM_KEY-"')

        providers, environ = {"sim": PLAIN, "spy": spy}, {**os.environ, "SIM_KEY": "sk"}

        async def scene() -> Key:
            async with command_keys(home, providers, environ, warn=pytest.fail) as keys:
                return await keys.choose(spy)

        assert asyncio.run(scene()).secret == "seen--"

    def test_where_none_is_needed_there_is_none(self, home: Home) -> None:
        assert chosen(home, OPEN) == Key(secret=None, fingerprint=None, label="none")

    def test_where_one_is_missing_it_is_said_what_to_do(self, home: Home) -> None:
        with pytest.raises(NoKey, match="set SIM_KEY, or say `covey auth add sim`"):
            chosen(home, PLAIN)

    def test_a_key_that_cannot_be_had_makes_room_for_the_next(self, home: Home) -> None:
        two = ProviderSettings(
            name="sim", base_url=OPEN.base_url, api_key_command="false", key_strategy=KeyStrategy.FILL_FIRST
        )
        with pytest.raises(NoKey, match="false"):
            chosen(home, two)

        keep(home, plain("sk-store"))
        assert chosen(home, two).secret == "sk-store"

    def test_one_that_rests_is_not_chosen_but_can_be_asked_about(self, home: Home) -> None:
        keep(home, plain("sk-store"))
        rest(home, "sk-store", until_ms=now_ms() + HOUR_MS)

        assert chosen(home, PLAIN, {"SIM_KEY": "sk-env"}).secret == "sk-env"
        with pytest.raises(NoKey, match="the allowance is used up") as caught:
            chosen(home, PLAIN)
        assert caught.value.until is not None
        assert [key.secret for key in asked(home, PLAIN, lambda keys: keys.every(PLAIN))] == ["sk-store"]

    def test_a_login_that_has_ended_is_renewed_and_on_the_disk(self, home: Home, portal: Portal) -> None:
        keep(home, login(portal, token="access-old", expires_ms=now_ms() - 1))

        assert chosen(home, PLAIN).secret == "access-1"
        (kept,) = CredentialFile(home).read().of("sim")
        assert isinstance(kept, OAuthCredential)
        assert (kept.access_token, kept.refresh_token) == ("access-1", "refresh-1")
        assert chosen(home, PLAIN).secret == "access-1"
        assert portal.posts == 1

    def test_a_refused_one_is_renewed_and_a_plain_one_cannot_be(self, home: Home, portal: Portal) -> None:
        keep(home, login(portal, token="access-0", expires_ms=now_ms() + HOUR_MS), plain("sk-store"))

        async def renew(keys: CommandKeys) -> list[Key | None]:
            work, other = await keys.every(PLAIN)
            assert isinstance(work, Key)
            assert isinstance(other, Key)
            return [await keys.renew(PLAIN, work), await keys.renew(PLAIN, other)]

        renewed, none = asked(home, PLAIN, renew)
        assert (renewed.secret, renewed.fingerprint, none) == ("access-1", fingerprint("refresh-0"), None)

    def test_a_login_that_nobody_renews_is_there_with_the_reason(self, home: Home, portal: Portal) -> None:
        keep(home, login(portal))
        portal.shutdown()
        portal.server_close()

        (found,) = asked(home, PLAIN, lambda keys: keys.every(PLAIN))

        assert isinstance(found, Unfetched)
        assert "ConnectError" in found.reason

    def test_a_renewal_that_is_interrupted_is_finished_first(self, home: Home, portal: Portal) -> None:
        keep(home, login(portal))
        portal.held.clear()

        async def interrupted(keys: CommandKeys) -> None:
            choosing = asyncio.ensure_future(keys.choose(PLAIN))
            await asyncio.to_thread(portal.asked.wait, 10)
            choosing.cancel()
            await asyncio.sleep(0)
            portal.held.set()
            with pytest.raises(asyncio.CancelledError):
                await choosing

        asked(home, PLAIN, interrupted)

        (kept,) = CredentialFile(home).read().of("sim")
        assert isinstance(kept, OAuthCredential)
        assert (kept.access_token, kept.refresh_token, kept.renewing_ms) == ("access-1", "refresh-1", None)

    def test_a_damaged_file_is_an_error_and_no_other_key_is_taken(self, home: Home) -> None:
        damage(home)

        with pytest.raises(CredentialProblem, match="is damaged"):
            chosen(home, PLAIN, {"SIM_KEY": "sk-env"})


@asynccontextmanager
async def a_fleet(home: Home, provider: ProviderSettings, environ: dict[str, str]) -> AsyncIterator[None]:
    """Credentials behind a socket, and a root that says where it is."""
    credentials = await start_credentials(home, {"sim": provider}, environ)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(home.path / "broker.sock"))
    listener.listen()
    who, context = me(), make_context()
    incarnation = Incarnation(f"{os.getpid()}-{time.monotonic_ns()}")

    def serve(request: Request[Any]) -> None:
        assert isinstance(request.body, CredentialsRequest)
        credentials.tell(request)

    hub = Hub(
        context,
        path=str(home.path / "broker.sock"),
        listener_fd=listener.detach(),
        me=Peer(role="broker", name="broker", incarnation=incarnation, owner=who),
        requests=LocalRequest,
        on_request=serve,
    )
    RootInfo(
        pid=who.pid,
        start_ticks=who.start_ticks,
        boot_id=who.boot_id,
        sockets=str(home.path),
        incarnation=incarnation,
        version=VERSION,
        started_unix=time.time(),
    ).write(home.root_info)
    try:
        yield
    finally:
        hub.close()
        credentials.kill()
        await credentials.stopped(deadline_s=5)
        context.destroy(linger=0)


class TestWithAFleet:
    def with_fleet(
        self, home: Home, provider: ProviderSettings, environ: dict[str, str], ask: Callable[[CommandKeys], Any]
    ) -> tuple[Any, list[str]]:
        warned: list[str] = []

        async def scene() -> Any:
            async with (
                asyncio.timeout(20),
                a_fleet(home, provider, environ),
                command_keys(home, {"sim": provider}, {"SIM_KEY": "sk-here"}, warn=warned.append) as keys,
            ):
                return await ask(keys)

        return asyncio.run(scene()), warned

    def test_its_environment_counts(self, home: Home) -> None:
        key, _ = self.with_fleet(home, PLAIN, {"SIM_KEY": "sk-env"}, lambda keys: keys.choose(PLAIN))

        assert (key.secret, key.label) == ("sk-env", "SIM_KEY")

    def test_what_it_has_not_is_not_taken_from_here(self, home: Home) -> None:
        with pytest.raises(NoKey, match="set SIM_KEY where the fleet is started"):
            self.with_fleet(home, PLAIN, {}, lambda keys: keys.choose(PLAIN))

    def test_it_renews_what_was_refused(self, home: Home, portal: Portal) -> None:
        keep(home, login(portal, token="access-0", expires_ms=now_ms() + HOUR_MS))

        async def renew(keys: CommandKeys) -> Key | None:
            return await keys.renew(PLAIN, await keys.choose(PLAIN))

        renewed, _ = self.with_fleet(home, PLAIN, {}, renew)
        assert (renewed.secret, portal.posts) == ("access-1", 1)

    def test_it_fetches_what_has_ended(self, home: Home, portal: Portal) -> None:
        keep(home, login(portal))

        key, _ = self.with_fleet(home, PLAIN, {}, lambda keys: keys.choose(PLAIN))
        assert (key.secret, portal.posts) == ("access-1", 1)

    def test_it_goes_on_with_what_it_read_before_the_file_was_damaged_and_that_is_said(self, home: Home) -> None:
        keep(home, plain("sk-store"))

        async def damaged(keys: CommandKeys) -> str | None:
            damage(home)
            async with command_keys(home, {"sim": PLAIN}, {}, warn=said.append) as later:
                return (await later.choose(PLAIN)).secret

        said: list[str] = []
        secret, _ = self.with_fleet(home, PLAIN, {}, damaged)

        assert secret == "sk-store"
        (warning,) = said
        assert "is damaged" in warning
        assert warning.endswith("the running fleet goes on with what it read last")

    def test_where_it_never_read_the_file_no_other_key_is_taken(self, home: Home) -> None:
        damage(home)

        with pytest.raises(CredentialProblem, match="is damaged"):
            self.with_fleet(home, PLAIN, {"SIM_KEY": "sk-env"}, lambda keys: keys.choose(PLAIN))


# --- the commands ----------------------------------------------------------------------------------------------------

COMMANDS = {
    "models": ["models", "--refresh", "--provider", "sim"],
    "quota": ["budget", "quota", "sim"],
    "doctor": ["doctor", "--online"],
    "auth": ["auth", "test", "sim"],
}
PATHS = {"quota": "/api/monitor/usage/quota/limit"}


@pytest.fixture
def commands(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name == "ZAI_API_KEY":
            monkeypatch.delenv(name)
    monkeypatch.setenv("SIM_KEY", "")
    monkeypatch.setenv("COVEY_HOME", str(home.path))
    monkeypatch.setattr(sys, "stdin", None)

    def run(name: str, **provider: str) -> tuple[int, str]:
        lines = [f"    {key}: {value}\n" for key, value in provider.items()]
        home.config.write_text("providers:\n  sim:\n" + "".join(lines) + "model: {provider: sim, name: m}\n")
        code = main(COMMANDS[name])
        said = capsys.readouterr()
        assert not [secret for secret in ("sk-store", "sk-command", "access-1") if secret in said.out + said.err]
        return code, said.out + said.err

    return run


@pytest.mark.parametrize("name", COMMANDS)
class TestEveryCommand:
    @pytest.mark.parametrize(
        ("source", "secret"),
        [("store", "sk-store"), ("environment", "sk-env"), ("command", "sk-command"), ("login", "access-1")],
    )
    def test_has_the_keys_of_all_sources(
        self, home: Home, portal: Portal, commands: Any, *, name: str, source: str, secret: str
    ) -> None:
        how: dict[str, str] = {}
        match source:
            case "store":
                keep(home, plain(secret))
            case "environment":
                os.environ["SIM_KEY"] = secret
                how = {"api_key_env": "SIM_KEY"}
            case "command":
                how = {"api_key_command": f"printf {secret}"}
            case "login":
                keep(home, login(portal, token="access-withdrawn", expires_ms=now_ms() + HOUR_MS))

        code, said = commands(name, base_url=f"{portal.url}/v1", **how)

        assert code == 0, said
        path, key = portal.seen[-1]
        assert path == PATHS.get(name, "/v1/models")
        assert (key or "").removeprefix("Bearer ") == secret

    def test_goes_through_the_provider_s_proxy(self, home: Home, portal: Portal, commands: Any, name: str) -> None:
        keep(home, plain("sk-store"))

        code, said = commands(name, base_url="http://provider.invalid/v1", proxy=portal.url)

        if name != "doctor":  # which does not like the key on its way
            assert code == 0, said
        assert portal.seen[-1][0] == "http://provider.invalid" + PATHS.get(name, "/v1/models")

    def test_says_which_certificate_cannot_be_used(self, home: Home, commands: Any, name: str) -> None:
        keep(home, plain("sk-store"))
        missing = home.path / "none.pem"

        code, said = commands(name, base_url="https://127.0.0.1:1/v1", ca_bundle=str(missing))

        assert code in (1, 2), said
        assert "none.pem" in said

    def test_asks_nobody_while_the_file_is_damaged(self, home: Home, portal: Portal, commands: Any, name: str) -> None:
        damage(home)

        code, said = commands(name, base_url=f"{portal.url}/v1", api_key_command="printf sk-command")

        assert code == 1
        assert "is damaged" in said
        assert portal.seen == []


def test_the_quota_of_every_key_is_read_of_those_that_rest_too(home: Home, portal: Portal, commands: Any) -> None:
    keep(home, plain("sk-store"), plain("sk-other"))
    rest(home, "sk-store", until_ms=now_ms() + HOUR_MS)

    code, said = commands("quota", base_url=f"{portal.url}/v1")

    assert code == 1
    assert "7 % used" in said
    assert "sim, key-store (" in said
    assert "sim, key-other (" in said


def test_the_doctor_asks_z_ai_for_the_plan_on_the_way_of_its_calls(home: Home, portal: Portal, commands: Any) -> None:
    keep(home, plain("sk-store"))

    _, said = commands("doctor", base_url="http://api.z.ai/api/coding/paas/v4", proxy=portal.url)

    assert "sim answers and takes the key; it has a coding plan" in said
    assert portal.seen == [("http://api.z.ai" + PATHS["quota"], "sk-store")]


def test_a_key_that_no_header_can_hold_is_said_by_every_command(home: Home, portal: Portal, commands: Any) -> None:
    keep(home, plain("sk-\u201cstore\u201d"))

    for name in COMMANDS:
        code, said = commands(name, base_url=f"{portal.url}/v1")
        assert (code, "the key holds characters that no key has" in said) == (1, True), name
    assert portal.seen == []


def test_the_doctor_asks_nobody_with_a_file_that_others_can_read_and_leaves_it(
    home: Home, portal: Portal, commands: Any
) -> None:
    keep(home, plain("sk-store"))
    path = CredentialFile(home).path
    path.chmod(0o644)

    code, said = commands("doctor", base_url=f"{portal.url}/v1")

    assert code == 1
    assert "no provider was asked: see credentials above" in said
    assert (portal.seen, path.stat().st_mode & 0o777) == ([], 0o644)
