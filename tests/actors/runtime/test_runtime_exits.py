"""Exit reasons: text that outlives the actor."""

from __future__ import annotations

import gc
import weakref

import msgspec
import pytest

from covey.actors.runtime.exits import (
    TEXT_LIMIT,
    TRACE_LIMIT,
    Crashed,
    ExitReason,
    Killed,
    Lost,
    Normal,
    Shutdown,
    StartFailed,
    StartPhase,
    crashed,
    describe,
)

REASONS: list[ExitReason] = [
    Normal(),
    Shutdown(),
    Killed(),
    Lost(),
    Crashed(kind="ValueError", message="no", during="Goal", trace=""),
    StartFailed(phase=StartPhase.INIT, kind="ValueError", message="no"),
]


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: type(reason).__name__)
def test_a_reason_is_described_and_survives_the_wire(reason: ExitReason) -> None:
    assert describe(reason)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(reason), type=ExitReason) == reason


def test_a_crash_keeps_text_within_its_bounds_and_no_frames() -> None:
    class State:
        pass

    def handler(state: State) -> None:
        raise ValueError("x" * 1_000_000)

    state = State()
    alive = weakref.ref(state)
    try:
        handler(state)
    except ValueError as error:
        reason = crashed(error, "Goal")
    del state
    gc.collect()

    assert alive() is None
    assert (reason.kind, len(reason.message), len(reason.trace)) == ("ValueError", TEXT_LIMIT, TRACE_LIMIT)


def test_an_error_that_cannot_be_printed_is_no_second_crash() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    assert crashed(Rude(), "Goal").message == "<unprintable: ZeroDivisionError>"
