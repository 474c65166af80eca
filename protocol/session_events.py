"""What a session has to say to whoever runs it."""

from __future__ import annotations

import msgspec

from .peer import Peer


class Opened(msgspec.Struct, frozen=True):
    """The session is open. `is_new_life`: the peer is not the one we spoke with before (or the first one)."""

    peer: Peer
    is_new_life: bool


class Asked(msgspec.Struct, frozen=True):
    """The peer asks; answer with `reply(id, …)`."""

    id: int
    body: bytes


class Answered(msgspec.Struct, frozen=True):
    """The peer answered our ask."""

    id: int
    body: bytes


class Told(msgspec.Struct, frozen=True):
    """The peer told us something."""

    body: bytes


class Left(msgspec.Struct, frozen=True):
    """The peer said goodbye; the session is closed."""


Event = Opened | Asked | Answered | Told | Left
