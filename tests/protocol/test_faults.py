"""The fault table, row by row, with bodies as providers send them; and bodies that nobody should send."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.protocol.fault_evidence import MAX_MESSAGE_CHARS, read_evidence
from covey.protocol.fault_kinds import OUTCOME
from covey.protocol.fault_table import TABLE
from covey.protocol.faults import (
    FaultAction,
    FaultKind,
    FaultScope,
    classify,
    fault_named,
    retry_after_of,
    retry_after_s,
)
from covey.protocol.retry_times import MAX_RETRY_AFTER_S, said_s

TRACE: Final = "20260912001903f3a1c09b7d5e4f21"
K = FaultKind


def openai(code: object, message: str, **more: object) -> bytes:
    return json.dumps({"error": {"code": code, "message": message, **more}}, ensure_ascii=False).encode()


def anthropic(kind: str, message: str, **more: object) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message, **more}}).encode()


ZAI: Final = [
    (1000, 401, "Authentication Failed", K.AUTH),
    (1001, 401, "Authentication parameter not received in Header, unable to authenticate", K.AUTH),
    (1002, 401, "Invalid Authentication Token, please confirm the correct transmission", K.AUTH),
    (1003, 401, "Authentication Token expired, please regenerate/obtain", K.AUTH),
    (1004, 401, "Authentication failed with the provided Authentication Token", K.AUTH),
    (1100, 429, "Account Read/Write", K.SERVER_ERROR),
    (1110, 429, "Your account is currently inactive. Please check your account information", K.LOCKED),
    (1111, 429, "Your account does not exist", K.LOCKED),
    (1112, 429, "Your account has been locked, please contact customer service to unlock", K.LOCKED),
    (1113, 429, "Insufficient balance or no resource package. Please recharge.", K.NO_BALANCE),
    (1120, 429, "Unable to successfully access your account, please try again later", K.SERVER_ERROR),
    (1121, 429, "The account has violated the rules and has been locked", K.LOCKED),
    (1200, 500, "API Call Error", K.SERVER_ERROR),
    (1210, 400, "Incorrect API call parameters, please check documentation", K.BAD_REQUEST),
    (1210, 400, "API parameter error: Tokens in request more than max tokens allowed", K.CONTEXT_OVERFLOW),
    (1211, 400, "Model does not exist, please check the model code", K.MODEL_UNKNOWN),
    (1212, 400, "Current model does not support `stream` call method", K.BAD_REQUEST),
    (1213, 400, "`messages` parameter was not properly received", K.BAD_REQUEST),
    (1214, 400, "The messages parameter is illegal. Please check the documentation.", K.MALFORMED_HISTORY),
    (1215, 400, "`a` and `b` cannot be set simultaneously, please check the documentation", K.BAD_REQUEST),
    (1220, 403, "You do not have permission to access the API", K.FORBIDDEN),
    (1221, 404, "API has been taken offline", K.NOT_FOUND),
    (1222, 404, "API does not exist", K.NOT_FOUND),
    (1230, 500, "API call process error", K.SERVER_ERROR),
    (1231, 400, "You already have a request with this request_id", K.BAD_REQUEST),
    (1234, 500, "Network error, error id: 2026091200190, please contact customer service", K.SERVER_ERROR),
    (1234, 400, "Network error, error id: 2026091200190, please contact customer service", K.SERVER_ERROR),
    (1261, 400, "Prompt exceeds max length", K.CONTEXT_OVERFLOW),
    (1300, 400, "API call was blocked due to policy", K.CONTENT_POLICY),
    (1301, 400, "System detected potentially unsafe or sensitive content in input or generation.", K.CONTENT_POLICY),
    (1210, 400, "API 调用参数有误,请检查文档。", K.BAD_REQUEST),
    (1210, 400, "输入长度超过最大长度限制", K.CONTEXT_OVERFLOW),
    (1210, 400, "API parameter error: max_tokens must be less than or equal to 98304", K.OUTPUT_TOO_LONG),
    (1213, 400, "未正常接收到prompt参数。", K.BAD_REQUEST),
    (1214, 400, "messages 参数非法。请检查文档。", K.MALFORMED_HISTORY),
    (1214, 400, "roles must alternate", K.ROLES_REFUSED),
    (1261, 400, "Prompt 超长", K.CONTEXT_OVERFLOW),
    (
        1301,
        400,
        "系统检测到输入或生成内容可能包含不安全或敏感内容,请您避免输入易产生敏感内容的提示语。",
        K.CONTENT_POLICY,
    ),
    (1001, 401, "Header中未收到Authorization参数,无法进行身份验证。", K.AUTH),
    (1211, 400, "模型不存在,请检查模型代码。", K.MODEL_UNKNOWN),
    (1302, 429, "Rate limit reached for requests", K.CONCURRENCY),
    (
        1302,
        429,
        "High concurrency usage of this API, please reduce concurrency or contact customer service",
        K.CONCURRENCY,
    ),
    (1302, 429, "您当前使用该API的并发数过高，请降低并发，或联系客服增加限额。", K.CONCURRENCY),
    (1303, 429, "High frequency usage of this API, please reduce frequency", K.RATE),
    (1304, 429, "Daily call limit for this API reached", K.QUOTA),
    (1305, 429, "The service may be temporarily overloaded, please try again later", K.OVERLOADED),
    (1305, 529, "The service may be temporarily overloaded, please try again later", K.OVERLOADED),
    (1308, 429, "Usage limit reached for 5 hour. Your limit will reset at 2026-09-04 19:01:25", K.QUOTA),
    (1308, 429, "已达到 5 小时的使用上限。您的限额将在 2026-08-24 00:09:21 重置。", K.QUOTA),
    (1309, 429, "Your GLM Coding Plan has expired", K.PLAN_EXPIRED),
    (1310, 429, "Weekly/Monthly Limit Exhausted. Your limit will reset at 2026-09-12 00:35:41", K.QUOTA),
    (1311, 429, "The current subscription plan does not include access to glm-5.3", K.MODEL_NOT_IN_PLAN),
    (1312, 429, "This model is busy at the moment, please switch to another", K.MODEL_BUSY),
    (
        1313,
        429,
        "Your account's current usage pattern does not comply with the Fair Usage Policy. "
        "To restore access, please submit a request.",
        K.LOCKED,
    ),
    (1113, 429, "余额不足或无可用资源包,请充值。", K.NO_BALANCE),
    (1303, 429, "您当前使用该API的频率过高,请降低频率。", K.RATE),
    (1305, 429, "该模型当前访问量过大,请您稍后再试。", K.OVERLOADED),
    (1309, 429, "您的套餐已到期。", K.PLAN_EXPIRED),
    (1310, 429, "已达到每周/每月使用上限。您的限额将在 2026-09-12 00:35:41 重置。", K.QUOTA),
    (1311, 429, "当前订阅套餐暂未开放该模型的权限。", K.MODEL_NOT_IN_PLAN),
    (1313, 429, "您的账户当前使用模式不符合公平使用政策,如需恢复请提交申请。", K.LOCKED),
    *(
        (code, 429, f"Usage limit reached for 7 day ({code}). It will reset at 2026-09-12 00:35:41", K.QUOTA)
        for code in range(1316, 1322)
    ),
]


@pytest.mark.parametrize(("code", "status", "message", "kind"), ZAI)
def test_a_zai_code_is_named_in_every_envelope(code: int, status: int, message: str, kind: FaultKind) -> None:
    bracketed = f"[{code}][{message}][{TRACE}]"
    bodies = {
        "OpenAI shape, text": openai(str(code), message),
        "OpenAI shape, number": openai(code, message),
        "Anthropic shape with code": anthropic("rate_limit_error", bracketed, code=str(code)),
        "Anthropic shape, brackets alone": anthropic("rate_limit_error", bracketed),
        "Anthropic shape without trace": anthropic("invalid_request_error", f"[{code}][{message}]"),
        "flat": json.dumps({"code": code, "msg": message, "success": False}).encode(),
        "inside an upstream's message": openai(
            status, "Provider returned error", metadata={"raw": openai(code, message).decode()}
        ),
        "inside a message": openai(None, openai(str(code), message).decode()),
        "quoted by a gateway": openai(
            None, f"litellm.RateLimitError: upstream said {openai(str(code), message).decode()}"
        ),
    }

    for shape, body in bodies.items():
        for stated in (status, None, 200):
            fault = classify(status=stated, body=body)
            assert (fault.kind, fault.code) == (kind, str(code)), shape
            if "quoted" not in shape:
                assert fault.message == message[:MAX_MESSAGE_CHARS], shape


class ErrorAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error as a provider sends it; no status means that it stands inside a stream."""

    situation: str
    status: int | None
    kind: FaultKind
    body: str
    limit_tokens: int | None = None


