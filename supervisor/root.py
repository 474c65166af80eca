"""The root supervisor: owns the home, its sockets and its processes; runs no agent code.

Order matters at the start: the home's lock first (nothing is touched before it is ours), then the zygote (forked while
there is one thread and no ZeroMQ context), then the sockets, then the loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from ..actors.ports import Request
from ..protocol.errors import AlreadyRunning, ConfigError
from ..protocol.ids import Incarnation
from ..protocol.messages.broker import BrokerReply
from ..protocol.messages.fleet import ProcessView, RootRequest, WorkerReply
from ..protocol.messages.ledger import LedgerReply
from ..protocol.messages.remote import RemoteRootRequest
from ..protocol.peer import Peer
from ..protocol.settings import Settings
from ..protocol.version import VERSION
from ..storage.locks import FileLock, take
from ..storage.logs import log_event
from ..storage.owners import me
from .activation import inherited
from .config import Accepted, load
from .config_watch import ConfigWatch, following, needs_restart
from .desk import Desk
from .exits import ExitReason, words
from .fleet_plan import fleet_plan
from .gate import open_gate
from .home import SOCKET_NAMES, Home, RootInfo
from .hub import Hub
from .keeper import HURRY_S, Keeper
from .keys import KeyRing
from .launch import Ready
from .leftovers import TAG, reap
from .link import Link
from .listeners import Listener, listen
from .logs import log_to_stderr
from .loops import run
from .network import SUFFIX, NetworkAddress, NetworkListener, listen_at
from .presence import Displaced, Presence, sign, socket_path
from .process_views import process_view
from .rehearsal import rehearse
from .restart_log import RestartLog, read_past
from .service import ServiceArguments
from .sockets import make_context
from .spec import ChildSpec
from .systemd import Notifier
from .warden import Warden, kernel
from .zygote import warm_up
from .zygote_client import ZygoteClient, start_zygote

log = logging.getLogger(__name__)

REAP_S = 5.0
"""How long leftovers of an earlier fleet are hunted for before this one starts."""

WATCHDOG_S = 30.0
"""A process of the tree whose loop says nothing for so long is taken for hung and replaced."""


def run_root(
    home: Home, *, ready_fd: int | None, leash_fd: int | None, talk: bool, watchdog_s: float = WATCHDOG_S
) -> int:
    """Be the root of `home` until it is stopped; the exit code. Raises `AlreadyRunning` and `ConfigError` before.

    `ready_fd` gets one JSON line (`launch.Ready`) when the fleet serves. When `leash_fd` reaches its end, the fleet
    stops. `talk` tells a person at the terminal what happens.
    """
    began = time.monotonic()
    home.prepare()
    lock = _own(home)
    log_to_stderr(level=logging.WARNING if talk else logging.INFO)
    accepted = load(home.config)
    for warning in accepted.warnings:
        log_event(log, "config_warning", level=logging.WARNING, warning=str(warning))
    # Below us everything carries the tag, so that the next root finds what survives us.
    incarnation = Incarnation(secrets.token_hex(6))
    os.environ[TAG] = incarnation
    if left := reap(home.processes, timeout_s=REAP_S):
        log_event(log, "leftovers_killed", level=logging.WARNING, pids=list(left))
    sockets = home.prepare_sockets()
    paths = {name: socket_path(sockets, name) for name in SOCKET_NAMES}
    listeners = inherited(paths)
    network = _network(home, accepted.settings)
    notifier = Notifier.take(os.environ, os.getpid())
    # Before the fork: what is imported here, root, zygote and all their children share.
    rehearse()
    warm_up()
    zygote = start_zygote()
    listeners |= {name: listen(path) for name, path in paths.items() if name not in listeners}
    owner = me()
    info = RootInfo(
        pid=owner.pid,
        start_ticks=owner.start_ticks,
        boot_id=owner.boot_id,
        sockets=str(sockets),
        incarnation=incarnation,
        version=VERSION,
        started_unix=time.time(),
    )
    presence = Presence(home, info, listeners, lock)
    presence.announce()
    root = _Root(
        home,
        accepted.settings,
        info,
        zygote,
        listeners,
        presence=presence,
        network=network,
        notifier=notifier,
        ready_fd=ready_fd,
        leash_fd=leash_fd,
        talk=talk,
        watchdog_s=watchdog_s,
        began=began,
    )
    try:
        return run(root.serve())
    finally:
        presence.close()
        for one in network.values():
            one.remove()


class _Root:
    """The root inside its loop."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        info: RootInfo,
        zygote: ZygoteClient,
        listeners: dict[str, Listener],
        *,
        presence: Presence,
        network: dict[str, NetworkListener],
        ready_fd: int | None,
        leash_fd: int | None,
        talk: bool,
        watchdog_s: float,
        notifier: Notifier,
        began: float,
    ) -> None:
        self._home = home
        self._settings = settings
        self._info = info
        self._zygote = zygote
        self._listeners = listeners
        self._presence = presence
        self._network = network
        self._ready_fd = ready_fd
        self._leash_fd = leash_fd
        self._talk = talk
        self._watchdog_s = watchdog_s
        self._notifier = notifier
        self._plan = fleet_plan(settings)
        self._began = began
        self._interrupts = 0

    async def serve(self) -> int:
        """Bring the fleet up, serve until it is down."""
        context = make_context()
        past = read_past(self._home, self._plan, wall_ms=_wall_ms(), now=time.monotonic())
        self_peer = Peer(role="root", name="root", incarnation=self._info.incarnation, owner=me())
        self._keeper = Keeper(
            plan=self._plan,
            home=self._home,
            zygote=self._zygote,
            boot=self._info.incarnation,
            seed=secrets.randbits(32),
            arguments_for=self._arguments_for,
            listeners_for=self._listeners_for,
            on_ended=self._child_ended,
            on_charged=self._charged,
            past=past,
        )
        links = {
            name: Link(context, path=self._path(name), service=name, me=self_peer, replies=replies)
            for name, replies in (("broker", BrokerReply), ("ledger", LedgerReply))
        }
        self._restart_log = RestartLog(self._home, links["ledger"], self._info.incarnation)
        self._desk = Desk(
            home=str(self._home.path),
            settings=self._settings,
            tree=self,
            broker=links["broker"],
            ledger=links["ledger"],
            clock=time.monotonic,
        )
        self._hub = Hub(
            context,
            path=self._path("root"),
            listener_fd=os.dup(self._listeners["root"].fileno()),
            me=self_peer,
            requests=RootRequest,
            replies=WorkerReply,
            on_request=self._on_request,
            silence_s=self._watchdog_s,
            on_silent=self._keeper.hung,
        )
        self._desk.attach(self._hub)
        self._warden = Warden(
            self._settings.fleet.limits,
            workers=[spec.name for spec in self._plan.spec.children if spec.role == "worker"],
            tree=self._keeper,
            agents=self._desk,
            gauges=kernel(),
        )
        self._gate = open_gate(
            context,
            "root",
            {name: listener.fileno() for name, listener in self._network.items()},
            listen=self._settings.fleet.listen,
            keys=KeyRing(self._home),
            open_hub=lambda socket: Hub(
                context, socket=socket, me=self_peer, requests=RemoteRootRequest, on_request=self._on_request
            ),
        )
        self._listen_for_the_end()
        self._presence.watch(self._displaced)
        self._keeper.start()
        self._warden.start()
        self._config = ConfigWatch(
            self._home.config, self._settings, on_change=self._configured, on_refused=self._config_refused
        )
        announcer = asyncio.create_task(self._announce())
        try:
            await self._keeper.all_stopped.wait()
        finally:
            announcer.cancel()
            self._warden.close()
            self._config.close()
            self._notifier.close()
            await self._desk.close()
            await self._restart_log.close()
            self._hub.close()
            if self._gate is not None:
                self._gate.close()
            for link in links.values():
                link.close()
            context.destroy(linger=50)
            self._keeper.close()
        return self._farewell()

    # --- the tree, as the desk needs it --------------------------------------------------------------------------

    def service_ready(self, peer: Peer) -> None:
        """See `desk.Tree`."""
        self._keeper.service_ready(peer)

    def stop(self, reason: str) -> None:
        """See `desk.Tree`."""
        self._notifier.stopping(reason)
        self._keeper.stop(reason)

    def processes(self) -> tuple[ProcessView, ...]:
        """See `desk.Tree`."""
        uptime_s = time.monotonic() - self._began
        root = process_view("root", "root", pid=os.getpid(), uptime_s=uptime_s, restarts=0)
        return (root, *self._warden.marked(self._keeper.processes()))

    def restart(self, target: str) -> tuple[str, ...]:
        """See `desk.Tree`."""
        return self._keeper.restart(target)

    @property
    def strategy(self) -> str:
        """See `desk.Tree`."""
        return self._plan.spec.strategy.value

    @property
    def config_problem(self) -> str | None:
        """See `desk.Tree`."""
        return "; ".join(str(error) for error in self._config.refused) or None

    # --- inside --------------------------------------------------------------------------------------------------

    def _on_request(self, request: Request[RootRequest]) -> None:
        self._desk.on_request(request)

    def _arguments_for(self, spec: ChildSpec, life: Incarnation) -> ServiceArguments:
        return ServiceArguments(
            home=str(self._home.path),
            sockets=self._info.sockets,
            fleet=self._info.incarnation,
            role=spec.role,
            name=spec.name,
            incarnation=life,
            settings=self._settings,
        )

    def _configured(self, accepted: Accepted) -> None:
        fixed = needs_restart(self._settings, accepted.settings)
        self._settings = following(self._settings, accepted.settings)
        self._desk.configure(self._settings)
        self._warden.configure(self._settings.fleet.limits)
        level = logging.WARNING if fixed else logging.INFO
        log_event(log, "config_changed", level=level, needs_restart=",".join(fixed) or None)
        for warning in accepted.warnings:
            log_event(log, "config_warning", level=logging.WARNING, warning=str(warning))

    def _config_refused(self, errors: tuple[ConfigError, ...]) -> None:
        for error in errors:
            log_event(log, "config_refused", level=logging.ERROR, error=str(error), holds="the last good one")

    def _listeners_for(self, spec: ChildSpec) -> dict[str, Listener | NetworkListener]:
        names = (spec.name, f"{spec.name}{SUFFIX}")
        every: dict[str, Listener | NetworkListener] = {**self._listeners, **self._network}
        return {name: one for name, one in every.items() if name in names}

    def _child_ended(self, spec: ChildSpec, life: Incarnation) -> None:
        self._hub.forget(life, spec.role)
        if spec.role == "worker":
            self._desk.worker_lost(spec.name)

    def _charged(self, child: str, ended: Incarnation, reason: ExitReason) -> None:
        self._restart_log.record(child, ended, reason, wall_ms=_wall_ms())

    def _path(self, name: str) -> str:
        return str(socket_path(Path(self._info.sockets), name))

    def _listen_for_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop, "SIGTERM")
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        loop.add_signal_handler(signal.SIGHUP, self.stop, "SIGHUP")
        if self._leash_fd is not None:
            loop.add_reader(self._leash_fd, self._leash_ended)

    def _interrupted(self) -> None:
        self._interrupts += 1
        match self._interrupts:
            case 1:
                self._say("\nstopping … (Ctrl-C again: everybody at once)")
                self.stop("SIGINT")
            case 2:
                self._say(f"\nin a hurry: everybody has {HURRY_S:g} s (Ctrl-C again kills)")
                self._keeper.hurry()
            case _:
                self._say("\nkilling what is left; records that were not stored yet wait in run/outbox")
                self._keeper.kill()

    def _say(self, text: str) -> None:
        if self._talk:
            print(text, file=sys.stderr)  # noqa: T201 - a person waits

    def _displaced(self, error: Displaced) -> None:
        self.stop(str(error))

    def _leash_ended(self) -> None:
        assert self._leash_fd is not None, "the reader was set for it"
        asyncio.get_running_loop().remove_reader(self._leash_fd)
        self.stop("the command that started the fleet has ended")

    async def _announce(self) -> None:
        await self._keeper.all_ready.wait()
        processes = self.processes()
        ready = Ready(pid=os.getpid(), processes=len(processes), ready_s=round(time.monotonic() - self._began, 3))
        log_event(log, "fleet_ready", processes=ready.processes, ready_s=ready.ready_s)
        self._notifier.ready(f"{ready.processes} processes in {self._home.path}")
        if self._ready_fd is not None:
            with suppress(BrokenPipeError):
                os.write(self._ready_fd, msgspec.json.encode(ready) + b"\n")
            os.close(self._ready_fd)
        if self._talk:
            names = ", ".join(process.name for process in processes)
            print(  # noqa: T201 - a person waits
                f"covey is up in {self._home.path}: {names} (root pid {ready.pid}, ready after {ready.ready_s:.2f} s)\n"
                "stop it with Ctrl-C or `covey down`",
                flush=True,
            )

    def _farewell(self) -> int:
        why = self._keeper.escalated
        log_event(log, "fleet_stopped")
        if self._talk and why is None:
            print(f"stopped the fleet in {self._home.path}")  # noqa: T201 - a person waits
        if why is not None:
            text = f"covey: {why.child} ended too often ({words(why.reason)}); see {self._home.logs / why.child}.log"
            print(text, file=sys.stderr)  # noqa: T201 - a person waits
        return 0 if why is None else 1


def _wall_ms() -> int:
    return int(time.time() * 1000)


def _network(home: Home, settings: Settings) -> dict[str, NetworkListener]:
    """The sockets for other hosts, if there are to be any: not before the fleet has a key of its own."""
    if settings.fleet.listen is None:
        return {}
    KeyRing(home).server()
    return listen_at(NetworkAddress.parse(settings.fleet.listen))


def _own(home: Home) -> FileLock:
    lock = take(home.root_lock, create=True)
    if lock is None:
        pid = home.root_lock.read_text().strip()
        raise AlreadyRunning(str(home.path), int(pid) if pid.isdigit() else None)
    sign(lock)
    return lock
