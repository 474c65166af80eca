"""The two dialects as one: how a request is read, and who writes its answer and its errors."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from .provider_answer import ChatWriter
from .provider_chat import Asked, read_chat
from .provider_errors import Refusal
from .provider_messages import read_messages
from .provider_messages_answer import MessagesWriter
from .script_player import Answer

Writer = ChatWriter | MessagesWriter


class Dialect(StrEnum):
    """What a door speaks."""

    CHAT = "chat"
    MESSAGES = "messages"


def read(dialect: Dialect, body: bytes) -> Asked:
    """The request in `body`; raises `Refused`."""
    return read_chat(body) if dialect is Dialect.CHAT else read_messages(body)


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
        case _:
            assert_never(dialect)


def error_body(dialect: Dialect, refused: Refusal, trace: str, *, numeric: bool) -> bytes:
    """The error as one JSON object."""
    if dialect is Dialect.CHAT:
        return refused.body(numeric=numeric)
    return refused.messages_body(trace, numeric=numeric)


def error_event(dialect: Dialect, refused: Refusal, trace: str, *, numeric: bool) -> bytes:
    """The error as an event of a stream."""
    body = error_body(dialect, refused, trace, numeric=numeric)
    return (b"data: " if dialect is Dialect.CHAT else b"event: error\ndata: ") + body + b"\n\n"
