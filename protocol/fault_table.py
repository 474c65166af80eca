"""The table that names faults: business code, then HTTP status, then text; the first row that fits wins.

A row fits if every column it fills in fits. The codes of four digits are Z.AI's (docs.z.ai, and what its users
reported); words are the codes of OpenAI, Anthropic, OpenRouter and llama.cpp. Texts are matched on lower case.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

import msgspec

from .fault_evidence import Evidence
from .fault_kinds import FaultKind


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `statuses` with None also fits an error that states no status, as those inside streams."""

    kind: FaultKind
    codes: frozenset[str] | None = None
    statuses: Container[int | None] | None = None
    text: re.Pattern[str] | None = None

    def fits(self, evidence: Evidence, status: int | None) -> bool:
        """Whether every filled column fits."""
        return (
            (self.codes is None or not self.codes.isdisjoint(evidence.codes))
            and (self.statuses is None or status in self.statuses)
            and (self.text is None or self.text.search(evidence.text) is not None)
        )


def _codes(*codes: int | str) -> frozenset[str]:
    return frozenset(str(code) for code in codes)


def _any(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(phrase) for phrase in phrases))


_OVERFLOW: Final = _any(
    "tokens in request more than max tokens allowed",
    "prompt exceeds max length",
    "prompt is too long",
    "input is too long",
    "context length",
    "context size",
    "context window",
    "maximum context",
    "max_model_len",
    "maximum allowed input length",
    "input token count",
    "too many input tokens",
    "reduce the length of",
    "超过最大长度",
    "上下文长度",
)
_MALFORMED: Final = _any(
    "must have non-empty content",
    "messages must have non-empty",
    "invalid_request_body",
    "text content blocks must be non-empty",
    "content field is required",
    "at least one message is required",
    "no user query found",
    "must be followed by tool messages",
    "must be a response to a preceding message with 'tool_calls'",
    "tool_use` ids were found without `tool_result`",
    "unexpected `tool_use_id`",
)
_NO_MEMORY: Final = _any("memory guard", "out of memory", "insufficient memory")
_BILLING: Final = _any(
    "insufficient balance",
    "insufficient credits",
    "insufficient_quota",
    "credit balance",
    "no resource package",
    "payment required",
    "exceeded your current quota",
    "out of funds",
    "can only afford",
    "余额不足",
)
_WINDOW: Final = _any("usage limit reached for", "limit exhausted", "will reset at", "使用上限", "限额将在")
_SOON: Final = re.compile(r"(?:try again|retry) (?:in|after)\b")
_FAIR_USE: Final = _any("fair usage policy", "fair use policy")
_CONCURRENCY: Final = _any("high concurrency", "too many concurrent", "concurrency limit", "reduce concurrency", "并发")
_OVERLOADED: Final = _any(
    "overloaded", "at capacity", "over capacity", "server overload", "no capacity", "访问量过大", "loading model"
)
_RATE: Final = _any("rate limit", "rate_limit", "too many requests", "per minute", "throttl", "速率限制")
_PASSING: Final = _any("please retry later", "try again later", "network error", "请稍后重试", "请稍后再试")
_NO_MODEL: Final = re.compile(
    r"\bmodel\b.{0,200}\b(?:not found|not exist|is not available)"
    r"|no such model|unknown model|model_not_found|no endpoints found|模型不存在"
)
_POLICY: Final = _any("content_filter", "content filter", "responsibleaipolicy", "unsafe or sensitive", "敏感内容")
_WALL: Final = _any("<html", "<!doctype", "cloudflare", "access denied")
_TIMED_OUT: Final = _any("timed out", "timeout")
_AUTH: Final = _any("invalid api key", "incorrect api key", "authentication", "unauthorized", "token expired")

_ASKED: Final = frozenset({None, 400, 422})
_ANSWERED: Final = frozenset({None, 400, 413, 422, 500})
_PAID: Final = frozenset({None, 400, 402, 403, 429})
_LIMITED: Final = frozenset({None, 429, 503, 529})

