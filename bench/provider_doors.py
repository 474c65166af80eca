"""The provider's doors: which path does what, for whom, in which dialect."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import msgspec

from .provider_dialects import Dialect


class Behind(Enum):
    """What is behind a door."""

    CALL = auto()
    MODELS = auto()
    QUOTA = auto()
    STATS = auto()
    ACCOUNTS = auto()
    CALLS = auto()
    RESET = auto()
    MOODS = auto()
    UNLOCK = auto()
    CLEAR = auto()


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """One path."""

    behind: Behind
    methods: tuple[str, ...] = ("GET",)
    dialect: Dialect = Dialect.CHAT
    """Of the call, or of the error if there is none."""
    plan_url: bool | None = None
    """Whether it is for coding-plan keys; None: for all."""
    is_keyed: bool = False
    """Closed to keys that are refused, as calls are anyhow."""
    is_control: bool = False
    """Only for clients on this machine."""


_POST: Final = ("POST",)


def _call(dialect: Dialect, plan_url: bool | None = None) -> Door:
    return Door(behind=Behind.CALL, methods=_POST, dialect=dialect, plan_url=plan_url)


def _shown(behind: Behind, dialect: Dialect = Dialect.CHAT) -> Door:
    return Door(behind=behind, dialect=dialect, is_keyed=True)


DOORS: Final[dict[str, Door]] = {
    "/v1/chat/completions": _call(Dialect.CHAT),
    "/v1/messages": _call(Dialect.MESSAGES),
    "/v1/responses": _call(Dialect.RESPONSES),
    "/api/coding/paas/v4/chat/completions": _call(Dialect.CHAT, plan_url=True),
    "/api/paas/v4/chat/completions": _call(Dialect.CHAT, plan_url=False),
    "/api/anthropic/v1/messages": _call(Dialect.MESSAGES, plan_url=True),
    "/v1/models": _shown(Behind.MODELS),
    "/api/anthropic/v1/models": _shown(Behind.MODELS, Dialect.MESSAGES),
    "/api/coding/paas/v4/models": _shown(Behind.MODELS),
    "/api/paas/v4/models": _shown(Behind.MODELS),
    "/api/monitor/usage/quota/limit": _shown(Behind.QUOTA),
    "/stats": Door(behind=Behind.STATS),
    "/accounts": Door(behind=Behind.ACCOUNTS),
    "/calls": Door(behind=Behind.CALLS),
    "/reset": Door(behind=Behind.RESET, methods=_POST),
    "/control/moods": Door(behind=Behind.MOODS, methods=("GET", "POST"), is_control=True),
    "/control/unlock": Door(behind=Behind.UNLOCK, methods=_POST, is_control=True),
    "/control/clear": Door(behind=Behind.CLEAR, methods=_POST, is_control=True),
}
"""Every path."""


def dialect_of(path: str) -> Dialect:
    """The dialect of errors at `path`, which need not be a door."""
    door = DOORS.get(path)
    if door is not None:
        return door.dialect
    return Dialect.MESSAGES if path.startswith("/api/anthropic/") else Dialect.CHAT
