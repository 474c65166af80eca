"""How an answer gets to its client: piece by piece or whole, to the end or to its death on the way."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Final, assert_never

from .provider_dialects import Writer
from .provider_http import Connection, Response
from .provider_moods import Death

STREAM_HEADERS: Final = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


KEEP_ALIVE_S: Final = 0.02
"""Between two keep-alives of an answer that says nothing else any more."""


async def stream(
    writer: Writer, client: Connection, *, error: bytes, delay_s: float, keep_alive_s: float | None = None
) -> bool | None:
    """Send the answer as a stream: whether its usage was in it, None if it never ends.

    `error` is the event of a stream that ends with one. At most one piece waits for a reader that does not read.
    """
    answer, pieces = writer.answer, writer.pieces()
    after = answer.cut_after_chunks
    headers, thinks_s = STREAM_HEADERS | {"x-request-id": writer.id}, answer.pace.think_s + delay_s
    if keep_alive_s is None:
        await asyncio.sleep(thinks_s)
        client.begin(200, headers)
    else:
        client.begin(200, headers)
        await _say_again(client, writer.keep_alive, every_s=keep_alive_s, for_s=thinks_s)
    for piece in pieces[:-1] if after is None else pieces[:after]:
        client.send(piece)
        await client.drained()
        await asyncio.sleep(answer.pace.chunk_pace_s)
    if after is None:
        client.finish(pieces[-1] + writer.closing())
        return writer.stream_reports_usage
    rest = [*pieces[after:], writer.closing()]
    half = rest[0][: len(rest[0]) // 2]
    match answer.dies:
        case Death.CUT:
            client.cut()
        case Death.TORN:
            client.send(half)
            client.cut()
        case Death.STALL:
            await _for_ever()
        case Death.KEEP_ALIVE:
            await _say_again(client, writer.keep_alive, every_s=KEEP_ALIVE_S)
        case Death.HALF_JSON:
            client.finish(half)
            return False
        case Death.ERROR:
            client.finish(error)
            return False
        case Death.NO_NEWLINE:
            client.finish(b"".join(rest).rstrip(b"\n"))
            return writer.stream_reports_usage
        case _:
            assert_never(answer.dies)
    return None


async def reply(writer: Writer, client: Connection, *, error: Response, delay_s: float) -> bool | None:
    """Send the answer as one body: whether its usage was in it, None if it never ends."""
    answer, body = writer.answer, writer.body()
    pace = answer.pace
    await asyncio.sleep(pace.think_s + delay_s + pace.chunk_pace_s * (pace.chunks - 1))
    if answer.cut_after_chunks is None or answer.dies is Death.NO_NEWLINE:
        client.respond(Response(200, body, {"x-request-id": writer.id}))
        return answer.reports_usage
    match answer.dies:
        case Death.CUT:
            _begin(client, body, body[:-1] if answer.cut_after_chunks else b"")
            client.cut()
        case Death.TORN:
            _begin(client, body, body[: len(body) // 2])
            client.cut()
        case Death.STALL:
            _begin(client, body, body[: len(body) // 2] if answer.cut_after_chunks else b"")
            await _for_ever()
        case Death.KEEP_ALIVE:
            client.begin(200, {"content-type": "application/json"})
            await _say_again(client, b" ", every_s=KEEP_ALIVE_S)
        case Death.HALF_JSON:
            client.respond(Response(200, body[: len(body) // 2], {"x-request-id": writer.id}))
            return False
        case Death.ERROR:
            client.respond(error)
            return False
        case _:
            assert_never(answer.dies)
    return None


def _begin(client: Connection, body: bytes, sent: bytes) -> None:
    if sent:
        client.begin(200, {"content-type": "application/json", "content-length": str(len(body))})
        client.send(sent)


async def refuse(response: Response, client: Connection, *, is_endless: bool) -> None:
    """Send a refusal whose body never ends: it goes on with blanks, or half of it is all that comes."""
    headers = {"content-type": "application/json"} | dict(response.headers or {})
    if is_endless:
        client.begin(response.status, headers)
        while True:
            client.send(b" " * 16_384)
            await client.drained()
            await asyncio.sleep(0)
    client.begin(response.status, headers | {"content-length": str(len(response.body))})
    client.send(response.body[: len(response.body) // 2])
    await _for_ever()


async def _say_again(client: Connection, piece: bytes, *, every_s: float, for_s: float = math.inf) -> None:
    end = time.monotonic() + for_s
    while (left := end - time.monotonic()) > 0:
        client.send(piece)
        await client.drained()
        await asyncio.sleep(min(every_s, left))


async def _for_ever() -> None:
    # The task is cancelled when the connection goes: that is the only end such a call has.
    await asyncio.Event().wait()
