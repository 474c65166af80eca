"""The table that names faults: business code, then HTTP status, then text; the first row that fits wins.

A row fits if every column it fills in fits. The codes of four digits are Z.AI's (docs.z.ai, and what its users
reported); words are the codes of OpenAI, Anthropic, OpenRouter, DashScope, Gemini and llama.cpp. A code that only says
"bad parameters" says less than the text beside it, so those rows stand behind the texts. Among the texts a malformed
request comes before one that is too long: compressing a history that is broken breaks it further.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from typing import Final

import msgspec

from .fault_evidence import Evidence
from .fault_kinds import FaultKind
from .fault_texts import (
    AFFORD,
    AUTH,
    BILLING,
    CACHE,
    CONCURRENCY,
    EFFORT,
    FAIR_USE,
    IMAGE,
    KEY,
    LEVEL,
    LONG_CONTEXT,
    MALFORMED,
    MANDATORY,
    NAME,
    NO_MEMORY,
    NO_MODEL,
    NOBODY_MAY,
    NOT_IN_PLAN,
    ONE_TOO_LARGE,
    OVERFLOW,
    OVERLOADED,
    PASSING,
    POLICY,
    RATE,
    RELAYED,
    ROLES,
    SCHEMA,
    SIGNATURE,
    SOON,
    TIMED_OUT,
    WALL,
    WINDOW,
)
from .limit_texts import blames_answer


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `statuses` with None also fits an error that states no status, as those inside streams."""

    kind: FaultKind
    codes: frozenset[str] | None = None
    statuses: Container[int | None] | None = None
    text: re.Pattern[str] | Callable[[str], bool] | None = None

    def fits(self, evidence: Evidence, status: int | None) -> bool:
        """Whether every filled column fits."""
        return (
            (self.codes is None or not self.codes.isdisjoint(evidence.codes))
            and (self.statuses is None or status in self.statuses)
            and self._is_said(evidence.text)
        )

    def _is_said(self, said: str) -> bool:
        match self.text:
            case None:
                return True
            case re.Pattern() as pattern:
                return pattern.search(said) is not None
            case asks:
                return asks(said)


def _codes(*codes: int | str) -> frozenset[str]:
    return frozenset(str(code) for code in codes)


_ASKED: Final = frozenset({None, 400, 422})
_FOUND: Final = frozenset({None, 400, 404, 422})
"""Some say of a part of the request that it was not found."""
_GRAMMAR: Final = frozenset({None, 400, 422, 500})
_ANSWERED: Final = frozenset({None, 400, 413, 422, 500})
_PAID: Final = frozenset({None, 400, 402, 403, 429})
_LIMITED: Final = frozenset({None, 429, 503, 529})
_KEYED: Final = frozenset({None, 400, 403})
_MODELLED: Final = frozenset({None, 400, 403, 404})

