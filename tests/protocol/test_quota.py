"""Z.AI's quota endpoint: where it is, and every shape its answer was seen in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.messages.broker import QuotaWindow
from covey.protocol.quota import MOST_WINDOWS, QuotaUnread, full_windows, quota_url, read_windows, reads_quota

FIVE_HOURS = {"type": "TOKENS_LIMIT", "unit": 3, "number": 5, "percentage": 42, "nextResetTime": 1787112345678}
WEEK = {"type": "CREDIT_LIMIT", "unit": 6, "number": 1, "percentage": 100}
TOOLS = {"type": "TIME_LIMIT", "unit": 5, "number": 1, "percentage": 100, "usage": 4000, "currentValue": 4000}


def windows(answer: Any) -> tuple[QuotaWindow, ...]:
    found = read_windows(json.dumps(answer).encode())
    assert not isinstance(found, QuotaUnread), found
    return found


def window(**entry: Any) -> QuotaWindow:
    (found,) = windows([entry])
    return found


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.z.ai/api/coding/paas/v4", "https://api.z.ai/api/monitor/usage/quota/limit"),
        ("https://api.z.ai/api/anthropic", "https://api.z.ai/api/monitor/usage/quota/limit"),
        ("api.z.ai", "https://api.z.ai/api/monitor/usage/quota/limit"),
        ("https://open.bigmodel.cn/api/paas/v4/", "https://open.bigmodel.cn/api/monitor/usage/quota/limit"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/api/monitor/usage/quota/limit"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/api/monitor/usage/quota/limit"),
        ("https://user:secret@api.z.ai:443/x?y#z", "https://api.z.ai/api/monitor/usage/quota/limit"),
        ("", None),
        (None, None),
    ],
)
def test_the_endpoint_is_on_the_host_of_the_calls(base_url: str | None, url: str | None) -> None:
    assert quota_url(base_url) == url


@pytest.mark.parametrize(
    ("base_url", "does"),
    [
        ("https://api.z.ai/api/coding/paas/v4", True),
        ("https://open.bigmodel.cn/api/anthropic", True),
        ("https://api.z.ai.example.com/api", False),
        ("https://example.com/api.z.ai", False),
        ("http://127.0.0.1:8080/v1", False),
        ("", False),
    ],
)
def test_only_hosts_of_z_ai_are_known_to_have_one(base_url: str, does: bool) -> None:
    assert reads_quota(base_url) is does


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([FIVE_HOURS], id="bare"),
        pytest.param({"limits": [FIVE_HOURS]}, id="limits"),
        pytest.param({"data": [FIVE_HOURS]}, id="data"),
        pytest.param({"code": 200, "msg": "Operation successful", "data": {"limits": [FIVE_HOURS]}}, id="data.limits"),
        pytest.param({"code": "200", "success": True, "data": {"limits": [FIVE_HOURS], "level": "pro"}}, id="level"),
    ],
)
def test_the_list_is_found_in_every_envelope(answer: Any) -> None:
    assert windows(answer) == (
        QuotaWindow(name="TOKENS_LIMIT 5 h", used_percent=42.0, resets_at_ms=1787112345678, blocks=True),
    )


@pytest.mark.parametrize(
    ("entry", "name", "blocks"),
    [
        (FIVE_HOURS, "TOKENS_LIMIT 5 h", True),
        (WEEK, "CREDIT_LIMIT 1 week", True),
        (TOOLS, "TIME_LIMIT 1 month", False),
        ({"type": "TOKENS_LIMIT", "unit": 6, "number": 2}, "TOKENS_LIMIT 2 weeks", True),
        ({"type": "TOKENS_LIMIT", "unit": 9, "number": 2}, "TOKENS_LIMIT 2 × unit 9", True),
        ({"type": "TOKENS_LIMIT"}, "TOKENS_LIMIT", True),
        ({"type": "MOON_LIMIT", "unit": 3, "number": 5, "percentage": 100}, "MOON_LIMIT 5 h", False),
        ({"unit": 3, "number": 5}, "unnamed 5 h", False),
        ({"type": 7}, "unnamed", False),
        ({"type": "A\x1b[31m\nB"}, "A [31m B", False),
    ],
)
def test_a_window_is_named_as_the_provider_does_and_only_known_kinds_block(
    entry: dict[str, Any], name: str, blocks: bool
) -> None:
    found = window(**entry)

    assert (found.name, found.blocks) == (name, blocks)


@pytest.mark.parametrize(
    ("entry", "used"),
    [
        ({"percentage": 12.5}, 12.5),
        ({"percentage": "12"}, 12.0),
        ({"percentage": 0, "currentValue": 5, "remaining": 5}, 0.0),
        ({"percentage": -1}, 0.0),
        ({"percentage": 130}, 130.0),
        ({"currentValue": 1, "remaining": 3}, 25.0),
        ({"currentValue": 1, "usage": 4}, 25.0),
        ({"remaining": 1, "usage": 4}, 75.0),
        ({"percentage": None, "currentValue": None, "remaining": None}, None),
        ({"percentage": True}, None),
        ({"percentage": "many"}, None),
        ({"percentage": 10**400}, None),
        ({"currentValue": 0, "remaining": 0}, None),
        ({}, None),
    ],
)
def test_how_full_it_is_comes_from_the_percentage_or_else_from_counts(entry: Any, used: float | None) -> None:
    assert window(type="TOKENS_LIMIT", **entry).used_percent == used


@pytest.mark.parametrize(
    ("told", "moment"),
    [
        (1787112345678, 1787112345678),
        ("1787112345678", 1787112345678),
        (1787112345, 1787112345000),
        (None, None),
        (0, None),
        (-5, None),
        ("soon", None),
        (10**20, None),
    ],
)
def test_a_reset_that_is_missing_or_no_time_is_unknown(told: Any, moment: int | None) -> None:
    assert window(type="TOKENS_LIMIT", nextResetTime=told).resets_at_ms == moment
    assert window(type="TOKENS_LIMIT").resets_at_ms is None


def test_one_full_window_of_tokens_or_credits_is_enough_and_tools_do_not_count() -> None:
    assert [one.name for one in full_windows(windows([FIVE_HOURS, WEEK, TOOLS]))] == ["CREDIT_LIMIT 1 week"]
    assert full_windows(windows([FIVE_HOURS, TOOLS])) == ()
    assert full_windows(windows([{"type": "TOKENS_LIMIT"}])) == ()


@pytest.mark.parametrize(
    ("body", "status", "problem", "is_key_refused"),
    [
        (b'{"success": false, "code": 401, "msg": "token expired"}', 200, "code 401: token expired", True),
        (b'{"error": {"code": "1002", "message": "invalid"}}', 401, "HTTP 401, code 1002: invalid", True),
        (b'{"code": 500, "msg": "oops", "data": {"limits": []}}', 200, "code 500: oops", False),
        (b'{"code": 404, "msg": "no"}', 404, "HTTP 404: no", False),
        (b"<html>", 200, "the answer is no JSON", False),
        (b"", 403, "HTTP 403: the answer is no JSON", True),
        (b'{"data": {}}', 200, "the answer has no list of limits", False),
        (b'"hello"', 200, "the answer has no list of limits", False),
        (b"[" * 100_000, 200, "the answer is no JSON", False),
    ],
)
def test_what_is_no_list_is_said_with_its_reason(body: bytes, status: int, problem: str, is_key_refused: bool) -> None:
    assert read_windows(body, status=status) == QuotaUnread(problem=problem, is_key_refused=is_key_refused)


def test_entries_that_are_none_are_left_out_and_there_is_an_end() -> None:
    assert windows([1, None, "x", FIVE_HOURS])[0].name == "TOKENS_LIMIT 5 h"
    assert len(windows([FIVE_HOURS] * 1000)) == MOST_WINDOWS


LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["TOKENS_LIMIT", "TIME_LIMIT", "1e999"])
)
KEYS = st.sampled_from(
    [
        "type",
        "unit",
        "number",
        "percentage",
        "nextResetTime",
        "currentValue",
        "remaining",
        "usage",
        "data",
        "limits",
        "code",
        "success",
        "error",
        "msg",
    ]
)
ANSWERS = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6))


@given(ANSWERS, st.sampled_from([200, 401, 500]))
def test_no_answer_raises_and_what_is_read_is_within_bounds(answer: Any, status: int) -> None:
    found = read_windows(json.dumps(answer).encode(), status=status)

    if isinstance(found, QuotaUnread):
        assert found.problem
        return
    for one in found:
        assert one.name.isprintable()
        assert one.used_percent is None or one.used_percent >= 0
        assert one.resets_at_ms is None or one.resets_at_ms > 0


@given(st.binary(max_size=200))
def test_no_bytes_raise(body: bytes) -> None:
    read_windows(body)