ANSWERS: Final = msgspec.json.decode(
    (Path(__file__).parent / "corpus" / "faults.json").read_bytes(), type=list[ErrorAnswer]
)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.situation)
def test_an_answer_is_named(answer: ErrorAnswer) -> None:
    fault = classify(status=answer.status, body=answer.body.encode())

    assert fault.kind is answer.kind
    assert (fault.scope, fault.action) == OUTCOME[answer.kind]
    assert fault.limit_tokens == answer.limit_tokens
    assert fault.message


def test_every_row_of_the_table_decides_some_answer() -> None:
    answers = [(answer.status, answer.body.encode()) for answer in ANSWERS]
    answers += [(status, openai(code, message)) for code, status, message, _ in ZAI]
    deciding = {
        next((place for place, row in enumerate(TABLE) if row.fits(evidence, status or evidence.status)), None)
        for status, body in answers
        for evidence in [read_evidence(body)]
    }

    idle = [TABLE[place] for place in range(len(TABLE)) if place not in deciding]

    assert idle == []


@pytest.mark.parametrize(
    ("kind", "scope", "action"),
    [
        (K.CONCURRENCY, FaultScope.ACCOUNT, FaultAction.WAIT),
        (K.OVERLOADED, FaultScope.ENDPOINT, FaultAction.WAIT),
        (K.QUOTA, FaultScope.ACCOUNT, FaultAction.WAIT),
        (K.NO_BALANCE, FaultScope.ACCOUNT, FaultAction.STOP),
        (K.LOCKED, FaultScope.ACCOUNT, FaultAction.STOP),
        (K.AUTH, FaultScope.CREDENTIAL, FaultAction.ROTATE),
        (K.CONTEXT_OVERFLOW, FaultScope.REQUEST, FaultAction.COMPRESS),
        (K.MALFORMED_HISTORY, FaultScope.REQUEST, FaultAction.FIX),
        (K.BAD_REQUEST, FaultScope.REQUEST, FaultAction.STOP),
        (K.SERVER_ERROR, FaultScope.ENDPOINT, FaultAction.RETRY),
        (K.OUT_OF_FILES, FaultScope.LOCAL, FaultAction.RETRY),
        (K.UNKNOWN, FaultScope.REQUEST, FaultAction.RETRY),
    ],
)
def test_a_kind_says_whom_it_concerns_and_whose_move_it_is(
    kind: FaultKind, scope: FaultScope, action: FaultAction
) -> None:
    fault = fault_named(kind, "as named\nby us")

    assert (fault.scope, fault.action, fault.message) == (scope, action, "as named by us")


