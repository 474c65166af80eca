"""The fleet's no, and how it gets through an SDK to the program that has to know it.

SDKs take errors of their transport for a lost connection. Newer ones let some through (openai 3 whatever is no error of
its HTTP library, anthropic 2 errors of its own base class), older ones wrap all, after asking again. So a refusal
inside an SDK's call is an error of that SDK as well, and `local_refusal` finds it wherever it ended up.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import Final, TypeVar

import msgspec

from ..protocol.errors import (
    BudgetLocked,
    BudgetParked,
    CapReached,
    CoveyError,
    LimitError,
    QueueFull,
    RequestRefused,
    SlotRevoked,
    SlotTimeout,
)
from ..protocol.messages.broker import Refusal, Refused

Error = TypeVar("Error", bound=Exception)

SDK_ERRORS: Final = (("openai", "OpenAIError"), ("anthropic", "AnthropicError"))
"""Base classes of the errors that an SDK lets through as they are."""

EXTENSION: Final = "covey_refusal"
HEADER: Final = "x-covey-refused"

_WORDS: Final[tuple[tuple[type[CoveyError], str], ...]] = (
    (BudgetParked, "parked"),
    (BudgetLocked, "locked"),
    (CapReached, "cap_reached"),
    (RequestRefused, "request_refused"),
    (SlotRevoked, "revoked"),
    (QueueFull, "queue_full"),
    (SlotTimeout, "timeout"),
)


def refusal(refused: Refused) -> CoveyError:
    """The broker's refusal as the error its caller sees."""
    budget, reason = refused.budget, refused.detail or "no reason was given"
    until = refused.until_ms / 1000 if refused.until_ms is not None else None
    match refused.reason:
        case Refusal.REVOKED:
            return SlotRevoked(budget)
        case Refusal.QUEUE_FULL:
            return QueueFull(budget, refused.queued)
        case Refusal.PARKED:
            return BudgetParked(budget, reason, until=until, queued=refused.queued)
        case Refusal.LOCKED:
            return BudgetLocked(budget, reason, queued=refused.queued)
        case Refusal.CAP_REACHED:
            return CapReached(budget, reason)
        case Refusal.REQUEST_REFUSED:
            return RequestRefused(budget, reason)
        case Refusal.TIMEOUT | Refusal.WITHDRAWN:
            return SlotTimeout(budget, refused.waited_s, refused.queued)


def local_refusal(error: BaseException) -> CoveyError | None:
    """The fleet's own error inside what an SDK raised; None if it was the provider's, or anybody else's.

    Found as the error itself, among its causes, or behind an answer that the transport gave in the provider's place.
    """
    current: BaseException | None = error
    for _ in range(10):
        if current is None:
            return None
        if isinstance(current, CoveyError):
            return current
        told = getattr(getattr(current, "response", None), "extensions", {}).get(EXTENSION)
        if isinstance(told, CoveyError):
            return told
        current = current.__cause__ or current.__context__
    return None


def as_sdk_error(error: Error) -> Error:
    """The same error, which is also one of every SDK that is loaded, so that they neither wrap nor repeat it."""
    bases = tuple(
        base
        for name, attribute in SDK_ERRORS
        if isinstance(base := getattr(sys.modules.get(name), attribute, None), type) and issubclass(base, Exception)
    )
    if not bases:
        return error
    kind = _joined(type(error).__name__, (type(error), *bases))
    twin = kind.__new__(kind, *error.args)
    twin.__dict__.update(error.__dict__)
    assert isinstance(twin, type(error)), "it was made below it"
    return twin


def answer_of(error: CoveyError) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer that says no in the provider's place.

    The body has the envelope of chat completions and of Anthropic messages in one; SDKs are told not to ask again.
    """
    word = next((word for kind, word in _WORDS if isinstance(error, kind)), "unavailable")
    headers = {"content-type": "application/json", "x-should-retry": "false", HEADER: word}
    until = getattr(error, "until", None)
    if until is not None:
        headers["retry-after"] = str(max(0, round(until - time.time())))
    facts = {
        name: value for name in ("budget", "queued", "reason") if (value := getattr(error, name, None)) is not None
    }
    body = {"type": "error", "error": {"type": "covey_refused", "code": word, "message": str(error), **facts}}
    return (429 if isinstance(error, LimitError) else 503), headers, msgspec.json.encode(body)


@functools.cache
def _joined(name: str, bases: tuple[type, ...]) -> type:
    return type(name, bases, {"__module__": bases[0].__module__, "__doc__": bases[0].__doc__})
