"""The simulated provider as a server: it listens, and leads each request to what is behind its door."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final, Literal, assert_never

import msgspec

from ..protocol.errors import UsageError
from .provider_calls import CallPage, ProviderStats
from .provider_desk import Desk
from .provider_dialects import Dialect
from .provider_doors import DOORS, Behind, Door, dialect_of
from .provider_errors import Refusal, refusal
from .provider_http import Connection, Request, Response
from .provider_moods import ModelCard, changed
from .provider_options import ProviderOptions
from .provider_quota import QuotaLimit
from .script import Pace, Script
from .script_file import load_script
from .script_player import Player

MODELS: Final = {"simulated": ModelCard(context_length=131_072, max_output_tokens=32_768)}
"""What is listed unless a mood says otherwise; requests may name any model."""

PAGE = 1000
"""Calls on one page of `/calls`."""


class TopProvider(msgspec.Struct, frozen=True, kw_only=True):
    """What aggregators tell of who serves a model."""

    context_length: int | None
    max_completion_tokens: int | None


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the list of models, with the fields that aggregators add."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "covey"
    context_length: int | None
    top_provider: TopProvider


class Limits(msgspec.Struct, frozen=True):
    """Windows of an account."""

    limits: tuple[QuotaLimit, ...]
    level: str = "pro"


class QuotaAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the quota endpoint answers."""

    code: int = 200
    msg: str = "Operation successful"
    data: Limits
    success: bool = True


class Provider:
    """A provider that listens. Owned by the loop thread."""

    def __init__(self, options: ProviderOptions, script: Script) -> None:
        self._options = options
        pace = Pace(think_s=options.think_s, chunks=options.chunks, chunk_pace_s=options.chunk_pace_s)
        self._desk = Desk(options, Player(script, pace), script.moods)
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
        return self._desk.stats()

    def calls(self, *, after: int = 0, limit: int = PAGE) -> CallPage:
        """What `GET /calls` says."""
        return self._desk.calls(after=after, limit=limit)

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
        door = DOORS.get(request.path)
        if door is None:
            return self._error(refusal("1222", f"There is no {request.path} here"), dialect_of(request.path))
        if request.method not in door.methods:
            allowed = ", ".join(door.methods)
            wrong = refusal("1212", f"{request.path} knows {allowed} only", headers={"Allow": allowed})
            return self._error(wrong, door.dialect)
        if door.is_control and not client.is_local:
            return self._error(refusal("1220", "The control doors are for this machine only"))
        if door.behind is Behind.CALL:
            return self._desk.call(door, request, client)
        if door.is_keyed and (refused := self._desk.key_refusal(request)) is not None:
            return self._error(refused, door.dialect)
        return self._answer(door, request)

    def _answer(self, door: Door, request: Request) -> Response:
        match door.behind:
            case Behind.STATS:
                return _json(self.stats())
            case Behind.ACCOUNTS:
                return _json(self._desk.accounts())
            case Behind.CALLS:
                return self._calls_page(request)
            case Behind.QUOTA:
                return _json(QuotaAnswer(data=Limits(self._desk.quota(request))))
            case Behind.RESET:
                self._desk.reset()
                return _json(self.stats())
            case Behind.MOODS:
                return self._moods(request)
            case Behind.UNLOCK:
                self._desk.unlock()
                return _json(self._desk.accounts())
            case Behind.CLEAR:
                self._desk.clear()
                return _json(self._desk.moods)
            case Behind.MODELS | Behind.CALL:
                return _json(
                    {"object": "list", "data": [_listed(*one) for one in (self._desk.moods.models or MODELS).items()]}
                )
            case _:
                assert_never(door.behind)

    def _calls_page(self, request: Request) -> Response:
        try:
            after = msgspec.convert(request.query.get("after", "0"), int, strict=False)
        except msgspec.ValidationError:
            return self._error(refusal("1214", "after must be the id of a call"))
        return _json(self.calls(after=after))

    def _moods(self, request: Request) -> Response:
        if request.method == "POST":
            try:
                self._desk.set_moods(changed(self._desk.moods, request.body))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                return self._error(refusal("1210", f"moods: {error}"))
        return _json(self._desk.moods)

    def _error(self, refused: Refusal, dialect: Dialect = Dialect.CHAT) -> Response:
        return self._desk.error(refused, dialect)


async def serve(options: ProviderOptions) -> Provider:
    """A provider that listens; the caller stops it. Raises `ConfigError` for a bad script, before anything is bound."""
    provider = Provider(options, load_script(options.script))
    await provider.listen()
    return provider


def _listed(name: str, card: ModelCard) -> ListedModel:
    top = TopProvider(context_length=card.context_length, max_completion_tokens=card.max_output_tokens)
    return ListedModel(id=name, context_length=card.context_length, top_provider=top)


def _json(value: object) -> Response:
    return Response(200, msgspec.json.encode(value))
