"""Lines of a log: one an event, without keys."""

from __future__ import annotations

import io
import logging

from covey.supervisor.logs import LineFormatter


def logged(text: str, crash: Exception | None = None) -> str:
    """What one event becomes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    logger = logging.Logger("covey.test")
    logger.addHandler(handler)
    logger.info(text, exc_info=crash)
    return stream.getvalue()


def test_a_key_in_a_field_is_not_logged() -> None:
    line = logged("call_failed error=Incorrect API key: sk-proj-0123456789abcdefGHIJ model=glm-5.3 pid=7")

    assert line.endswith(" info covey.test call_failed error=Incorrect API key: [key] model=glm-5.3 pid=7\n")


def test_a_key_in_an_exception_is_not_logged() -> None:
    text = logged("crashed", ConnectionError("no https://me:hunter2@proxy.example:8080"))

    assert "ConnectionError: no https://me:[key]@proxy.example:8080" in text


def test_a_line_without_keys_stays_as_it_is() -> None:
    line = logged("lease_lost call=c-1 tokens=4096 path=/run/x/keys/a1b2c3d4e5f6.sock")

    assert line.endswith(" lease_lost call=c-1 tokens=4096 path=/run/x/keys/a1b2c3d4e5f6.sock\n")
