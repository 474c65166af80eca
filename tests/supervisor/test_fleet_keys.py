"""One expired token and many processes: real processes, a real token endpoint and API, the file on the disk."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock
from typing import Any
from urllib.parse import parse_qs

import pytest
from json_server import JsonHandler, JsonServer

from covey.actors.keys.credentials import Settle
from covey.actors.keys.oauth import Refreshed, refresh
from covey.actors.keys.renewal import NotRenewed, Renewed, Renewer
from covey.actors.ports import Key, Request
from covey.protocol.destination import fingerprint
from covey.protocol.errors import NoKey
from covey.protocol.fault_kinds import Fault, FaultAction, FaultKind, FaultScope
from covey.protocol.ids import Incarnation
from covey.protocol.messages.broker import BrokerReply
from covey.protocol.messages.credentials import CredentialsReply, CredentialsRequest
from covey.protocol.peer import Peer
from covey.protocol.settings import ProviderSettings
from covey.storage.credentials import Kept, OAuthCredential
from covey.storage.owners import me
from covey.supervisor.credential_file import CredentialFile
from covey.supervisor.credentials_service import LocalRequest, start_credentials
from covey.supervisor.home import Home
from covey.supervisor.hub import Hub
from covey.supervisor.keys_port import FleetKeys
from covey.supervisor.link import Link
from covey.supervisor.loops import run
from covey.supervisor.sockets import make_context

PROCESSES = 12
HOUR_MS = 3_600_000
AUTH = Fault(kind=FaultKind.AUTH, scope=FaultScope.CREDENTIAL, action=FaultAction.ROTATE, message="expired", status=401)


class Portal(JsonServer):
    """A token endpoint whose refresh tokens are good once, and an API that takes its latest token.

    `mode`: `ok`, `error` (HTTP 500), `garbage`, `lost` (rotates, and never answers), `hang` (does neither), `held`
    (rotates, and answers once the mode is another).
    """

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(Handler, listener)
        self.lock = Lock()
        self.mode = "ok"
        self.released = Event()
        self.serial = 0
        self.refresh_token = "refresh-0"
        self.access_token = "access-0-good"
        self.stats = Counter[str]()
        self.agents: list[str] = []


class Handler(JsonHandler):
    server: Portal

    def do_GET(self) -> None:
        if self.path == "/stats":
            names = ("posts", "rotated", "refused_posts", "taken", "refused_calls")
            counts = {name: self.server.stats[name] for name in names}
            return self.say(200, {**counts, "agents": self.server.agents})
        if self.path.startswith("/mode/"):
            self.server.mode = self.path.removeprefix("/mode/")
            if self.server.mode != "held":
                self.server.released.set()
            return self.say(200, {})
        with self.server.lock:
            is_good = self.headers["authorization"] == f"Bearer {self.server.access_token}"
            self.server.stats["taken" if is_good else "refused_calls"] += 1
        return self.say(200 if is_good else 401, {"data": []} if is_good else {"error": {"message": "expired"}})

    def do_POST(self) -> None:
        form = parse_qs(self.form())
        mode = self.server.mode
        with self.server.lock:
            self.server.stats["posts"] += 1
            self.server.agents.append(self.headers["user-agent"])
            is_good = form["refresh_token"] == [self.server.refresh_token]
            if mode in ("ok", "lost", "held") and is_good:
                self.server.serial += 1
                self.server.refresh_token = f"refresh-{self.server.serial}"
                self.server.access_token = f"access-{self.server.serial}-good"
                self.server.stats["rotated"] += 1
            elif not is_good:
                self.server.stats["refused_posts"] += 1
        if mode == "held":
            self.server.released.wait(60)
        if mode in ("hang", "lost"):
            Event().wait(60)
        if mode == "error":
            return self.say(500, {"error": "server_error"})
        if mode == "garbage":
            return self.say(200, ["not", "tokens"])
        if not is_good:
            return self.say(400, {"error": "invalid_grant", "error_description": form["refresh_token"][0]})
        pair = {"access_token": self.server.access_token, "refresh_token": self.server.refresh_token}
        return self.say(200, {**pair, "expires_in": 3600, "token_type": "Bearer"})


class Fleet:
    """A home with one login whose token has been withdrawn, a portal, and the listening socket of the credentials."""

    def __init__(self, folder: Path, processes: Any, *, expires_ms: int | None = None) -> None:
        self.home = Home(folder)
        self.home.prepare()
        self.file = CredentialFile(self.home)
        self.ready, self.go = os.pipe(), os.pipe()
        self.processes = processes
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "broker.sock"))
        self.listener.listen(128)
        api = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{api.getsockname()[1]}"
        processes.fork(lambda: Portal(api).serve_forever())
        api.close()
        now_ms = time.time_ns() // 1_000_000
        login = OAuthCredential(
            label="work",
            account=fingerprint("refresh-0") or "",
            refresh_token="refresh-0",
            token_url=f"{self.url}/token",
            client_id="covey-test",
            added_ms=now_ms,
            access_token="access-0-withdrawn",
            expires_ms=expires_ms or now_ms + HOUR_MS,
        )
        self.file.change(lambda kept: kept.with_credential("sim", login))
        self.provider = ProviderSettings(name="sim", base_url=f"{self.url}/v1")

    def start_together(self, count: int) -> None:
        """Once all of them have the refused token in their hands."""
        for _ in range(count):
            os.read(self.ready[0], 1)
        os.write(self.go[1], b"." * count)

    def login(self) -> OAuthCredential:
        (login,) = self.file.read().of("sim")
        assert isinstance(login, OAuthCredential)
        return login

    def portal(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            said: dict[str, Any] = json.load(answer)
            return said

    def serve(self) -> int:
        """The credentials in a process of their own; its pid."""
        pid: int = self.processes.fork(lambda: run(self._serve()))[0]
        return pid

    async def _serve(self) -> None:
        credentials = await start_credentials(self.home, {"sim": self.provider}, {})

        def on_request(request: Request[Any]) -> None:
            assert isinstance(request.body, CredentialsRequest)
            credentials.tell(request)

        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        context = make_context()
        hub = Hub(
            context,
            path=str(self.home.path / "broker.sock"),
            listener_fd=os.dup(self.listener.fileno()),
            me=peer("broker"),
            requests=LocalRequest,
            on_request=on_request,
        )
        await stop.wait()
        await credentials.ask(Settle(), deadline_s=5)
        hub.close()
        context.destroy(linger=0)

    def work(self, body: Callable[[FleetKeys], Any]) -> tuple[int, int]:
        """`body` in a process of its own; its pid and a pipe with what went wrong."""
        pid, told = self.processes.fork(lambda: run(self._work(body)))
        return pid, told

    async def _work(self, body: Callable[[FleetKeys], Any]) -> None:
        context = make_context()
        link = Link(
            context,
            path=str(self.home.path / "broker.sock"),
            service="broker",
            me=peer("worker"),
            replies=BrokerReply | CredentialsReply,
        )
        try:
            async with asyncio.timeout(15):
                await body(FleetKeys(link, {}, self.home))
        finally:
            link.close()
            context.destroy(linger=0)

    def call(self, key: Key) -> int:
        """Call the API; the status."""
        headers = {"authorization": f"Bearer {key.secret}"}
        try:
            asked = urllib.request.Request(f"{self.url}/v1/models", headers=headers)
            with urllib.request.urlopen(asked, timeout=10) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as error:
            with error:
                return int(error.code)

    async def wait_for_the_others(self) -> None:
        os.write(self.ready[1], b".")
        await asyncio.to_thread(os.read, self.go[0], 1)

    async def go_on(self, keys: FleetKeys) -> None:
        """What a worker does with a refused token."""
        key = await keys.choose(self.provider)
        assert key.secret == "access-0-withdrawn"
        await self.wait_for_the_others()
        assert await asyncio.to_thread(self.call, key) == 401
        renewed = await keys.renew(self.provider, key)
        assert renewed is not None
        assert renewed.fingerprint == key.fingerprint
        assert await asyncio.to_thread(self.call, renewed) == 200
        assert (await keys.choose(self.provider)).secret == renewed.secret


def peer(role: str) -> Peer:
    return Peer(role=role, name=role, incarnation=Incarnation(f"{os.getpid()}-{time.monotonic_ns()}"), owner=me())


@pytest.fixture
def fleet(processes: Any) -> Iterator[Fleet]:
    with TemporaryDirectory(prefix="cvk-") as folder:
        fleet = Fleet(Path(folder), processes)
        yield fleet
        processes.close()
        fleet.listener.close()
        for end in (*fleet.ready, *fleet.go):
            os.close(end)


def failures(workers: list[tuple[int, int]]) -> list[str]:
    """What went wrong in each, once all have ended."""
    return [failure.decode() for _, told in workers if (failure := read_all(told))]


def read_all(pipe: int) -> bytes:
    deadline = time.monotonic() + 20
    parts: list[bytes] = []
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not (part := os.read(pipe, 65536)):
            os.close(pipe)
            return b"".join(parts)
        parts.append(part)
    return b"it did not end"


def test_twelve_processes_with_one_refused_token_refresh_it_once(fleet: Fleet) -> None:
    fleet.serve()

    workers = [fleet.work(fleet.go_on) for _ in range(PROCESSES)]
    fleet.start_together(PROCESSES)
    failed = failures(workers)

    stats = fleet.portal("/stats")
    assert failed == []
    assert (stats["posts"], stats["rotated"]) == (1, 1)
    assert (stats["refused_calls"], stats["taken"]) == (PROCESSES, PROCESSES)
    assert (fleet.login().access_token, fleet.login().refresh_token) == ("access-1-good", "refresh-1")
    assert stats["agents"][0].startswith("covey/")


def test_a_killed_broker_loses_no_waiter_and_no_token(
    fleet: Fleet, until: Callable[[Callable[[], bool]], None]
) -> None:
    fleet.portal("/mode/hang")
    first = fleet.serve()
    workers = [fleet.work(fleet.go_on) for _ in range(3)]
    fleet.start_together(3)
    until(lambda: fleet.portal("/stats")["posts"] == 1)

    fleet.processes.kill(first)
    is_noted = fleet.login().renewing_ms is not None
    fleet.portal("/mode/ok")
    fleet.serve()
    failed = failures(workers)

    stats = fleet.portal("/stats")
    assert failed == []
    assert is_noted
    assert (stats["posts"], stats["rotated"], stats["taken"]) == (2, 1, 3)
    assert fleet.login().renewing_ms is None


def test_a_refresh_token_that_a_killed_broker_used_up_is_said_to_be(
    fleet: Fleet, until: Callable[[Callable[[], bool]], None]
) -> None:
    async def ends_without(keys: FleetKeys) -> None:
        key = await keys.choose(fleet.provider)
        assert await keys.renew(fleet.provider, key) is None
        keys.trouble(fleet.provider, key, AUTH)
        with pytest.raises(NoKey, match=r"invalid_grant.*never got its answer.*covey auth add sim --oauth") as refused:
            await keys.choose(fleet.provider)
        assert refused.value.until is None

    fleet.portal("/mode/lost")
    first = fleet.serve()
    worker = fleet.work(ends_without)
    until(lambda: fleet.portal("/stats")["posts"] == 1)

    fleet.processes.kill(first)
    fleet.portal("/mode/ok")
    fleet.serve()
    failed = failures([worker])

    stats = fleet.portal("/stats")
    assert failed == []
    assert (stats["posts"], stats["refused_posts"]) == (2, 1)
    assert fleet.login().refused is not None


def test_a_broker_that_is_stopped_waits_for_the_answer_it_asked_for(
    fleet: Fleet, until: Callable[[Callable[[], bool]], None]
) -> None:
    fleet.portal("/mode/held")
    first = fleet.serve()
    worker = fleet.work(fleet.go_on)
    fleet.start_together(1)
    until(lambda: fleet.portal("/stats")["posts"] == 1)

    os.kill(first, signal.SIGTERM)
    fleet.portal("/mode/ok")
    os.waitpid(first, 0)
    fleet.processes._pids.remove(first)
    kept = fleet.login()
    fleet.serve()
    failed = failures([worker])

    assert (kept.refresh_token, kept.renewing_ms) == ("refresh-1", None)
    assert failed == []
    assert fleet.portal("/stats")["posts"] == 1


@pytest.mark.parametrize(("mode", "says"), [("error", "HTTP 500"), ("garbage", "without an access token")])
def test_an_endpoint_that_fails_is_asked_once_and_the_login_stays(fleet: Fleet, mode: str, says: str) -> None:
    async def ends_without(keys: FleetKeys) -> None:
        key = await keys.choose(fleet.provider)
        await fleet.wait_for_the_others()
        assert await keys.renew(fleet.provider, key) is None
        keys.trouble(fleet.provider, key, AUTH)
        with pytest.raises(NoKey, match=says) as refused:
            await keys.choose(fleet.provider)
        assert refused.value.until is not None

    fleet.portal(f"/mode/{mode}")
    fleet.serve()

    workers = [fleet.work(ends_without) for _ in range(3)]
    fleet.start_together(3)
    failed = failures(workers)

    assert failed == []
    assert fleet.portal("/stats")["posts"] == 1
    assert fleet.login().refused is None


def test_two_processes_without_a_fleet_share_one_renewal_through_the_file(fleet: Fleet) -> None:
    async def renew(_: FleetKeys) -> None:
        renewer = Renewer(CredentialFile(fleet.home), refresh, wall_ms=lambda: time.time_ns() // 1_000_000)
        found = await renewer.renew("sim", fleet.login().account, fingerprint("access-0-withdrawn"))
        assert isinstance(found, Renewed)
        assert found.credential.access_token == "access-1-good"

    failed = failures([fleet.work(renew) for _ in range(4)])

    assert failed == []
    assert fleet.portal("/stats")["posts"] == 1


@pytest.mark.parametrize(
    ("dies_at", "is_torn", "posts", "ends_with"),
    [
        pytest.param(1, False, 1, "access-1-good", id="before it is noted that a request goes out"),
        pytest.param(2, False, 1, "access-1-good", id="before the request"),
        pytest.param(3, False, 2, None, id="with the answer in its hands"),
        pytest.param(4, True, 2, None, id="before the new file is in place"),
        pytest.param(4, False, 1, "access-1-good", id="before anybody has the new token"),
    ],
)
def test_a_renewer_that_is_killed_at_any_step_spends_no_token_twice_and_hides_no_loss(
    fleet: Fleet, dies_at: int, is_torn: bool, posts: int, ends_with: str | None
) -> None:
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    class Watched(CredentialFile):
        def write(self, kept: Kept) -> None:
            step()
            super().write(kept)
            step()

    async def exchange(login: OAuthCredential) -> Refreshed:
        return await refresh(login)

    async def renew(file: CredentialFile) -> Renewed | NotRenewed:
        renewer = Renewer(file, exchange, wall_ms=lambda: time.time_ns() // 1_000_000)
        return await renewer.renew("sim", fleet.login().account, fingerprint("access-0-withdrawn"))

    def body() -> None:
        if is_torn:
            replace, calls = Path.replace, iter(range(2))
            Path.replace = lambda *paths: step() if next(calls) else replace(*paths)  # type: ignore[assignment, method-assign]
        run(renew(Watched(fleet.home)))

    pid, told = fleet.processes.fork(body)
    status = os.waitpid(pid, 0)[1]
    fleet.processes._pids.remove(pid)
    os.close(told)
    found = asyncio.run(renew(CredentialFile(fleet.home)))

    assert os.WTERMSIG(status) == signal.SIGKILL
    assert (fleet.portal("/stats")["posts"], fleet.portal("/stats")["rotated"]) == (posts, 1)
    if ends_with is None:
        assert isinstance(found, NotRenewed)
        assert "never got its answer" in found.reason
        assert fleet.login().refused is not None
    else:
        assert isinstance(found, Renewed)
        assert found.credential.access_token == fleet.login().access_token == ends_with
