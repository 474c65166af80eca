"""A slot on its way through an HTTP exchange: held until the last byte of the body, or until the body is closed.

The bytes that pass are read on the side, so that the call's account and its budget learn how it ended; they are handed
on unchanged, in the same pieces. The connection is closed before the slot is given back: a provider counts until then.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

from ..protocol.faults import FaultKind, fault_named
from .answer_reader import AnswerReader, decoded
from .handles import Slot
from .outcomes import REFUSAL_BYTES, fault_of_answer, fault_of_error
from .transport_wire import AsyncBody, Response, SyncBody


class Watch:
    """One exchange under one slot. Whoever is first to see its end gives the slot back; any thread may."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._reader: AnswerReader | None = None
        self._ending = threading.Lock()
        self._is_over = False
        self._has_output = False

    def answered(self, response: Response) -> None:
        """The head of an answer is there."""
        encoding = response.headers.get("content-encoding", "")
        self._reader = AnswerReader(content_type=response.headers.get("content-type", ""), content_encoding=encoding)

    def refused(self, response: Response, body: bytes) -> None:
        """It is an error; `body` is its beginning, as it is on the wire."""
        encoding = response.headers.get("content-encoding", "")
        plain = decoded(body, encoding, at_most=REFUSAL_BYTES)
        self._slot.report(fault_of_answer(response.status_code, plain, response.headers))
        if self._slot.budget is not None:
            # SDKs obey: a second attempt of theirs would be one more call that the fleet did not decide on.
            response.headers["x-should-retry"] = "false"

    def feed(self, piece: bytes) -> None:
        """Some of the body passed."""
        if self._reader is None:
            return
        self._reader.feed(piece)
        if not self._has_output and self._reader.fault is None:
            self._has_output = True
            self._slot.answers()

    def exhausted(self) -> None:
        """The last byte has passed."""
        if self._reader is not None:
            self._reader.close()
        self.end(None)

    def closed(self) -> None:
        """The body was closed; before its last byte that is a cut, unless the answer in it was over."""
        if self._reader is None or self._reader.is_over:
            self.end(None)
        else:
            self.end(asyncio.CancelledError("the program closed the answer before its end"))

    def end(self, error: BaseException | None) -> None:
        """The exchange is over; only the first word counts."""
        with self._ending:
            if self._is_over:
                return
            self._is_over = True
        self._tell(error)
        self._slot.leave(error)

    def _tell(self, error: BaseException | None) -> None:
        reader = self._reader
        if reader is None:
            return
        self._slot.record_usage(reader.usage, model=reader.model, response_id=reader.response_id)
        if reader.fault is not None:
            self._slot.report(reader.fault)
        elif error is not None and (broken := fault_of_error(error)) is not None:
            # The answer had begun, so that whatever broke it off left it truncated, a silence apart.
            kind = broken.kind if broken.kind is FaultKind.TIMEOUT else FaultKind.TRUNCATED
            self._slot.report(fault_named(kind, broken.message))
        elif error is None:
            self._slot.report((HTTPStatus.OK, b""))


@dataclass(slots=True)
class Peeked:
    """The beginning of a body, taken ahead of whoever reads it, to be handed on as it came."""

    pieces: list[bytes] = field(default_factory=list)
    is_all: bool = False
    broken: Exception | None = None
    """What kept us from reading on; raised again where the program gets to it."""

    @property
    def content(self) -> bytes:
        """All that was read."""
        return b"".join(self.pieces)

    @property
    def is_enough(self) -> bool:
        """Whether it tells what an error is about."""
        return sum(map(len, self.pieces)) >= REFUSAL_BYTES


def peek(rest: Iterator[bytes]) -> Peeked:
    """Read as much of an error's body as there is need to know."""
    peeked = Peeked()
    try:
        while not peeked.is_enough:
            peeked.pieces.append(next(rest))
    except StopIteration:
        peeked.is_all = True
    except Exception as error:  # noqa: BLE001 - the program meets it where it reads the body
        peeked.broken = error
    return peeked


async def apeek(rest: AsyncIterator[bytes]) -> Peeked:
    """The same in asyncio."""
    peeked = Peeked()
    try:
        while not peeked.is_enough:
            peeked.pieces.append(await anext(rest))
    except StopAsyncIteration:
        peeked.is_all = True
    except Exception as error:  # noqa: BLE001 - the program meets it where it reads the body
        peeked.broken = error
    return peeked


class HeldBody:
    """The body of a response, with its slot."""

    def __init__(self, inner: SyncBody, rest: Iterator[bytes], watch: Watch, peeked: Peeked | None = None) -> None:
        """`rest` is what is left of `inner` behind `peeked`."""
        self._inner, self._rest, self._watch, self._peeked = inner, rest, watch, peeked or Peeked()

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._peeked.pieces
            if self._peeked.broken is not None:
                raise self._peeked.broken
            for piece in self._rest:
                self._watch.feed(piece)
                yield piece
        except GeneratorExit:
            self.close()
            raise
        except BaseException as error:
            try:
                self._inner.close()
            finally:
                self._watch.end(error)
            raise
        self._watch.exhausted()

    def close(self) -> None:
        """Close the connection's side of it, then give the slot back. Idempotent."""
        try:
            self._inner.close()
        finally:
            self._watch.closed()


class AsyncHeldBody:
    """The same in asyncio."""

    def __init__(
        self, inner: AsyncBody, rest: AsyncIterator[bytes], watch: Watch, peeked: Peeked | None = None
    ) -> None:
        """`rest` is what is left of `inner` behind `peeked`."""
        self._inner, self._rest, self._watch, self._peeked = inner, rest, watch, peeked or Peeked()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            for piece in self._peeked.pieces:
                yield piece
            if self._peeked.broken is not None:
                raise self._peeked.broken
            async for piece in self._rest:
                self._watch.feed(piece)
                yield piece
        except GeneratorExit:
            await self.aclose()
            raise
        except BaseException as error:
            try:
                await self._inner.aclose()
            finally:
                self._watch.end(error)
            raise
        self._watch.exhausted()

    async def aclose(self) -> None:
        """Close the connection's side of it, then give the slot back. Idempotent."""
        try:
            await self._inner.aclose()
        finally:
            self._watch.closed()