def test_every_kind_has_an_outcome() -> None:
    assert set(OUTCOME) == set(FaultKind)


def test_the_page_of_faults_has_every_kind_with_its_outcome() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
    rows = [[cell.strip(" `") for cell in line.split("|")[1:4]] for line in page.partition("## Kinds")[2].splitlines()]

    stated = {kind: (scope, action) for kind, scope, action in (row for row in rows if len(row) == 3)}

    assert {kind: stated.get(kind) for kind in K} == {kind: OUTCOME[kind] for kind in K}


NOW: Final = datetime(2026, 9, 11, 14, 45, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("message", "reset"),
    [
        pytest.param(
            "[1308][Usage limit reached for 5 hour. Your limit will reset at 2026-09-12 00:35:41][20260912001903]",
            "2026-09-11T16:35:41+00:00",
            id="a stamp without zone is UTC+8",
        ),
        pytest.param(
            "[1308][已达到 5 小时的使用上限。您的限额将在 2026-08-24 00:09:21 重置。]",
            "2026-08-23T16:09:21+00:00",
            id="the same in Chinese",
        ),
        pytest.param(
            "[1308][Your limit will reset at 2026-09-12T00:35:41Z]", "2026-09-12T00:35:41+00:00", id="a stamp with Z"
        ),
        pytest.param(
            "[1308][Your limit will reset at 2026-09-12 00:35:41 +0200]",
            "2026-09-11T22:35:41+00:00",
            id="a stamp with an offset",
        ),
        pytest.param("[1308][Usage limit reached for 5 hour.]", None, id="no stamp"),
        pytest.param("[1308][Your limit will reset at 2026-13-45 99:00:00]", None, id="an impossible stamp"),
        pytest.param("[1302][Rate limit reached, at 2026-09-12 00:35:41]", None, id="a stamp of another kind of fault"),
    ],
)
def test_a_used_up_window_tells_when_it_resets(message: str, reset: str | None) -> None:
    fault = classify(status=429, body=anthropic("rate_limit_error", message))

    assert fault.resets_at == (datetime.fromisoformat(reset).timestamp() if reset else None)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 0.5 ", 0.5),
        ("0", 0.0),
        ("Fri, 11 Sep 2026 14:46:30 GMT", 90.0),
        ("Friday, 11-Sep-26 14:46:30 GMT", 90.0),
        ("Fri, 11 Sep 2026 22:46:30 +0800", 90.0),
        ("Fri, 11 Sep 2026 14:00:00 GMT", 0.0),
        ("504641000", MAX_RETRY_AFTER_S),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_S),
        ("-1", None),
        ("1e9", None),
        ("nan", None),
        ("inf", None),
        ("٣", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("9" * 400, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, now=NOW) == seconds
    assert classify(status=429, body=b"", retry_after=header, now=NOW).retry_after_s == seconds


def test_a_date_needs_to_know_the_time() -> None:
    assert retry_after_s("Fri, 11 Sep 2026 14:46:30 GMT", now=None) is None


@settings(max_examples=300)
@given(st.text(max_size=70), st.none() | st.just(NOW))
def test_no_retry_after_raises(header: str, now: float | None) -> None:
    seconds = retry_after_s(header, now=now)

    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER_S


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "2", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "7", "retry-after-ms": "504641000"}, 7.0),
        ({"retry-after": "Fri, 11 Sep 2026 14:46:30 GMT", "retry-after-ms": "90500"}, 90.5),
        ({"retry-after": "Fri, 11 Sep 2026 14:46:30 GMT", "retry-after-ms": "soon"}, 90.0),
        ({"retry-after-ms": "9" * 18}, MAX_RETRY_AFTER_S),
        ({"retry-after-ms": "-5"}, None),
        ({"x-ratelimit-reset": "1741305600000"}, None),
    ],
)
def test_milliseconds_are_finer_than_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(retry_after_of(headers), now=NOW) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("please try again in 20ms.", 0.02),
        ("please try again in 6m0s. visit", 360.0),
        ("please try again in 1.5s", 1.5),
        ("please retry in 41.07s.", 41.07),
        ("try again in 20 minutes", 1200.0),
        ("try again in 1h30m", 5400.0),
        ("retry after 30 seconds", 30.0),
        ("try again in 999999999 hours", MAX_RETRY_AFTER_S),
        ("try again in a moment", None),
        ("try again in 7 months", None),
        ("takes 20 seconds", None),
    ],
)
def test_a_text_tells_when_to_ask_again(text: str, seconds: float | None) -> None:
    assert said_s(text) == pytest.approx(seconds)