TABLE: Final[tuple[Row, ...]] = (
    # Z.AI's numbers
    Row(kind=FaultKind.AUTH, codes=_codes(1000, 1001, 1002, 1003, 1004)),
    Row(kind=FaultKind.LOCKED, codes=_codes(1110, 1111, 1112, 1121, 1313)),
    Row(kind=FaultKind.NO_BALANCE, codes=_codes(1113)),
    Row(kind=FaultKind.CONTEXT_OVERFLOW, codes=_codes(1210), text=_OVERFLOW),
    Row(kind=FaultKind.CONTEXT_OVERFLOW, codes=_codes(1261)),
    Row(kind=FaultKind.MODEL_UNKNOWN, codes=_codes(1211)),
    Row(kind=FaultKind.MALFORMED_HISTORY, codes=_codes(1214)),
    Row(kind=FaultKind.BAD_REQUEST, codes=_codes(1210, 1212, 1213, 1215, 1231)),
    Row(kind=FaultKind.FORBIDDEN, codes=_codes(1220)),
    Row(kind=FaultKind.NOT_FOUND, codes=_codes(1221, 1222)),
    Row(kind=FaultKind.CONTENT_POLICY, codes=_codes(1300, 1301)),
    Row(kind=FaultKind.CONCURRENCY, codes=_codes(1302)),
    Row(kind=FaultKind.RATE, codes=_codes(1303)),
    Row(kind=FaultKind.OVERLOADED, codes=_codes(1305)),
    Row(kind=FaultKind.QUOTA, codes=_codes(1304, 1308, 1310, *range(1316, 1322))),
    Row(kind=FaultKind.PLAN_EXPIRED, codes=_codes(1309)),
    Row(kind=FaultKind.MODEL_NOT_IN_PLAN, codes=_codes(1311)),
    Row(kind=FaultKind.MODEL_BUSY, codes=_codes(1312)),
    Row(kind=FaultKind.SERVER_ERROR, codes=_codes(1100, 1120, 1200, 1230, 1234)),
    # Words. `invalid_request_error` is none of them: it stands on overflows as on typing errors.
    Row(kind=FaultKind.CONTEXT_OVERFLOW, codes=_codes("context_length_exceeded", "exceed_context_size_error")),
    Row(kind=FaultKind.NO_BALANCE, codes=_codes("insufficient_quota", "billing_not_active", "billing_error")),
    Row(kind=FaultKind.AUTH, codes=_codes("invalid_api_key", "authentication_error")),
    Row(kind=FaultKind.FORBIDDEN, codes=_codes("permission_error")),
    Row(kind=FaultKind.MODEL_UNKNOWN, codes=_codes("model_not_found")),
    Row(kind=FaultKind.CONTENT_POLICY, codes=_codes("content_filter", "content_policy_violation")),
    Row(kind=FaultKind.PAYLOAD_TOO_LARGE, codes=_codes("request_too_large")),
    Row(kind=FaultKind.OVERLOADED, codes=_codes("overloaded_error", "unavailable_error")),
    # Text that says more than the status it comes with
    Row(kind=FaultKind.MALFORMED_HISTORY, statuses=_ASKED, text=_MALFORMED),
    Row(kind=FaultKind.OVERLOADED, text=_NO_MEMORY),
    Row(kind=FaultKind.CONTEXT_OVERFLOW, statuses=_ANSWERED, text=_OVERFLOW),
    Row(kind=FaultKind.LOCKED, statuses=_PAID, text=_FAIR_USE),
    Row(kind=FaultKind.QUOTA, statuses=_PAID, text=_WINDOW),
    Row(kind=FaultKind.RATE, statuses=frozenset({402, 429}), text=_SOON),
    Row(kind=FaultKind.NO_BALANCE, statuses=_PAID, text=_BILLING),
    Row(kind=FaultKind.CONCURRENCY, statuses=_LIMITED, text=_CONCURRENCY),
    Row(kind=FaultKind.OVERLOADED, statuses=_LIMITED, text=_OVERLOADED),
    Row(kind=FaultKind.CONTENT_POLICY, statuses=_ASKED, text=_POLICY),
    Row(kind=FaultKind.MODEL_UNKNOWN, statuses=frozenset({None, 400, 404}), text=_NO_MODEL),
    Row(kind=FaultKind.SERVER_ERROR, statuses=frozenset({400}), text=_PASSING),
    Row(kind=FaultKind.BLOCKED, statuses=frozenset({403}), text=_WALL),
    # Status alone
    Row(kind=FaultKind.AUTH, statuses=frozenset({401})),
    Row(kind=FaultKind.NO_BALANCE, statuses=frozenset({402})),
    Row(kind=FaultKind.FORBIDDEN, statuses=frozenset({403, 434})),
    Row(kind=FaultKind.NOT_FOUND, statuses=frozenset({301, 302, 303, 307, 308, 404, 405, 410})),
    Row(kind=FaultKind.TIMEOUT, statuses=frozenset({408, 504, 522, 524})),
    Row(kind=FaultKind.PAYLOAD_TOO_LARGE, statuses=frozenset({413, 435})),
    Row(kind=FaultKind.SERVER_ERROR, statuses=frozenset({409, 425})),
    Row(kind=FaultKind.RATE, statuses=frozenset({429})),
    Row(kind=FaultKind.OVERLOADED, statuses=frozenset({503, 529})),
    Row(kind=FaultKind.BAD_REQUEST, statuses=range(400, 500)),
    Row(kind=FaultKind.SERVER_ERROR, statuses=range(500, 600)),
    # Words and text of errors that come without a status
    Row(kind=FaultKind.RATE, codes=_codes("rate_limit_error", "rate_limit_exceeded")),
    Row(kind=FaultKind.TIMEOUT, codes=_codes("timeout_error")),
    Row(kind=FaultKind.SERVER_ERROR, codes=_codes("api_error", "server_error", "internal_server_error")),
    Row(kind=FaultKind.RATE, text=_RATE),
    Row(kind=FaultKind.AUTH, text=_AUTH),
    Row(kind=FaultKind.TIMEOUT, text=_TIMED_OUT),
    Row(kind=FaultKind.SERVER_ERROR, text=_PASSING),
)
