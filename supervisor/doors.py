"""How a program gets to a fleet: through the sockets of its home on this host, or over the network.

A door makes links, knows where records wait for the ledger, and tells when the fleet is lost. On this host the kernel
says so. Over the network nobody can: there it is lost when nothing has answered for as long as the broker believes in
us, because by then our slots belong to others.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, cast

import zmq

from ..protocol.errors import AskTimeout, CoveyError, KeyRefused, NoFleet, UsageError
from ..protocol.ids import Incarnation
from ..protocol.messages.broker import Renew
from ..protocol.messages.ledger import Append, Committed, LedgerReply
from ..protocol.peer import Peer
from ..storage.logs import log_event
from ..storage.orphans import Orphan, adopt
from .home import SOCKET_NAMES, Home, RootInfo, make_private
from .keys import Pair, fingerprint_of, public_key, read_pair
from .link import Link
from .network import NetworkAddress
from .presence import socket_path
from .sockets import ClientCurve

log = logging.getLogger(__name__)

Context = zmq.Context[zmq.Socket[bytes]]

RENEWALS_PER_TTL: Final = 3
MAX_BATCH: Final = 512


class Door(Protocol):
    """The way to one fleet. Owned by the loop thread."""

    @property
    def where(self) -> str:
        """Which fleet this is, for people."""
        ...

    def link(self, context: Context, service: str, *, me: Peer, replies: Any) -> Link:
        """A link to one service."""
        ...

    def outbox(self) -> Path:
        """The folder where records wait for the ledger; it exists."""
        ...

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Call `on_lost` once when the fleet is gone."""
        ...

    def workspace(self, said: str | Path | None) -> str:
        """The absolute path of an agent's workspace, where the fleet runs; raises `UsageError`."""
        ...

    async def settle_in(self, context: Context, broker: Link, *, me: Peer, ttl_s: float) -> None:
        """The fleet was joined: begin what there is to do as long as we stay."""
        ...

    async def close(self) -> None:
        """Watch no more. Idempotent."""
        ...


class HomeDoor:
    """The fleet that runs in a home of this host."""

    def __init__(self, home: Home, info: RootInfo) -> None:
        """Raises `NoFleet` if the root has just ended."""
        self.home = home
        self._sockets = Path(info.sockets)
        try:
            self._root_pidfd = os.pidfd_open(info.pid)
        except ProcessLookupError:
            raise NoFleet(str(home.path)) from None

    @property
    def where(self) -> str:
        return str(self.home.path)

    def link(self, context: Context, service: str, *, me: Peer, replies: Any) -> Link:
        path = str(socket_path(self._sockets, service))
        return Link(context, path=path, service=service, me=me, replies=replies)

    def outbox(self) -> Path:
        self.home.prepare()
        return self.home.outbox

    def watch(self, on_lost: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def died() -> None:
            loop.remove_reader(self._root_pidfd)
            on_lost()

        loop.add_reader(self._root_pidfd, died)

    def workspace(self, said: str | Path | None) -> str:
        return str(Path(said or Path.cwd()).resolve())

    async def settle_in(self, context: Context, broker: Link, *, me: Peer, ttl_s: float) -> None:
        """Nothing: the kernel knows that we live, and the ledger adopts what we leave behind."""

    async def close(self) -> None:
        if self._root_pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._root_pidfd)
            os.close(self._root_pidfd)
            self._root_pidfd = -1


def network_door(
    address: str, *, server_key: str | Path, key_file: str | Path, spool: str | Path | None = None
) -> NetworkDoor:
    """The door that is meant, from what people write; raises `UsageError` and `KeyProblem`."""
    return NetworkDoor(
        NetworkAddress.parse(address),
        server_key=public_key(str(server_key)),
        own=read_pair(Path(key_file).expanduser()),
        spool=Path(spool or Home.locate().path / "remote").expanduser().absolute(),
    )


class NetworkDoor:
    """A fleet on another host. Records that could not be delivered wait in `spool`, a folder for each fleet."""

    def __init__(self, address: NetworkAddress, *, server_key: str, own: Pair, spool: Path) -> None:
        self._address = address
        self._curve = ClientCurve(server_key=server_key.encode(), public=own.public.encode(), secret=own.secret)
        self._spool = spool
        self._outbox = spool / fingerprint_of(server_key)
        self._on_lost: Callable[[], None] = lambda: None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def where(self) -> str:
        return self._address.of(SOCKET_NAMES[0])

    def link(self, context: Context, service: str, *, me: Peer, replies: Any) -> Link:
        path = self._address.of(service)
        return Link(context, path=path, service=service, me=me, replies=replies, curve=self._curve)

    def outbox(self) -> Path:
        self._spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self._spool, self._outbox):
            make_private(folder)
        return self._outbox

    def watch(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost

    def workspace(self, said: str | Path | None) -> str:
        if said is None or not Path(said).is_absolute():
            raise UsageError(f"workspace has to be an absolute path on the host of the fleet, not {said}")
        return str(said)

    async def settle_in(self, context: Context, broker: Link, *, me: Peer, ttl_s: float) -> None:
        """Say that we live, again and again; deliver what earlier lives of this host could not."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._renew(broker, ttl_s)))
        if self._outbox.is_dir():
            self._tasks.append(loop.create_task(self._deliver(context, me)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # --- inside --------------------------------------------------------------------------------------------------

    async def _renew(self, broker: Link, ttl_s: float) -> None:
        loop = asyncio.get_running_loop()
        period_s = ttl_s / RENEWALS_PER_TTL
        said = heard = loop.time()
        while loop.time() - heard < ttl_s:
            await asyncio.sleep(max(0.0, said + period_s - loop.time()))
            said = loop.time()
            try:
                await broker.ask(Renew(), timeout_s=period_s)
                # Counted from the question: the broker counts from some later moment.
                heard = said
            except AskTimeout:
                continue
            except KeyRefused:
                return  # which every link learns for itself
        log_event(log, "fleet_unreachable", level=logging.ERROR, address=self.where, silent_s=ttl_s)
        self._on_lost()

    async def _deliver(self, context: Context, me: Peer) -> None:
        for orphan in adopt(self._outbox):
            try:
                await self._deliver_one(context, me, orphan)
            except CoveyError as error:
                log_event(log, "spool_not_delivered", level=logging.WARNING, error=str(error))
                orphan.release()
            except BaseException:
                orphan.release()
                raise

    async def _deliver_one(self, context: Context, me: Peer, orphan: Orphan) -> None:
        """In the dead sender's name, so that what the ledger has already is known as such."""
        sender = Peer(role=me.role, name=me.name, incarnation=Incarnation(orphan.incarnation), owner=me.owner)
        link = self.link(context, "ledger", me=sender, replies=LedgerReply)
        try:
            for at in range(0, len(orphan.entries), MAX_BATCH):
                batch = orphan.entries[at : at + MAX_BATCH]
                append = Append(first=batch[0][0], records=tuple(record for _, record in batch))
                cast(Committed, await link.ask(append, timeout_s=None))
        finally:
            link.close()
        orphan.forget()
        log_event(log, "spool_delivered", records=len(orphan.entries))