def test_the_header_comes_before_the_text() -> None:
    body = openai("rate_limit_exceeded", "Please try again in 20s.")

    assert classify(status=429, body=body).retry_after_s == 20.0
    assert classify(status=429, body=body, retry_after="3").retry_after_s == 3.0


def test_the_end_of_a_plan_s_window_is_no_time_to_ask_again() -> None:
    body = openai("1308", "Usage limit reached for 5 hour. Please try again in 20s.")

    assert classify(status=429, body=body).retry_after_s is None


# --- too long, or not ------------------------------------------------------------------------------------------------

OVERFLOW_TEXT: Final = openai(None, "Prompt exceeds max length")
LOCAL_WINDOW: Final = openai(None, "request (9000 tokens) exceeds the available context size (8192 tokens)")


@pytest.mark.parametrize(
    ("body", "sent", "window", "kind"),
    [
        pytest.param(OVERFLOW_TEXT, None, None, K.CONTEXT_OVERFLOW, id="nothing is known"),
        pytest.param(OVERFLOW_TEXT, 5_700, None, K.CONTEXT_OVERFLOW, id="no window is known"),
        pytest.param(OVERFLOW_TEXT, None, 200_000, K.CONTEXT_OVERFLOW, id="the size is not known"),
        pytest.param(OVERFLOW_TEXT, 5_700, 200_000, K.BAD_REQUEST, id="far below the window"),
        pytest.param(OVERFLOW_TEXT, 99_999, 200_000, K.BAD_REQUEST, id="a little below half of the window"),
        pytest.param(OVERFLOW_TEXT, 100_000, 200_000, K.CONTEXT_OVERFLOW, id="half of it: estimates are rough"),
        pytest.param(OVERFLOW_TEXT, 400_000, 200_000, K.CONTEXT_OVERFLOW, id="far above it"),
        pytest.param(openai(1261, "Prompt too long"), 5_700, 200_000, K.BAD_REQUEST, id="whatever the code says"),
        pytest.param(LOCAL_WINDOW, 7_000, 131_072, K.CONTEXT_OVERFLOW, id="a server with a smaller window"),
        pytest.param(LOCAL_WINDOW, 4_000, 131_072, K.BAD_REQUEST, id="far below that one, too"),
        pytest.param(LOCAL_WINDOW, 4_000, None, K.BAD_REQUEST, id="far below the one that is named"),
        pytest.param(
            openai(None, "prompt and max_tokens exceed the context window"),
            5_700,
            65_536,
            K.OUTPUT_TOO_LONG,
            id="the answer is what does not fit",
        ),
        pytest.param(openai(None, "error"), 190_000, 200_000, K.BAD_REQUEST, id="a short text is never an overflow"),
        pytest.param(
            openai(None, "messages must have non-empty content"),
            190_000,
            200_000,
            K.MALFORMED_HISTORY,
            id="nor is a malformed body of a long session",
        ),
    ],
)
def test_only_what_can_be_too_long_is_called_so(
    body: bytes, sent: int | None, window: int | None, kind: FaultKind
) -> None:
    assert classify(status=400, body=body, sent_tokens=sent, window_tokens=window).kind is kind


