"""Errors as Z.AI tells them: a business code and a text, in the envelope of the dialect that was spoken.

Chat completions: `{"error": {"code": "1302", "message": …}}`, and Responses with a type beside them. Anthropic
Messages: the code, the text and a trace id once more inside the message, `[1302][…][20260912001903…]`; the trace begins
with the wall time in UTC+8.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, Literal

import msgspec

Language = Literal["en", "zh"]

KNOWN: Final[dict[str, tuple[int, str]]] = {
    "1001": (401, "Header parameter Authorization was not received"),
    "1002": (401, "Authorization Token is invalid"),
    "1003": (401, "Authorization Token has expired"),
    "1113": (429, "Insufficient balance or no resource package. Please recharge."),
    "1210": (400, "The request parameters are invalid"),
    "1211": (400, "Unknown model"),
    "1212": (405, "The method is not supported here"),
    "1214": (400, "A field of the request is missing or invalid"),
    "1220": (403, "There is no permission to access this API"),
    "1222": (404, "The API does not exist"),
    "1234": (500, "Network error, please retry later"),
    "1261": (400, "The prompt is too long"),
    "1301": (400, "The request may contain unsafe or sensitive content"),
    "1302": (429, "High concurrency usage of this API, please reduce concurrency"),
    "1303": (429, "The request frequency is too high, please slow down"),
    "1304": (429, "The daily call limit of this API is reached"),
    "1305": (429, "The service may be temporarily overloaded, please try again later"),
    "1308": (429, "Usage limit reached for 5 hour. Your limit will reset later"),
    "1309": (429, "The plan of this account has expired"),
    "1310": (429, "Weekly/Monthly Limit Exhausted. Your limit will reset later"),
    "1311": (429, "The current plan does not include this model"),
    "1312": (429, "The model is busy at the moment"),
    "1313": (
        429,
        "Your account's current usage pattern does not comply with the Fair Usage Policy. "
        "To restore access, please submit a request.",
    ),
    "1316": (429, "The 5 hour usage limit is reached, and there is no extra usage"),
    "1317": (429, "The 7 day usage limit is reached, and there is no extra usage"),
    "1318": (429, "The 5 hour usage limit is reached, and the extra usage is used up"),
    "1319": (429, "The 7 day usage limit is reached, and the extra usage is used up"),
    "1320": (429, "The 5 hour usage limit is reached, and extra usage is switched off"),
    "1321": (429, "The 7 day usage limit is reached, and extra usage is switched off"),
    "invalid_api_key": (401, "Incorrect API key provided"),
    "500": (500, "Internal error"),
    "529": (529, "Overloaded"),
}
"""Code → HTTP status and text, from the public documentation and what users saw; a script may say otherwise."""

CHINESE: Final[dict[str, str]] = {
    "1113": "余额不足或无可用资源包,请充值。",
    "1302": "您当前使用该API的并发数过高,请降低并发。",
    "1303": "您当前使用该API的频率过高,请降低频率。",
    "1305": "该模型当前访问量过大,请您稍后再试。",
    "1308": "已达到 5 小时的使用上限。",
    "1309": "您的套餐已到期。",
    "1310": "已达到每周/每月使用上限。",
    "1311": "当前订阅套餐暂未开放该模型的权限。",
    "1313": "您的账户当前使用模式不符合公平使用政策,如需恢复请提交申请。",
}
"""The texts of the Chinese host, where they are known."""

OVER_CEILING: Final = ("1302", "1305")
"""Codes that the command's option takes for a call over the ceiling."""

_WALL: Final = timezone(timedelta(hours=8))
_ZH_UNITS: Final[dict[str, str]] = {"minute": "分钟", "hour": "小时", "week": "周", "month": "个月"}

_ANTHROPIC_TYPES: Final[dict[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is an error: the call was not taken on."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = {}

    def body(self, *, numeric: bool = False) -> bytes:
        """The JSON that a client of chat completions gets."""
        return msgspec.json.encode({"error": {"code": self._code(numeric), "message": self.message}})

    def messages_body(self, trace: str, *, numeric: bool = False) -> bytes:
        """The JSON that a client of Anthropic Messages gets."""
        kind = _ANTHROPIC_TYPES.get(self.status, "api_error")
        text = f"[{self.code}][{self.message}][{trace}]"
        error = {"type": kind, "code": self._code(numeric), "message": text}
        return msgspec.json.encode({"type": "error", "error": error, "request_id": trace})

    def responses_body(self, *, numeric: bool = False) -> bytes:
        """The JSON that a client of Responses gets."""
        return msgspec.json.encode({"error": {"type": self._type, **self._told(numeric)}})

    def responses_event(self, *, numeric: bool = False) -> bytes:
        """The data of an event of Responses that is the error."""
        return msgspec.json.encode({"type": "error", **self._told(numeric)})

    def _told(self, numeric: bool) -> dict[str, str | int | None]:
        return {"code": self._code(numeric), "message": self.message, "param": None}

    @property
    def _type(self) -> str:
        return _ANTHROPIC_TYPES.get(self.status, "server_error")

    def _code(self, numeric: bool) -> str | int:
        return int(self.code) if numeric and self.code.isdecimal() else self.code


class Refused(Exception):
    """Raised while a request is read; `refusal` is what the client is told."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.status} {refusal.code}: {refusal.message}")
        self.refusal = refusal


def refusal(
    code: str,
    message: str | None = None,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    language: Language = "en",
) -> Refusal:
    """The error of `code`; what is not given comes from `KNOWN`, and is a 429 for a code that is not there."""
    known_status, known_message = KNOWN.get(code, (429, f"refused with code {code}"))
    if language == "zh":
        known_message = CHINESE.get(code, known_message)
    return Refusal(
        status=known_status if status is None else status,
        code=code,
        message=known_message if message is None else message,
        headers=headers or {},
    )


def quota_refusal(code: str, *, number: int, unit: str, resets_at: str | None, language: Language = "en") -> Refusal:
    """The error of a used-up window; `resets_at` is a stamp without a zone."""
    if language == "zh":
        text = (
            "已达到每周/每月使用上限。"
            if code == "1310"
            else f"已达到 {number} {_ZH_UNITS.get(unit, unit)}的使用上限。"
        )
        return refusal(code, text + (f"您的限额将在 {resets_at} 重置。" if resets_at else ""))
    text = f"Usage limit reached for {number} {unit}"
    if code == "1310":
        text = "Weekly/Monthly Limit Exhausted"
    elif code != "1308" and code in KNOWN:
        text = KNOWN[code][1]
    return refusal(code, text + (f". Your limit will reset at {resets_at}" if resets_at else ""))


def wall_time(unix: float) -> datetime:
    """A moment on the provider's wall, whose stamps tell no zone: UTC+8."""
    return datetime.fromtimestamp(unix, UTC).astimezone(_WALL)


def trace_id(unix: float, count: int) -> str:
    """A trace id of this moment: it begins with the wall time."""
    return f"{wall_time(unix):%Y%m%d%H%M%S}{count:018x}"
