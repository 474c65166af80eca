"""What a request and a response tell a transport, in httpx and in httpx2, which have the same classes twice.

SDKs are moving from one to the other (openai takes clients of both, anthropic of httpx2 only), so nothing here is made
of either library's classes before a request shows which one is in use.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping
from typing import Any, Final, Protocol

import msgspec

from ..protocol.errors import CoveyError
from .answer_reader import ENCODINGS
from .outcomes import HTTP_LIBRARIES
from .refusals import EXTENSION, answer_of

MAX_REQUEST_BYTES: Final = 32 << 20
"""Of a request's body that is looked through for its model."""

_CALLS: Final = ("/chat/completions", "/completions", "/messages", "/responses", "/embeddings")
_READABLE: Final = frozenset({"identity", "gzip", "deflate"})


class Url(Protocol):
    """The address of a request."""

    @property
    def scheme(self) -> str: ...
    @property
    def netloc(self) -> bytes: ...
    @property
    def path(self) -> str: ...


class Request(Protocol):
    """A request of either library."""

    @property
    def method(self) -> str: ...
    @property
    def url(self) -> Url: ...
    @property
    def headers(self) -> MutableMapping[str, str]: ...
    @property
    def content(self) -> bytes: ...


class Response(Protocol):
    """A response of either library; its body has not been read."""

    stream: Any

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> MutableMapping[str, str]: ...


class SyncBody(Protocol):
    """A body that is read in pieces."""

    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class AsyncBody(Protocol):
    """The same in asyncio."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


class _Asked(msgspec.Struct, frozen=True):
    model: str = ""


def is_call(request: Request) -> bool:
    """Whether it may be one of the calls that a provider counts; reading lists of models is not."""
    return request.method.upper() == "POST"


def base_url_of(request: Request) -> str:
    """The endpoint, without the call's own path, without user and query: those may be secrets."""
    url = request.url
    path = url.path
    ending = next((ending for ending in _CALLS if path.endswith(ending)), "")
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}{path.removesuffix(ending)}"


def key_of(headers: Mapping[str, str]) -> str | None:
    """The key that the request is authorised with; None if it shows none."""
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    return token.strip() or scheme or headers.get("x-api-key") or headers.get("api-key") or None


def model_of(request: Request) -> str:
    """The model that is asked; empty where the body is no JSON object, or too long, or not there yet."""
    try:
        body = request.content
    except RuntimeError:  # a body that is streamed; each library has an error of its own
        return ""
    if len(body) > MAX_REQUEST_BYTES:
        return ""
    try:
        return msgspec.json.decode(body, type=_Asked).model
    except (msgspec.DecodeError, RecursionError):
        return ""


def prepare(request: Request, call: str) -> None:
    """Mark the request with its call's id, and let no answer come in an encoding that cannot be read in passing."""
    request.headers.setdefault("x-client-request-id", call)
    accepted = {one.partition(";")[0].strip() for one in request.headers.get("accept-encoding", "").lower().split(",")}
    if not accepted <= _READABLE:
        request.headers["accept-encoding"] = ENCODINGS


def is_from_sdk(request: Request) -> bool:
    """Whether one of the generated SDKs sent it (openai's and anthropic's both say so)."""
    return "x-stainless-lang" in request.headers


def library_of(request: object) -> Any:
    """The module, httpx or httpx2, whose client made this request."""
    for kind in type(request).__mro__:
        name = kind.__module__.partition(".")[0]
        if name in HTTP_LIBRARIES:
            return sys.modules[name]
    raise TypeError(f"a request of httpx or httpx2 was expected, not {type(request).__qualname__}")


def refusing_response(request: object, error: CoveyError) -> Any:
    """An answer in the provider's place that says no; `refusals.local_refusal` finds `error` in it."""
    status, headers, body = answer_of(error)
    library = library_of(request)
    return library.Response(status, headers=headers, content=body, request=request, extensions={EXTENSION: error})


@functools.cache
def body_kind(kind: type, library: Any, *, is_async: bool) -> type:
    """`kind` as a byte stream of the library, which accepts no others."""
    base = library.AsyncByteStream if is_async else library.SyncByteStream
    return type(kind.__name__, (kind, base), {"__module__": kind.__module__})