TABLE: Final[tuple[Row, ...]] = (
    # Z.AI's numbers
    Row(kind=FaultKind.AUTH, codes=_codes(1000, 1001, 1002, 1003, 1004)),
    Row(kind=FaultKind.LOCKED, codes=_codes(1110, 1111, 1112, 1121, 1313)),
    Row(kind=FaultKind.NO_BALANCE, codes=_codes(1113)),
    Row(kind=FaultKind.CONTEXT_OVERFLOW, codes=_codes(1261)),
    Row(kind=FaultKind.MODEL_UNKNOWN, codes=_codes(1211)),
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
    # An aggregator hands on what it was told: those words are about its account, not about ours.
    Row(kind=FaultKind.UPSTREAM_LIMITED, statuses=frozenset({429}), text=RELAYED),
    # Words. `invalid_request_error` is none of them: it stands on overflows as on typing errors.
    Row(kind=FaultKind.CONTEXT_OVERFLOW, codes=_codes("context_length_exceeded", "exceed_context_size_error")),
    Row(
        kind=FaultKind.NO_BALANCE,
        codes=_codes(
            "insufficient_quota",
            "billing_not_active",
            "billing_error",
            "payment_required",
            "credit_balance_exhausted",
            "terminal_quota_exhausted",
            "member_spend_cap_exceeded",
            "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded",
            "Arrearage",
        ),
    ),
    Row(kind=FaultKind.AUTH, codes=_codes("invalid_api_key", "authentication_error", "InvalidApiKey")),
    Row(kind=FaultKind.FORBIDDEN, codes=_codes("permission_error")),
    Row(kind=FaultKind.MODEL_UNKNOWN, codes=_codes("model_not_found", "ModelNotFound")),
    Row(
        kind=FaultKind.CONTENT_POLICY,
        codes=_codes("content_filter", "content_policy_violation", "DataInspectionFailed", "data_inspection_failed"),
    ),
    Row(kind=FaultKind.PAYLOAD_TOO_LARGE, codes=_codes("request_too_large")),
    Row(kind=FaultKind.OVERLOADED, codes=_codes("overloaded_error", "unavailable_error")),
    Row(kind=FaultKind.RATE, codes=_codes("Throttling", "Throttling.RateQuota", "ThrottlingException")),
    Row(
        kind=FaultKind.IMAGE_REFUSED,
        codes=_codes("image_parse_error", "image_too_large", "invalid_image_url", "invalid_image_format"),
    ),
    Row(kind=FaultKind.SIGNATURE_REFUSED, codes=_codes("invalid_encrypted_content", "thinking_signature_invalid")),
    Row(kind=FaultKind.REASONING_REFUSED, codes=_codes("invalid_reasoning_effort"), text=LEVEL),
    Row(kind=FaultKind.REASONING_MANDATORY, codes=_codes("invalid_reasoning_effort")),
    Row(kind=FaultKind.SCHEMA_REFUSED, codes=_codes("invalid_function_parameters")),
    # Text that says more than the status it comes with
    Row(kind=FaultKind.IMAGE_REFUSED, statuses=_ASKED, text=IMAGE),
    Row(kind=FaultKind.SIGNATURE_REFUSED, statuses=_FOUND, text=SIGNATURE),
    Row(kind=FaultKind.REASONING_MANDATORY, statuses=_ASKED, text=MANDATORY),
    Row(kind=FaultKind.CACHE_REFUSED, statuses=_FOUND, text=CACHE),
    Row(kind=FaultKind.SCHEMA_REFUSED, statuses=_GRAMMAR, text=SCHEMA),
    Row(kind=FaultKind.NAME_REFUSED, statuses=_ASKED, text=NAME),
    Row(kind=FaultKind.ROLES_REFUSED, statuses=_GRAMMAR, text=ROLES),
    Row(kind=FaultKind.MALFORMED_HISTORY, statuses=_ASKED, text=MALFORMED),
    Row(kind=FaultKind.REASONING_REFUSED, statuses=_ASKED, text=EFFORT),
    Row(kind=FaultKind.OVERLOADED, text=NO_MEMORY),
    Row(kind=FaultKind.OUTPUT_TOO_LONG, statuses=_ASKED, text=blames_answer),
    Row(kind=FaultKind.CONTEXT_OVERFLOW, statuses=frozenset({None, 413, 429}), text=ONE_TOO_LARGE),
    Row(kind=FaultKind.CONTEXT_OVERFLOW, statuses=frozenset({400, 403, 429}), text=LONG_CONTEXT),
    Row(kind=FaultKind.CONTEXT_OVERFLOW, statuses=_ANSWERED, text=OVERFLOW),
    Row(kind=FaultKind.AUTH, statuses=_KEYED, text=KEY),
    Row(kind=FaultKind.LOCKED, statuses=_PAID, text=FAIR_USE),
    Row(kind=FaultKind.QUOTA, statuses=_PAID, text=WINDOW),
    Row(kind=FaultKind.UNAFFORDABLE, statuses=frozenset({None, 402}), text=AFFORD),
    Row(kind=FaultKind.RATE, statuses=frozenset({402, 429}), text=SOON),
    Row(kind=FaultKind.MODEL_NOT_IN_PLAN, statuses=_PAID, text=NOT_IN_PLAN),
    Row(kind=FaultKind.NO_BALANCE, statuses=_PAID, text=BILLING),
    Row(kind=FaultKind.CONCURRENCY, statuses=_LIMITED, text=CONCURRENCY),
    Row(kind=FaultKind.OVERLOADED, statuses=_LIMITED, text=OVERLOADED),
    Row(kind=FaultKind.CONTENT_POLICY, statuses=_ASKED, text=POLICY),
    Row(kind=FaultKind.PROVIDER_POLICY, statuses=_MODELLED, text=NOBODY_MAY),
    Row(kind=FaultKind.MODEL_UNKNOWN, statuses=frozenset({None, 400, 404}), text=NO_MODEL),
    # Z.AI's numbers for parameters
    Row(kind=FaultKind.MALFORMED_HISTORY, codes=_codes(1214)),
    Row(kind=FaultKind.BAD_REQUEST, codes=_codes(1210, 1212, 1213, 1215, 1231)),
    Row(kind=FaultKind.SERVER_ERROR, statuses=frozenset({400}), text=PASSING),
    Row(kind=FaultKind.BLOCKED, statuses=frozenset({403}), text=WALL),
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
    Row(kind=FaultKind.RATE, codes=_codes("rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED")),
    Row(kind=FaultKind.TIMEOUT, codes=_codes("timeout_error", "DEADLINE_EXCEEDED")),
    Row(
        kind=FaultKind.SERVER_ERROR,
        codes=_codes("api_error", "server_error", "internal_server_error", "INTERNAL", "UNAVAILABLE"),
    ),
    Row(kind=FaultKind.RATE, text=RATE),
    Row(kind=FaultKind.AUTH, text=AUTH),
    Row(kind=FaultKind.TIMEOUT, text=TIMED_OUT),
    Row(kind=FaultKind.SERVER_ERROR, text=PASSING),
)
