"""A model that is busy: its own calls wait, others go on."""

from __future__ import annotations

import pytest

from covey.actors.limits.busy_models import BusyModels
from covey.protocol.faults import FaultKind, fault_named
from covey.protocol.messages.broker import Outcome

BUSY = Outcome(fault=fault_named(FaultKind.MODEL_BUSY, "This model is busy", code="1312"))


def end(models: BusyModels, outcome: Outcome | None, *, granted_at: float, now: float, model: str = "glm-5.3") -> None:
    models.ended(model, granted_at=granted_at, outcome=outcome, now=now, chance=0.0)


def test_only_the_busy_model_waits_and_each_failure_makes_it_longer() -> None:
    models = BusyModels()
    end(models, BUSY, granted_at=0.0, now=1.0)
    end(models, BUSY, granted_at=0.5, now=2.0)

    assert (models.holds("glm-5.3", 30.9), models.holds("glm-5.3", 31.0), models.holds("glm-4.7", 2.0)) == (
        True,
        False,
        False,
    )
    end(models, BUSY, granted_at=31.0, now=32.0)
    assert models.next_at(32.0) == 92.0


@pytest.mark.parametrize(
    ("outcome", "next_at"),
    [
        pytest.param(Outcome(), None, id="a call that passes"),
        pytest.param(None, 31.0, id="one that nobody knows of"),
        pytest.param(Outcome(fault=fault_named(FaultKind.TIMEOUT, "no")), 31.0, id="another fault"),
    ],
)
def test_what_ends_the_wait(outcome: Outcome | None, next_at: float | None) -> None:
    models = BusyModels()
    end(models, BUSY, granted_at=0.0, now=1.0)

    end(models, outcome, granted_at=0.5, now=2.0)

    assert models.next_at(2.0) == next_at


def test_memory_is_bounded() -> None:
    models = BusyModels()
    for number in range(1000):
        end(models, BUSY, granted_at=0.0, now=1.0, model=f"model {number}")

    assert sum(models.holds(f"model {number}", 2.0) for number in range(1000)) == 64
