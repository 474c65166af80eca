"""The only module that touches pykka's private names; `tests/actors/runtime/test_pykka_contract.py` pins them.

Used here: `Actor._create_actor_inbox`, `_create_future`, `_start_actor_loop` (abstract, answered with a refusal: the
loop runtime makes mailboxes, replies and turns itself), `Actor._actor_ref`, `Actor._handle_receive` (runs proxies'
messages), `ActorRef._actor_weakref` (proxies look the actor up through it), `pykka._actor.ActorInbox`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, Final, Never, cast

import pykka
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

from .errors import WouldDeadlock

if TYPE_CHECKING:
    import threading
    from collections.abc import Generator

    from pykka._actor import ActorInbox

_PROXY_MESSAGES: Final = frozenset({ProxyCall, ProxyGetAttr, ProxySetAttr})


class PykkaShape(pykka.Actor):
    """A `pykka.Actor` whose mailbox, replies and loop are somebody else's business."""

    @staticmethod
    def _create_actor_inbox() -> Never:
        raise NotImplementedError("the cell makes the mailbox")

    @staticmethod
    def _create_future() -> Never:
        raise NotImplementedError("the ref makes the reply")

    def _start_actor_loop(self) -> None:
        raise NotImplementedError("the cell starts the actor")


class Stopped:
    """What pykka's refs need of `actor_stopped`: an event of its own per actor would take over 1 KiB."""

    __slots__ = ("_is_alive",)

    def __init__(self, is_alive: Callable[[], bool]) -> None:
        self._is_alive = is_alive

    def is_set(self) -> bool:
        """Whether the actor takes no more mail."""
        return not self._is_alive()


def dress(actor: pykka.Actor, *, urn: str, is_alive: Callable[[], bool]) -> None:
    """Give the actor the attributes that `pykka.Actor.__init__` would, but for its ref."""
    actor.actor_urn = urn
    actor.actor_inbox = cast("ActorInbox", None)
    actor.actor_stopped = cast("threading.Event", Stopped(is_alive))


def attach(actor: pykka.Actor, ref: pykka.ActorRef[Any]) -> None:
    """Make `ref` the actor's own."""
    actor._actor_ref = ref


def is_proxy_message(message: object) -> bool:
    """Whether a pykka proxy sent it."""
    return type(message) in _PROXY_MESSAGES


def run_proxy_message(actor: pykka.Actor, message: object) -> object:
    """Call, read or set what the proxy asks for; a coroutine method returns its coroutine."""
    return actor._handle_receive(message)


class EdgeFuture(pykka.Future[Any]):
    """A proxy's answer: awaitable on any loop, `get` for threads without one. It has a deadline in any case."""

    def __init__(self, answer: ThreadFuture[object], deadline_s: float) -> None:
        super().__init__()
        self._answer = answer
        self._deadline_s = deadline_s

    def get(self, *, timeout: float | None = None) -> Any:
        """The answer; raises what the actor raised, or `pykka.Timeout`."""
        refuse_on_loop("get()", "await the future")
        done, _ = wait([self._answer], self._deadline_s if timeout is None else timeout)
        if not done:
            raise pykka.Timeout(f"{timeout} seconds")
        return self._answer.result()

    def set_get_hook(self, func: object) -> Never:
        """Refused: such a future is never done, so awaiting it would not end."""
        raise TypeError("map, filter, join and reduce are not offered; await the answer and transform it")

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._answer).__await__()

    __iter__ = __await__

    def _make_derived(self, *_: object) -> Never:
        raise TypeError("map, filter, join and reduce are not offered; await the answer and transform it")

    map = filter = join = reduce = _make_derived  # type: ignore[assignment]  # refused whatever they are given


class EdgeRef(pykka.ActorRef[Any]):
    """A ref with pykka's own `ask(block=...)`, for proxies only."""

    def __init__(
        self, ref: pykka.ActorRef[Any], tell: Callable[[object], None], ask: Callable[[object], EdgeFuture]
    ) -> None:
        self._actor_weakref = ref._actor_weakref
        self.actor_class = ref.actor_class
        self.actor_urn = ref.actor_urn
        self.actor_stopped = ref.actor_stopped
        self._tell = tell
        self._ask = ask

    def tell(self, message: object) -> None:
        self._tell(message)

    def ask(self, message: object, *, block: bool = True, timeout: float | None = None) -> Any:
        future = self._ask(message)
        return future.get(timeout=timeout) if block else future


def make_proxy(
    ref: pykka.ActorRef[Any], tell: Callable[[object], None], ask: Callable[[object], EdgeFuture]
) -> pykka.ActorProxy[Any]:
    """pykka's proxy over our ref. It holds the actor: drop it when the actor has ended."""
    return pykka.ActorProxy(actor_ref=EdgeRef(ref, tell, ask))


def refuse_on_loop(what: str, instead: str) -> None:
    """Raise `WouldDeadlock` on a thread that runs an event loop, also while its coroutines are suspended."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WouldDeadlock(f"{what} on an event loop's thread", instead)
