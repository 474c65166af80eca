"""What went wrong on the way to a provider, as a fault: httpx's exceptions, read down to their cause."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Iterator

import httpx

from ...protocol.faults import Fault, FaultKind, fault_named


def connection_fault(error: Exception, *, in_body: bool) -> Fault:
    """Name `error`; `in_body` says that the answer had begun."""
    return fault_named(_kind(error, in_body=in_body), _words(error))


def _kind(error: Exception, *, in_body: bool) -> FaultKind:
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return FaultKind.TLS
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
            return FaultKind.OUT_OF_FILES
    match error:
        case httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return FaultKind.NOT_FOUND
        case httpx.PoolTimeout():
            return FaultKind.NOT_SENT
        case httpx.LocalProtocolError():  # a header that none can be made of
            return FaultKind.BAD_REQUEST
        case httpx.DecodingError():
            return FaultKind.INVALID_RESPONSE
        case _ if in_body:
            return FaultKind.TRUNCATED
        case _:
            return FaultKind.UNREACHABLE


def _words(error: Exception) -> str:
    text = next((str(cause) for cause in _causes(error) if str(cause)), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, what caused it, and so on; at most ten."""
    current: BaseException | None = error
    for _ in range(10):
        if current is None:
            return
        yield current
        if isinstance(current, BaseExceptionGroup):  # several addresses were tried
            yield from current.exceptions
        current = current.__cause__ or current.__context__
