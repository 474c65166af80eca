"""Frames between two processes: the envelope around every message, and its codec.

A frame carries its body as bytes that only the receiver's own conversation decodes, so a link needs to know nothing of
what is said over it. Durations are remaining times: clocks of two processes are never compared.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from .errors import ProtocolError
from .messages.base import Wire
from .peer import Peer

VERSION: Final = 1
"""Version of frames and session. Another one is refused at hello."""

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""The largest frame a link carries (ZeroMQ's MAXMSGSIZE is set to it)."""


class Hello(Wire, frozen=True, kw_only=True, tag="hello"):
    """First word of whoever opened the link, and again after each reconnect."""

    version: int
    peer: Peer


class Welcome(Wire, frozen=True, kw_only=True, tag="welcome"):
    """Answer to `Hello`: who is on this side."""

    version: int
    peer: Peer


class Stranger(Wire, frozen=True, kw_only=True, tag="stranger"):
    """I do not know you (I was started after your hello): say hello again, then repeat what is unanswered."""


class Ask(Wire, frozen=True, kw_only=True, tag="ask"):
    """A request. `id` rises by one per ask of this sender's incarnation; a repeated id is the same request."""

    id: int
    body: msgspec.Raw


class Reply(Wire, frozen=True, kw_only=True, tag="reply"):
    """The answer to the ask of that id."""

    id: int
    body: msgspec.Raw


class Tell(Wire, frozen=True, kw_only=True, tag="tell"):
    """A message nobody answers: delivered at most once."""

    body: msgspec.Raw


class Ping(Wire, frozen=True, kw_only=True, tag="ping"):
    """Written by the sender's loop, so it says that the loop turns. Answered by `Pong`."""


class Pong(Wire, frozen=True, kw_only=True, tag="pong"):
    """Written by the receiver's loop."""


class Bye(Wire, frozen=True, kw_only=True, tag="bye"):
    """The session ends; nothing will be repeated."""


Frame = Hello | Welcome | Stranger | Ask | Reply | Tell | Ping | Pong | Bye

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(message: Wire) -> bytes:
    """The message (or frame) as bytes."""
    return _encoder.encode(message)


def decode_frame(data: bytes) -> Frame:
    """The frame in `data`; raises `ProtocolError` for anything else, however hostile."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as exc:
        raise ProtocolError(f"not a frame: {exc}") from None


class BodyDecoder:
    """Decodes the bodies of one conversation's direction."""

    def __init__(self, union: Any) -> None:
        self._decoder = _body_decoder(union)

    def decode(self, body: msgspec.Raw | bytes) -> Wire:
        """The message in `body`; raises `ProtocolError` if it does not belong to this conversation."""
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError, ValueError) as exc:
            raise ProtocolError(f"not a message of this conversation: {exc}") from None


@cache
def _body_decoder(union: Any) -> msgspec.msgpack.Decoder[Wire]:
    """One per union and process: building one takes milliseconds and memory."""
    return msgspec.msgpack.Decoder(union)