# --- unknown ---------------------------------------------------------------------------------------------------------


def fingerprint(message: str, status: int | None = None, **more: object) -> str:
    fault = classify(status=status, body=openai(None, message, **more))
    assert fault.kind is K.UNKNOWN
    assert fault.fingerprint is not None
    return fault.fingerprint


@pytest.mark.parametrize(
    "again",
    [
        "Flux capacitor 8 of job job_9f8e7d is misaligned by 2.5 degrees, see https://b.example/x?id=2 in 'beta'",
        "flux capacitor 77 of job 550e8400-e29b-41d4-a716-446655440000 is misaligned by 12 degrees, "
        'see http://10.0.0.1:80 in "alpha beta"',
    ],
)
def test_the_same_error_with_other_numbers_has_the_same_fingerprint(again: str) -> None:
    first = "Flux capacitor 1 of job job_0a1b2c is misaligned by 1.0 degrees, see https://a.example/y in 'alpha'"

    assert fingerprint(again) == fingerprint(first)


def test_other_errors_have_other_fingerprints() -> None:
    faults = [
        fingerprint("flux capacitor misaligned"),
        fingerprint("flux capacitor overflown"),
        fingerprint("flux capacitor misaligned", type="flux_error"),
    ]

    assert len(set(faults)) == 3
    assert all(len(one) == 12 and int(one, 16) >= 0 for one in faults)


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    assert fingerprint("flux capacitor misaligned") == "643d0ea3c215"


