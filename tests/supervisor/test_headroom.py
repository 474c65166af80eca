"""How many agents memory bears: short and enough, with a gap between the two."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.protocol.settings import LimitSettings
from covey.supervisor.headroom import Headroom, Reading, assess

LIMITS = LimitSettings(memory_headroom_mb=1000, memory_pressure_percent=50.0)
NONE = LimitSettings(memory_headroom_mb=0, memory_pressure_percent=0.0)
SHORT = Headroom(is_short=True, room=0)

READINGS = st.builds(
    Reading, available_mb=st.none() | st.floats(0, 3000), pressure_percent=st.none() | st.floats(0, 100)
)


@pytest.mark.parametrize(
    ("before", "reading", "after"),
    [
        pytest.param(Headroom(), Reading(available_mb=999.0), SHORT, id="too little is available"),
        pytest.param(Headroom(), Reading(available_mb=5000.0, pressure_percent=51.0), SHORT, id="pressure is high"),
        pytest.param(Headroom(), Reading(available_mb=1250.0), Headroom(room=250), id="room for what is spare"),
        pytest.param(Headroom(), Reading(available_mb=1000.2), Headroom(room=1), id="room for one at the bound"),
        pytest.param(SHORT, Reading(available_mb=1050.0), SHORT, id="a little more is not enough"),
        pytest.param(SHORT, Reading(available_mb=1150.0), Headroom(room=50), id="clearly more is enough"),
        pytest.param(SHORT, Reading(pressure_percent=45.0), SHORT, id="a little less pressure is not enough"),
        pytest.param(SHORT, Reading(pressure_percent=40.0), Headroom(), id="clearly less pressure is enough"),
        pytest.param(SHORT, Reading(), Headroom(), id="nothing follows from what cannot be read"),
    ],
)
def test_what_follows_from_a_reading(before: Headroom, reading: Reading, after: Headroom) -> None:
    assert assess(before, reading, LIMITS) == after


@given(st.booleans(), READINGS)
def test_without_limits_there_is_always_room(was_short: bool, reading: Reading) -> None:
    before = SHORT if was_short else Headroom()

    assert assess(before, reading, NONE) == Headroom(room=math.inf)


@given(st.lists(READINGS))
def test_there_is_room_exactly_while_memory_is_not_short(readings: list[Reading]) -> None:
    found = Headroom()
    for reading in readings:
        found = assess(found, reading, LIMITS)

        assert found.is_short == (found.room == 0)
        available_mb = reading.available_mb if reading.available_mb is not None else math.inf
        if available_mb < 1000 or (reading.pressure_percent or 0) > 50:
            assert found.is_short
        if available_mb > 1101 and (reading.pressure_percent or 0) < 40:
            assert not found.is_short
