"""The simulated provider as a server: its doors, and each call's way from the request to the last byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Final

import msgspec

from ..protocol.errors import UsageError
from .provider_answer import Writer
from .provider_calls import CallBook, CallPage, ProviderStats
from .provider_chat import prompt_tokens, read_request, situation
from .provider_errors import Refusal, Refused, refusal
from .provider_http import Connection, Request, Response
from .provider_options import ProviderOptions
from .script import Pace
from .script_file import load_script
from .script_player import Player
from .script_steps import UnreadableStep

MODEL: Final = "simulated"
"""The model that `/v1/models` lists; requests may name any other."""

PAGE = 1000
"""Calls on one page of `/calls`."""

METHODS: Final[dict[str, str]] = {
    "/v1/chat/completions": "POST",
    "/v1/models": "GET",
    "/stats": "GET",
    "/calls": "GET",
    "/reset": "POST",
}
"""Every path and the one method it knows."""

_STREAM_HEADERS: Final = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class Provider:
    """A provider that listens. Owned by the loop thread."""

    def __init__(self, options: ProviderOptions, player: Player) -> None:
        self._options = options
        self._player = player
        self._started = time.monotonic()
        self._book = CallBook(options.limit, started_unix=time.time())
        self._connections: set[Connection] = set()

    async def listen(self) -> None:
        """Bind and accept; raises `UsageError` if the address cannot be had."""
        loop = asyncio.get_running_loop()
        host, port = self._options.host, self._options.port
        try:
            # A burst of clients connects at once; the default of 100 would make some of them wait a second.
            self._server = await loop.create_server(
                lambda: Connection(self._handle, self._connections), host, port, backlog=2048
            )
        except OSError as error:
            raise UsageError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
        self.port = int(self._server.sockets[0].getsockname()[1])

    @property
    def base_url(self) -> str:
        """What a client is configured with."""
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        return f"http://{host}:{self.port}/v1"

    def stats(self) -> ProviderStats:
        """What `GET /stats` says."""
        return self._book.stats()

    def calls(self, *, after: int = 0, limit: int = PAGE) -> CallPage:
        """What `GET /calls` says."""
        return self._book.page(after=after, limit=limit)

    async def stop(self) -> None:
        """Close the door and cut every open stream; returns when no connection is left."""
        self._server.close()
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for connection in tuple(self._connections):
            connection.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    # --- doors -------------------------------------------------------------------------------------------------------

    def _handle(self, request: Request, client: Connection) -> Response | Coroutine[None, None, None]:
        method = METHODS.get(request.path)
        if method is None:
            return _error(refusal("1222", f"There is no {request.path} here"))
        if request.method != method:
            wrong = refusal("1212", f"{request.path} knows {method} only", headers={"Allow": method})
            return _error(wrong)
        if request.path == "/v1/chat/completions":
            return self._chat(request, client)
        return self._answer(request)

    def _answer(self, request: Request) -> Response:
        match request.path:
            case "/stats":
                return _json(self.stats())
            case "/calls":
                return self._calls_page(request)
            case "/reset":
                self._book.reset()
                return _json(self.stats())
            case _:
                model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "covey"}
                return _json({"object": "list", "data": [model]})

    def _calls_page(self, request: Request) -> Response:
        try:
            after = msgspec.convert(request.query.get("after", "0"), int, strict=False)
        except msgspec.ValidationError:
            return _error(refusal("1214", "after must be the id of a call"))
        return _json(self.calls(after=after))

    # --- calls -------------------------------------------------------------------------------------------------------

    def _chat(self, request: Request, client: Connection) -> Response | Coroutine[None, None, None]:
        """Take a call on, or refuse it; counted before anything else can happen on the loop."""
        try:
            asked = read_request(request.body)
            now = situation(asked)
            if self._book.is_full:
                return _error(self._refuse(request, asked.model, self._over_ceiling()))
            answer = self._player.next_move(now)
        except Refused as error:
            return _error(error.refusal)
        except UnreadableStep as error:
            return _error(refusal("1214", f"steps in the prompt: {error}"))
        if isinstance(answer, Refusal):
            return _error(self._refuse(request, asked.model, answer))
        writer = Writer(
            answer=answer,
            call=self._take(request, asked.model, spent := prompt_tokens(asked)),
            model=asked.model,
            created=int(time.time()),
            prompt_tokens=spent,
            wants_usage_chunk=asked.wants_usage_chunk,
        )
        # Here and not in the coroutine: one that is cancelled before it began runs no `finally`.
        client.when_lost(lambda: self._book.abort(writer.call, now=self._now()))
        return self._stream(writer, client) if asked.stream else self._reply(writer, client)

    async def _stream(self, writer: Writer, client: Connection) -> None:
        pace, cut = writer.answer.pace, writer.answer.cut_after_chunks
        pieces = writer.pieces()
        await asyncio.sleep(pace.think_s)
        client.begin(200, _STREAM_HEADERS | {"x-request-id": writer.id})
        for piece in pieces[:-1] if cut is None else pieces[:cut]:
            client.send(piece)
            await client.drained()
            await asyncio.sleep(pace.chunk_pace_s)
        if cut is not None:
            return client.cut()
        client.finish(pieces[-1] + writer.closing())
        return await self._end(writer, client, usage_sent=writer.reports_usage)

    async def _reply(self, writer: Writer, client: Connection) -> None:
        answer = writer.answer
        body = writer.body()
        await asyncio.sleep(answer.pace.think_s + answer.pace.chunk_pace_s * (answer.pace.chunks - 1))
        if answer.cut_after_chunks is not None:
            if answer.cut_after_chunks:
                client.begin(200, {"content-type": "application/json", "content-length": str(len(body))})
                client.send(body[:-1])
            return client.cut()
        client.respond(Response(200, body, {"x-request-id": writer.id}))
        return await self._end(writer, client, usage_sent=answer.reports_usage)

    async def _end(self, writer: Writer, client: Connection, *, usage_sent: bool) -> None:
        await client.drained()
        client.when_lost(None)
        self._book.complete(
            writer.call, completion_tokens=writer.completion_tokens, usage_sent=usage_sent, now=self._now()
        )

    def _take(self, request: Request, model: str, spent: int) -> int:
        who, agent = _client(request)
        return self._book.take(
            model=model, prompt_tokens=spent, now=self._now(), client_request_id=who, user_agent=agent
        )

    def _refuse(self, request: Request, model: str, why: Refusal) -> Refusal:
        who, agent = _client(request)
        self._book.refuse(code=why.code, model=model, now=self._now(), client_request_id=who, user_agent=agent)
        return why

    def _over_ceiling(self) -> Refusal:
        wait = self._options.retry_after_s
        return refusal(self._options.over_code, headers=None if wait is None else {"Retry-After": str(wait)})

    def _now(self) -> float:
        return round(time.monotonic() - self._started, 6)


async def serve(options: ProviderOptions) -> Provider:
    """A provider that listens; the caller stops it. Raises `ConfigError` for a bad script, before anything is bound."""
    script = load_script(options.script)
    pace = Pace(think_s=options.think_s, chunks=options.chunks, chunk_pace_s=options.chunk_pace_s)
    provider = Provider(options, Player(script, pace))
    await provider.listen()
    return provider


def _client(request: Request) -> tuple[str | None, str | None]:
    # Cut: what a client sends is kept for as long as the call is listed.
    who, agent = request.headers.get("x-client-request-id"), request.headers.get("user-agent")
    return who and who[:200], agent and agent[:200]


def _error(refused: Refusal) -> Response:
    return Response(refused.status, refused.body(), refused.headers)


def _json(value: object) -> Response:
    return Response(200, msgspec.json.encode(value))
