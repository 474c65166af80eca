"""How long a key rests after a fault, and which faults are not the key's."""

from __future__ import annotations

import math

import pytest

from covey.actors.keys.rests import LEAST_MS, MOST_MS, USUAL_MS, longer, rest_for
from covey.protocol.fault_kinds import Fault, FaultAction, FaultKind, FaultScope
from covey.protocol.messages.credentials import Rest

NOW_MS = 1_800_000_000_000


def fault(kind: FaultKind, **more: object) -> Fault:
    said = {"message": "no", "scope": FaultScope.ACCOUNT, "action": FaultAction.ROTATE, **more}
    return Fault(kind=kind, **said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "wait_ms"),
    [
        pytest.param(fault(FaultKind.AUTH), None, id="a refused key is dead"),
        pytest.param(fault(FaultKind.LOCKED), None, id="a locked account is dead"),
        pytest.param(fault(FaultKind.QUOTA), USUAL_MS, id="quota without a time"),
        pytest.param(fault(FaultKind.NO_BALANCE), USUAL_MS, id="no balance"),
        pytest.param(fault(FaultKind.PLAN_EXPIRED), USUAL_MS, id="plan expired"),
        pytest.param(fault(FaultKind.QUOTA, resets_at=NOW_MS / 1000 + 300), 300_000, id="the provider's reset time"),
        pytest.param(fault(FaultKind.QUOTA, retry_after_s=120.0), 120_000, id="its Retry-After"),
        pytest.param(
            fault(FaultKind.QUOTA, resets_at=NOW_MS / 1000 + 300, retry_after_s=9.0), 300_000, id="reset time first"
        ),
        pytest.param(fault(FaultKind.QUOTA, resets_at=NOW_MS / 1000 - 900), LEAST_MS, id="a time that is over"),
        pytest.param(fault(FaultKind.QUOTA, resets_at=1e12), MOST_MS, id="a time in another age"),
        pytest.param(fault(FaultKind.QUOTA, resets_at=math.inf), MOST_MS, id="never"),
        pytest.param(fault(FaultKind.QUOTA, resets_at=math.nan), LEAST_MS, id="no number"),
    ],
)
def test_a_key_rests_as_long_as_its_fault_says(told: Fault, wait_ms: int | None) -> None:
    rest = rest_for(told, now_ms=NOW_MS)

    assert rest is not None
    assert rest.until_ms == (None if wait_ms is None else NOW_MS + wait_ms)


_OF_THE_KEY = {FaultKind.AUTH, FaultKind.LOCKED, FaultKind.QUOTA, FaultKind.NO_BALANCE, FaultKind.PLAN_EXPIRED}


@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind not in _OF_THE_KEY])
def test_no_other_fault_benches_a_key(kind: FaultKind) -> None:
    assert rest_for(fault(kind, resets_at=NOW_MS / 1000 + 60, retry_after_s=60.0), now_ms=NOW_MS) is None


def test_the_reason_does_not_repeat_the_key() -> None:
    rest = rest_for(fault(FaultKind.AUTH, message="sk-12345\n is wrong"), now_ms=NOW_MS, secret="sk-12345")

    assert rest is not None
    assert rest.reason == "auth: [key] is wrong"


def test_of_two_rests_the_longer_one_counts() -> None:
    hour, day, dead = (
        Rest(kind=FaultKind.QUOTA, reason="", since_ms=0, until_ms=until) for until in (3_600, 86_400, None)
    )

    assert [longer(hour, day), longer(day, hour), longer(dead, day), longer(hour, dead)] == [day, day, dead, dead]
    assert (longer(None, hour), longer(hour, None), longer(None, None)) == (hour, hour, None)
