"""Errors as Z.AI words them: `{"error": {"code": "1302", "message": …}}`, the business code a string."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

KNOWN: Final[dict[str, tuple[int, str]]] = {
    "1001": (401, "Header parameter Authorization was not received"),
    "1113": (429, "Insufficient balance or no resource package. Please recharge."),
    "1210": (400, "The request parameters are invalid"),
    "1211": (400, "Unknown model"),
    "1212": (405, "The method is not supported here"),
    "1214": (400, "A field of the request is missing or invalid"),
    "1222": (404, "The API does not exist"),
    "1261": (400, "The prompt is too long"),
    "1302": (429, "High concurrency usage of this API, please reduce concurrency"),
    "1303": (429, "The request frequency is too high, please slow down"),
    "1305": (429, "The service may be temporarily overloaded, please try again later"),
    "1308": (429, "Usage limit reached for 5 hour. Your limit will reset later"),
    "1310": (429, "Weekly/Monthly Limit Exhausted. Your limit will reset later"),
    "1313": (429, "The current usage pattern does not comply with the Fair Usage Policy"),
    "500": (500, "Internal error"),
}
"""Code → HTTP status and text, from the public documentation; a script may say otherwise."""

OVER_CEILING: Final = ("1302", "1305")
"""Codes that may answer a call over the ceiling."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is an error: the call was not taken on."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = {}

    def body(self) -> bytes:
        """The JSON the client gets."""
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message}})


class Refused(Exception):
    """Raised while a request is read; `refusal` is what the client is told."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.status} {refusal.code}: {refusal.message}")
        self.refusal = refusal


def refusal(
    code: str, message: str | None = None, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Refusal:
    """The error of `code`; what is not given comes from `KNOWN`, and is a 429 for a code that is not there."""
    known_status, known_message = KNOWN.get(code, (429, f"refused with code {code}"))
    return Refusal(
        status=known_status if status is None else status,
        code=code,
        message=known_message if message is None else message,
        headers=headers or {},
    )