def test_what_is_known_has_no_fingerprint() -> None:
    assert classify(status=500, body=b"").fingerprint is None


def test_a_message_does_not_quote_a_key() -> None:
    body = openai("invalid_api_key", "Incorrect API key provided: sk-proj-0123456789abcdefGHIJ. Find yours at …")

    assert classify(status=401, body=body).message == "Incorrect API key provided: [key]. Find yours at …"
    assert "0123456789" not in fault_named(K.UNREACHABLE, "no https://me:0123456789@proxy.example:8080").message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "code", "message", "msg", "type", "detail", "metadata", "raw", "errorArgs", "status"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)
STATUS = st.none() | st.integers(100, 599)


@settings(max_examples=400)
@given(status=STATUS, body=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_body_raises_and_every_message_is_one_bounded_line(status: int | None, body: bytes) -> None:
    fault = classify(status=status, body=body, retry_after=None, now=NOW)

    assert len(fault.message) <= MAX_MESSAGE_CHARS
    assert len(fault.message.splitlines()) <= 1
    fault.message.encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 200_000, id="deep lists"),
        pytest.param(b'{"error":' * 50_000, id="deep objects"),
        pytest.param(b'{"error":{"message":"' + b"x" * 3_000_000 + b'"}}', id="3 MB of message"),
        pytest.param(b"<html>" + b"<" * 1_000_000, id="1 MB of angle brackets"),
        pytest.param(b"[1302][" * 100_000, id="brackets without end"),
        pytest.param(b'"code":' * 100_000, id="codes without end"),
        pytest.param(b"model " * 100_000, id="a model and no more"),
        pytest.param(b"\xff\xfe" * 100_000, id="no UTF-8"),
        pytest.param(b'{"error":{"code":' + b"9" * 5000 + b"}}", id="a number of 5000 digits"),
        pytest.param(b'{"error":{"code":1e999,"message":"\\ud800"}}', id="what JSON forbids"),
        pytest.param(b"\x00" * 1000, id="zeros"),
        pytest.param(b"reasoning thinking effort 'none' invalid " * 3_000, id="thoughts without end"),
        pytest.param(b"tool function name tools " * 5_000, id="names without end"),
        pytest.param(b"cache_control image signature encrypted_content " * 3_000, id="parts without end"),
        pytest.param(b"max_tokens 9,999 tokens > (1 of text input 1 ( 1 > 1 - " * 3_000, id="numbers without end"),
        pytest.param(b"1,111" * 30_000, id="digits without end"),
        pytest.param(b"sk-" * 60_000, id="the beginnings of keys"),
    ],
)
@pytest.mark.timeout(5)
def test_a_hostile_body_is_named_in_bounded_time(body: bytes) -> None:
    for status in (None, 400, 429, 500):
        fault = classify(status=status, body=body)

        assert len(fault.message) <= MAX_MESSAGE_CHARS


def test_a_summary_is_one_line_with_the_code() -> None:
    fault = classify(status=429, body=openai("1302", "Rate limit reached\nfor requests"))

    assert fault.summary == "concurrency (1302): Rate limit reached for requests"
    assert classify(status=502, body=b"").summary == "server_error (502): HTTP 502 without a message"
