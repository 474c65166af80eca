"""Frames between two processes: the envelope around every message, and its codec.

A frame carries its body as bytes that only the receiver's own conversation decodes, so a link needs to know nothing of
what is said over it. Durations are remaining times: clocks of two processes are never compared.

Asks, replies, tells and credits are numbered: `seq` rises by one with each of them that a side sends, over all sessions
of its life. `next_seq` in a greeting says where the new session begins; whatever is below belongs to an older one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from .errors import ProtocolError
from .messages.base import Wire
from .peer import Peer

VERSION: Final = 2
"""Version of frames and session. Another one is refused at hello."""

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""The largest frame a link carries (ZeroMQ's MAXMSGSIZE is set to it)."""


class Hello(Wire, frozen=True, kw_only=True, tag="hello"):
    """First word of whoever opened the link, and again after each reconnect."""

    version: int
    peer: Peer
    link: int = 0
    """Which link of that process this is: a later one has a higher number, and ids of its own."""
    attempt: int = 0
    """Rises with each hello; the welcome repeats it, so an answer to an older hello is known as such."""
    next_seq: int = 1
    window: int = 0
    """How many asks and tells the sender of this takes before it grants more."""


class Welcome(Wire, frozen=True, kw_only=True, tag="welcome"):
    """Answer to `Hello`: who is on this side."""

    version: int
    peer: Peer
    attempt: int = 0
    next_seq: int = 1
    window: int = 0


class Stranger(Wire, frozen=True, kw_only=True, tag="stranger"):
    """I do not know you (I was started after your hello), or something of yours is lost: say hello again, then repeat
    what is unanswered."""


class Ask(Wire, frozen=True, kw_only=True, tag="ask"):
    """A request. `id` rises by one per ask of this sender's incarnation; a repeated id is the same request."""

    id: int
    seq: int
    body: msgspec.Raw


class Reply(Wire, frozen=True, kw_only=True, tag="reply"):
    """The answer to the ask of that id."""

    id: int
    seq: int
    body: msgspec.Raw


class Tell(Wire, frozen=True, kw_only=True, tag="tell"):
    """A message nobody answers: delivered at most once."""

    seq: int
    body: msgspec.Raw


class Credit(Wire, frozen=True, kw_only=True, tag="credit"):
    """The receiver of this may have sent `upto` asks and tells, counted from the opening of the session."""

    seq: int
    upto: int


class Ping(Wire, frozen=True, kw_only=True, tag="ping"):
    """Written by the sender's loop, so it says that the loop turns. Answered by `Pong`.

    `seq` is the last number that was sent: without it, a lost last message would not be missed.
    """

    seq: int


class Pong(Wire, frozen=True, kw_only=True, tag="pong"):
    """Written by the receiver's loop; `seq` as in `Ping`."""

    seq: int


class Bye(Wire, frozen=True, kw_only=True, tag="bye"):
    """The session ends; nothing will be repeated."""


Numbered = Ask | Reply | Tell | Credit
Frame = Hello | Welcome | Stranger | Numbered | Ping | Pong | Bye

MAX_BUNDLE_BYTES: Final = 64 * 1024
"""Frames that are sent in one turn travel as one message, up to this size; a larger frame travels alone."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)
_SMALL_MAP: Final = 0x80
"""How MessagePack begins a map of less than 16 fields, which every frame is."""
_bundles = msgspec.msgpack.Decoder(list[msgspec.Raw])


encode: Final[Callable[[Wire], bytes]] = _encoder.encode
"""The message (or frame) as bytes."""


def bundle(frames: Sequence[bytes]) -> bytes:
    """Several frames as one message: for ZeroMQ and for the loop, the price is by the message."""
    return frames[0] if len(frames) == 1 else _encoder.encode([msgspec.Raw(frame) for frame in frames])


def unbundle(data: bytes) -> Sequence[bytes | msgspec.Raw]:
    """The frames in a message, not looked at any further; raises `ProtocolError`."""
    if data and data[0] & 0xF0 == _SMALL_MAP:
        return (data,)
    try:
        return _bundles.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as exc:
        raise ProtocolError(f"neither a frame nor a bundle of frames: {exc}") from None


def decode_frame(data: bytes | msgspec.Raw) -> Frame:
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
