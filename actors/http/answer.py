"""One HTTP answer, sans-I/O: bytes in; head, pieces of the body and the end out.

How the bytes are cut never matters. Interim answers (1xx) are passed over; trailers are read and dropped. A head, all
its interim ones included, may have 64 KiB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httpx
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

HEAD_BYTES: Final = 65_536
DRY_BYTES: Final = 2 * HEAD_BYTES
"""Received without a byte of the body among them: one endless line, whatever it is."""
BODILESS: Final = frozenset({204, 304})


class Answer:
    """Reads one answer. After `error` is set, or once `is_complete`, nothing more is taken."""

    __slots__ = (
        "_dry_bytes",
        "_has_length",
        "_head_bytes",
        "_is_for_head",
        "_is_interim",
        "_parse",
        "_parser",
        "error",
        "has_begun",
        "has_head",
        "has_stray",
        "headers",
        "is_complete",
        "keep_alive_s",
        "keeps_connection",
        "pieces",
        "reason",
        "size",
        "status",
    )

    def __init__(self, *, is_for_head: bool = False) -> None:
        parser = HttpResponseParser(self)
        self._parser: HttpResponseParser | None = parser
        self._parse: Callable[[bytes], None] = parser.feed_data
        self._is_for_head = is_for_head
        self._is_interim = self._has_length = False
        self._head_bytes = self._dry_bytes = 0
        self.status = 0
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        """Of the body, not taken yet; `size` is their bytes."""
        self.size = 0
        self.error: httpx.TransportError | None = None
        self.has_begun = self.has_head = self.is_complete = False
        self.has_stray = False
        """Whether bytes came behind the end: the connection is of no more use."""
        self.keeps_connection = False
        self.keep_alive_s: float | None = None
        """How long the server says that it keeps the connection."""

    def feed(self, data: bytes) -> None:
        """Take bytes; a violation of the protocol ends up in `error`, behind whatever was good before it."""
        self.has_begun = True
        self._dry_bytes += len(data)
        try:
            self._parse(data)
        except HttpParserUpgrade:
            self._fail(httpx.RemoteProtocolError("the server switched protocols, which nobody asked for"))
        except HttpParserError as error:
            self._fail(httpx.RemoteProtocolError(f"not HTTP: {error}"), error)
        if self.is_complete:
            self.close()
        elif self._is_too_long or self._dry_bytes > DRY_BYTES:
            self._fail(httpx.RemoteProtocolError(f"the answer's head has more than {HEAD_BYTES} bytes"))

    def end(self, cause: OSError | None = None) -> None:
        """Say that the connection is closed: the end of a body without length, too early for any other."""
        if self.is_complete:
            return
        if self.has_head and not self._has_length and cause is None:
            self.is_complete = True
            self.close()
            return
        where = "within its answer" if self.has_begun else "without an answer"
        if cause is None:
            self._fail(httpx.RemoteProtocolError(f"the server closed the connection {where}"))
        else:
            self._fail(httpx.ReadError(f"the connection broke {where}: {cause}"), cause)

    def take(self) -> bytes:
        """What came of the body since it was last asked for, in one piece."""
        pieces = self.pieces
        self.size = 0
        if len(pieces) == 1:
            return pieces.pop()
        piece = b"".join(pieces)
        pieces.clear()
        return piece

    def close(self) -> None:
        """Let the parser go: it and its callbacks hold each other."""
        self._parse, self._parser = _ignore, None

    @property
    def _is_too_long(self) -> bool:
        return self._head_bytes > HEAD_BYTES

    def _fail(self, error: httpx.TransportError, cause: BaseException | None = None) -> None:
        if self.is_complete:
            self.has_stray = True
        elif self.error is None:
            error.__cause__ = cause
            self.error = error
            self.close()

    def _complete(self) -> None:
        assert self._parser is not None, "it calls us"
        self.is_complete, self.keeps_connection = True, self._parser.should_keep_alive()

    # --- called by the parser ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.has_stray = self.has_stray or self.is_complete

    def on_status(self, status: bytes) -> None:
        if not self.is_complete:
            self.reason += status
            self._head_bytes += len(status)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self.has_head or self._is_too_long:
            return
        value = value.rstrip()
        self.headers.append((name, value))
        match len(name):
            case 14 if name.lower() == b"content-length":
                self._has_length = True
            case 17 if name.lower() == b"transfer-encoding":
                self._has_length = value.lower().endswith(b"chunked")
            case 10 if name.lower() == b"keep-alive":
                self.keep_alive_s = _keep_alive_s(value)

    def on_headers_complete(self) -> None:
        assert self._parser is not None, "it calls us"
        if self.is_complete or self._is_too_long:
            return
        self.status = self._parser.get_status_code()
        self._is_interim = self.status < 200
        if self._is_interim:
            return
        self.has_head, self._dry_bytes = True, 0
        if self.status in BODILESS:
            self._has_length = True
        if self._is_for_head:
            self._complete()

    def on_body(self, piece: bytes) -> None:
        if self.is_complete or self._is_too_long:
            self.has_stray = True
            return
        self.pieces.append(piece)
        self.size += len(piece)
        self._dry_bytes = 0

    def on_message_complete(self) -> None:
        if self._is_interim:
            self.headers.clear()
            self.reason, self._has_length, self.keep_alive_s = b"", False, None
        elif not self.is_complete and not self._is_too_long:
            self._complete()


def _ignore(_: object) -> None:
    pass


def _keep_alive_s(value: bytes) -> float | None:
    """The `timeout` of a Keep-Alive header."""
    for part in value.split(b","):
        name, _, seconds = part.partition(b"=")
        if name.strip().lower() == b"timeout" and seconds.strip().isdigit():
            return float(seconds)
    return None
