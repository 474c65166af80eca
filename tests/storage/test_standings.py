"""What is kept of a budget: moments over a reboot, and what is worth a record."""

from __future__ import annotations

import msgspec
import pytest

from covey.protocol.ids import BudgetKey
from covey.protocol.messages.broker import BudgetState, QuotaWindow
from covey.storage.standings import HoldKept, Moment, ParkKept, Standing

NOW_MS = 1_800_000_000_000
FRESH = Standing(budget=BudgetKey("zai:1"), provider="zai", boot="a")
MOMENT = Moment(boottime=5000.0, wall_ms=NOW_MS, span_s=3600.0)


@pytest.mark.parametrize(
    ("is_same_boot", "wall_ms", "at"),
    [
        pytest.param(True, NOW_MS - 60_000, 5000.0, id="one boot: the boottime"),
        pytest.param(True, NOW_MS + 86_400_000, 5000.0, id="one boot: whatever the wall clock says"),
        pytest.param(False, NOW_MS - 60_000, 160.0, id="a reboot: what is left by the wall clock"),
        pytest.param(False, NOW_MS + 60_000, 40.0, id="a reboot after the end"),
        pytest.param(False, 0, 3700.0, id="a reboot with a clock that lost its battery: no longer than it was"),
    ],
)
def test_a_moment_after(is_same_boot: bool, wall_ms: int, at: float) -> None:
    assert MOMENT.after(is_same_boot=is_same_boot, now=100.0, wall_ms=wall_ms) == at


@pytest.mark.parametrize(
    ("change", "is_news"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"quota_seen_ms": NOW_MS}, False, id="the same quota, read again"),
        pytest.param({"lock": "1313"}, True, id="a lock"),
        pytest.param({"learned": 2.0}, True, id="a learned limit"),
        pytest.param({"quota": (QuotaWindow(name="5 h", used_percent=3.0),)}, True, id="another quota"),
        pytest.param({"boot": "b"}, True, id="another boot"),
    ],
)
def test_what_is_worth_a_record(change: dict[str, object], is_news: bool) -> None:
    assert msgspec.structs.replace(FRESH, **change).is_news_after(FRESH) is is_news


def test_of_a_budget_that_nothing_happened_to_there_is_no_news() -> None:
    assert not FRESH.is_news_after(None)
    assert msgspec.structs.replace(FRESH, lock="1313").is_news_after(None)


def test_a_standing_survives_the_file() -> None:
    full = Standing(
        budget=BudgetKey("zai:1"),
        provider="zai",
        boot="a",
        lock="1313: closed",
        parks=(ParkKept(window="18000 s", until=MOMENT, rank=1, reason="1308"),),
        hold=HoldKept(state=BudgetState.OVERLOADED, until=MOMENT, began=MOMENT, step=3, said="busy", mark="1305"),
        learned=3.0,
        refused_at=4,
        relapses=1,
        release_lag_ms=250.0,
        quota=(QuotaWindow(name="5 h", used_percent=100.0),),
        quota_seen_ms=NOW_MS,
    )

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(full), type=Standing) == full
