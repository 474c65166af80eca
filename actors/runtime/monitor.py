"""Death watch: one `Down` per monitor, whenever the actor ended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from .exits import DownReason

if TYPE_CHECKING:
    from .ref import ActorRef

log = logging.getLogger(__name__)


class Down(msgspec.Struct, frozen=True):
    """The actor behind `ref` has ended; `on_stop` is over and its name is free.

    Who begins to watch after the end gets `Stale` as the reason, should a later life have the name by then.
    """

    ref: ActorRef
    reason: DownReason


class Monitor:
    """One interest in one actor's end. May be cancelled from any thread."""

    __slots__ = ("_notify",)

    def __init__(self, notify: Callable[[Down], None]) -> None:
        self._notify: Callable[[Down], None] | None = notify

    @property
    def is_open(self) -> bool:
        """Whether a Down is still to come."""
        return self._notify is not None

    def cancel(self) -> None:
        """No Down comes after this returns, unless it is being delivered by another thread right now."""
        self._notify = None

    def fire(self, down: Down) -> None:
        """Deliver the Down, once; a callback that raises is logged and hurts nobody."""
        notify, self._notify = self._notify, None
        if notify is None:
            return
        try:
            notify(down)
        except Exception:
            log.exception("monitor_failed actor=%s", down.ref)
