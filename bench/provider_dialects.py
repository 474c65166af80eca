"""The three dialects as one: how a request is read, and who writes its answer and its errors."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec

from .provider_answer import ChatWriter
from .provider_chat import Asked, read_chat
from .provider_errors import Refusal
from .provider_knobs import knobs_of
from .provider_messages import read_messages
from .provider_messages_answer import MessagesWriter
from .provider_responses import read_responses
from .provider_responses_answer import ResponsesWriter
from .script_player import Answer

Writer = ChatWriter | MessagesWriter | ResponsesWriter


class Dialect(StrEnum):
    """What a door speaks."""

    CHAT = "chat"
    MESSAGES = "messages"
    RESPONSES = "responses"


_READERS = {Dialect.CHAT: read_chat, Dialect.MESSAGES: read_messages, Dialect.RESPONSES: read_responses}


def read(dialect: Dialect, body: bytes) -> Asked:
    """The request in `body`; raises `Refused`."""
    return msgspec.structs.replace(_READERS[dialect](body), knobs=knobs_of(body))


def writer(
    dialect: Dialect, asked: Asked, answer: Answer, *, call: int, model: str, created: int, has_cache: bool
) -> Writer:
    """Who writes `answer`; with a cache, what was sent before is read from it and the rest is written to it."""
    cached = asked.seen_tokens if has_cache else 0
    match dialect:
        case Dialect.CHAT:
            return ChatWriter(
                answer=answer,
                call=call,
                model=model,
                created=created,
                prompt_tokens=asked.prompt_tokens,
                cached_tokens=cached,
                wants_usage_chunk=asked.wants_usage_chunk,
            )
        case Dialect.MESSAGES:
            return MessagesWriter(
                answer=answer,
                call=call,
                model=model,
                created=created,
                prompt_tokens=asked.prompt_tokens,
                cached_tokens=cached,
                created_tokens=asked.prompt_tokens - cached if has_cache else 0,
            )
        case Dialect.RESPONSES:
            return ResponsesWriter(
                answer=answer,
                call=call,
                model=model,
                created=created,
                prompt_tokens=asked.prompt_tokens,
                cached_tokens=cached,
            )
        case _:
            assert_never(dialect)


def error_body(dialect: Dialect, refused: Refusal, trace: str, *, numeric: bool) -> bytes:
    """The error as one JSON object."""
    match dialect:
        case Dialect.CHAT:
            return refused.body(numeric=numeric)
        case Dialect.MESSAGES:
            return refused.messages_body(trace, numeric=numeric)
        case Dialect.RESPONSES:
            return refused.responses_body(numeric=numeric)
        case _:
            assert_never(dialect)


def error_event(dialect: Dialect, refused: Refusal, trace: str, *, numeric: bool) -> bytes:
    """The error as an event of a stream."""
    if dialect is Dialect.RESPONSES:
        return b"event: error\ndata: " + refused.responses_event(numeric=numeric) + b"\n\n"
    body = error_body(dialect, refused, trace, numeric=numeric)
    return (b"data: " if dialect is Dialect.CHAT else b"event: error\ndata: ") + body + b"\n\n"
