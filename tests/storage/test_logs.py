"""Log events."""

from __future__ import annotations

import logging

import pytest

from covey.storage.logs import log_event


def test_an_event_has_a_name_and_fields_in_text_and_in_the_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_event(logging.getLogger("covey.some"), "child_restarted", child="w1", attempt=2, agent=None)

    (record,) = caplog.records
    assert record.getMessage() == "child_restarted child=w1 attempt=2"
    assert record.__dict__["event"] == "child_restarted"
    assert record.__dict__["fields"] == {"child": "w1", "attempt": 2}
    assert record.funcName == "test_an_event_has_a_name_and_fields_in_text_and_in_the_record"


def test_below_the_level_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_event(logging.getLogger("covey.some"), "quiet")

    assert caplog.records == []
