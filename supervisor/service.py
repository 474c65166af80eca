"""What every process of the tree has in common: who it is, its links, and how it ends.

A service is forked from the zygote, says `ready` to the root once it serves, and ends on SIGTERM after draining. When
the root or the zygote dies the kernel kills it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from ..actors.ports import PeerLeft, Request
from ..protocol.ids import Incarnation
from ..protocol.messages.fleet import RootReply, ServiceReady
from ..protocol.peer import Peer
from ..protocol.settings import Settings
from ..storage.owners import me
from .gate import Gate, open_gate
from .home import Home
from .hub import Hub
from .keys import KeyRing
from .link import Link
from .loops import run
from .sockets import make_context

READY_TIMEOUT_S = 30.0
THREADS = 2


class ServiceArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the root tells a process it starts."""

    home: str
    sockets: str
    fleet: Incarnation
    """The root's life: what is counted per life of the fleet begins anew with it."""
    role: str
    name: str
    incarnation: Incarnation
    settings: Settings


class Service:
    """One process of the tree, inside its loop."""

    def __init__(self, arguments: ServiceArguments) -> None:
        self.arguments = arguments
        self.home = Home(Path(arguments.home))
        self.settings = arguments.settings
        self.me = Peer(role=arguments.role, name=arguments.name, incarnation=arguments.incarnation, owner=me())
        self.context = make_context()
        self.stop_asked = asyncio.Event()
        self._links: list[Link] = []
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop_asked.set)
        # Nobody else may make threads: files and name look-ups share this small pool, however many agents there are.
        loop.set_default_executor(ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="blocking"))

    def socket_path(self, service: str) -> str:
        """Where that service listens."""
        return str(Path(self.arguments.sockets) / f"{service}.sock")

    def link(
        self,
        service: str,
        replies: Any,
        *,
        requests: Any = None,
        on_request: Callable[[Request[Any]], None] | None = None,
    ) -> Link:
        """A link to another service; closed with this one."""
        link = Link(
            self.context,
            path=self.socket_path(service),
            service=service,
            me=self.me,
            replies=replies,
            requests=requests,
            on_request=on_request,
        )
        self._links.append(link)
        return link

    def gate(
        self,
        service: str,
        fds: Mapping[str, int],
        requests: Any,
        *,
        on_request: Callable[[Request[Any]], None],
        on_left: Callable[[PeerLeft], None] = lambda left: None,
    ) -> Gate | None:
        """The service's gate for other hosts, if the fleet listens for them; the caller closes it."""
        return open_gate(
            self.context,
            service,
            fds,
            listen=self.settings.fleet.listen,
            keys=KeyRing(self.home),
            open_hub=lambda socket: Hub(
                self.context, socket=socket, me=self.me, requests=requests, on_request=on_request, on_left=on_left
            ),
        )

    async def ready(self, root: Link | None = None) -> Link:
        """Tell the root that this process serves; returns the link to it."""
        root = root or self.link("root", RootReply)
        await root.ask(ServiceReady(), timeout_s=READY_TIMEOUT_S)
        return root

    async def close(self) -> None:
        """Close every link; what was posted gets a moment to be answered."""
        for link in self._links:
            await link.settle(timeout_s=0.5)
            link.close()
        self.context.destroy(linger=50)


def run_service(payload: bytes, body: Callable[[Service], Coroutine[Any, Any, None]]) -> int:
    """Run one service until it ends; the exit code."""
    known = msgspec.msgpack.decode(payload, type=ServiceArguments)

    async def main() -> None:
        service = Service(known)
        try:
            await body(service)
        finally:
            await service.close()

    run(main())
    return 0
