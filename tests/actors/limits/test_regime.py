"""What each answer of a provider does to its budget, row by row."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from covey.actors.limits.outlook import Turned
from covey.actors.limits.pauses import OVERLOAD_TOTAL_S
from covey.actors.limits.regime import Regime
from covey.protocol.faults import Fault, FaultKind, classify, fault_named
from covey.protocol.ids import BudgetKey, CallId
from covey.protocol.messages.broker import BudgetState, Outcome, QuotaWindow, Refusal
from covey.storage.standings import Standing

K = FaultKind
S = BudgetState
WALL_MS = 1_800_000_000_000
HOUR = 3600.0
CROWDED = fault_named(K.CONCURRENCY, "Rate limit reached for requests", code="1302", status=429)
UNWELL = fault_named(K.OVERLOADED, "temporarily overloaded", code="1305", status=429)
LOCKED = fault_named(K.LOCKED, "Fair Usage Policy", code="1313", status=429)


def full(
    seconds: float | None = HOUR, *, window_s: float = 5 * HOUR, code: str = "1308", at_ms: int = WALL_MS
) -> Fault:
    resets_at = None if seconds is None else at_ms / 1000 + seconds
    return fault_named(K.QUOTA, "Usage limit reached", code=code, status=429, resets_at=resets_at, window_s=window_s)


class Desk:
    """A budget's regime with a clock, as the broker uses it. The wall clock starts with `now` at 1000."""

    def __init__(self, limit: int = 4, *, release_lag_ms: float = 0.0) -> None:
        self.regime = Regime(BudgetKey("zai:1"), provider="zai", limit=limit, release_lag_ms=release_lag_ms)
        self.now = 1000.0
        self.stepped_ms = 0
        self.out: dict[CallId, float] = {}
        self._names = count()

    @property
    def wall_ms(self) -> int:
        return WALL_MS + round((self.now - 1000.0) * 1000) + self.stepped_ms

    @property
    def may_go(self) -> bool:
        return self.regime.admits(in_flight=len(self.out), now=self.now)

    def go(self, work: str | None = None) -> CallId:
        assert self.may_go
        call = CallId(f"call_{next(self._names)}")
        self.out[call] = self.now
        self.regime.granted(call, work=work, in_flight=len(self.out), now=self.now)
        return call

    def end(self, call: CallId, fault: Fault | None = None, *, chance: float = 0.5) -> None:
        self.report(call, Outcome(fault=fault), chance=chance)

    def report(self, call: CallId, outcome: Outcome | None, *, chance: float = 0.5) -> None:
        self.regime.ended(
            call, granted_at=self.out.pop(call), outcome=outcome, now=self.now, wall_ms=self.wall_ms, chance=chance
        )

    def refused(self, fault: Fault, *, chance: float = 0.0, work: str | None = None) -> None:
        call = self.go(work)
        self.now += 0.1
        self.end(call, fault, chance=chance)

    def pass_one(self, work: str | None = None) -> None:
        call = self.go(work)
        self.now += 0.1
        self.end(call)

    def fill(self) -> list[CallId]:
        calls = []
        while self.may_go:
            calls.append(self.go())
        return calls

    def limit(self) -> int:
        return self.regime.effective_limit(self.now)

    def turned(self, *, work: str | None = None, wait_s: float | None = None) -> Turned | None:
        return self.regime.turned_away(work=work, wait_s=wait_s, now=self.now, wall_ms=self.wall_ms)

    def sees(self, *windows: QuotaWindow) -> None:
        self.regime.quota_seen(windows, now=self.now, wall_ms=self.wall_ms)

    def next_in(self) -> object:
        at = self.regime.next_at(self.now)
        return None if at is None else pytest.approx(at - self.now)

    def successor(self, *, boot: str = "a", new_boot: str = "a", now: float | None = None, wall_s: float = 0.0) -> Desk:
        """A desk of a new broker, which read what this one had written; `wall_s` passed on the wall clock."""
        standing = self.regime.news(boot)
        assert standing is not None
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(standing), type=Standing)
        desk = Desk(self.regime.view(now=self.now, wall_ms=self.wall_ms).configured)
        wall_ms = self.wall_ms + round(wall_s * 1000)
        desk.now = self.now + wall_s if now is None else now
        desk.stepped_ms = wall_ms - desk.wall_ms
        desk.out = dict(self.out)
        desk.regime.restore(kept, boot=new_boot, outstanding=set(desk.out), now=desk.now, wall_ms=desk.wall_ms)
        return desk


# --- 1302, 1303 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [CROWDED, fault_named(K.RATE, "slow down", code="1303"), fault_named(K.RATE, "HTTP 429", status=429)],
    ids=["1302", "1303", "429 alone"],
)
def test_too_many_calls_halve_the_limit_and_pause_the_account(fault: Fault) -> None:
    desk = Desk(4)
    calls = desk.fill()

    desk.end(calls[3], fault)

    assert (desk.regime.state, desk.limit(), desk.may_go) == (S.PAUSED, 2, False)


def test_a_burst_of_refusals_counts_once() -> None:
    desk = Desk(8)
    calls = desk.fill()
    desk.now += 0.1

    for call in calls[4:]:
        desk.end(call, CROWDED)
        desk.now += 0.1

    assert desk.limit() == 2  # the fifth was refused first
    assert desk.next_in() == pytest.approx(1.0 - 0.4)


def test_the_limit_never_falls_below_one() -> None:
    desk = Desk(4)

    for _ in range(20):
        desk.refused(CROWDED)

        assert desk.limit() == 1


def test_pauses_of_failed_probes_grow_with_full_jitter_up_to_a_minute() -> None:
    bounds = []
    for chance in (0.0, 1.0):
        desk = Desk(4)
        waits = []
        for _ in range(8):
            desk.refused(CROWDED, chance=chance)
            waits.append(round((desk.regime.next_at(desk.now) or desk.now) - desk.now, 3))
            desk.now += waits[-1]
        bounds.append(waits)

    assert bounds == [[0.0] * 8, [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]]


def test_retry_after_is_the_earliest_time_and_clamped() -> None:
    desk, other = Desk(), Desk()

    desk.refused(msgspec.structs.replace(CROWDED, retry_after_s=7.0))
    other.refused(msgspec.structs.replace(CROWDED, retry_after_s=504_641.0))

    assert desk.next_in() == 7.0
    assert other.next_in() == HOUR


def test_a_later_retry_after_of_the_same_burst_prolongs_the_pause() -> None:
    desk = Desk(4)
    first, second = desk.go(), desk.go()
    desk.now += 0.1
    desk.end(first, CROWDED)

    desk.end(second, msgspec.structs.replace(CROWDED, retry_after_s=20.0))

    assert desk.next_in() == 20.0
    assert desk.limit() == 1


def test_a_paused_account_lets_one_call_try_and_no_other_until_it_is_known_how_it_ended() -> None:
    desk = Desk(4)
    calls = desk.fill()
    desk.now += 0.1
    desk.end(calls.pop(), CROWDED)
    for call in calls:
        desk.end(call)
    assert desk.next_in() == 1.0
    desk.now += 1.0

    probe = desk.go()

    desk.now += 1000.0
    assert not desk.may_go
    assert desk.regime.next_at(desk.now) is None
    assert desk.regime.view(now=desk.now, wall_ms=desk.wall_ms).probing == probe
    desk.end(probe)
    assert (desk.regime.state, len(desk.fill())) == (S.OPEN, 2)


def test_a_call_that_was_out_before_the_pause_does_not_end_it() -> None:
    desk = Desk(4)
    first, second = desk.go(), desk.go()
    desk.now += 0.1
    desk.end(second, CROWDED)

    desk.end(first)

    assert desk.regime.state is S.PAUSED


@pytest.mark.parametrize("fault", [None, K.TIMEOUT, K.BAD_REQUEST, K.NO_BALANCE, K.PLAN_EXPIRED, K.UNREACHABLE])
def test_a_probe_that_tells_nothing_gives_its_place_to_another_and_changes_nothing_else(
    fault: FaultKind | None,
) -> None:
    desk = Desk(4)
    desk.refused(CROWDED, chance=1.0)
    desk.now += 2.0
    before = desk.limit()
    probe = desk.go()

    desk.report(probe, None if fault is None else Outcome(fault=fault_named(fault, "no")))

    assert (desk.regime.state, desk.limit(), desk.may_go) == (S.PAUSED, before, True)


def test_the_limit_comes_back_with_clean_calls_more_slowly_where_it_was_refused() -> None:
    desk = Desk(8)
    calls = desk.fill()
    desk.now += 0.1
    desk.end(calls[-1], CROWDED, chance=0.0)
    for call in calls[:-1]:
        desk.end(call)
    desk.pass_one()
    steps: dict[int, int] = {}

    while desk.limit() < 8:
        for call in desk.fill():
            steps[desk.limit()] = steps.get(desk.limit(), 0) + 1
            desk.end(call)
        desk.now += 1.0

    # Level by level about as many as there are slots; the step to the refused eighth takes eight times that.
    steps.pop(8, None)
    assert sorted(steps) == [4, 5, 6, 7]
    assert all(steps[level] < 3 * level for level in (4, 5, 6))
    assert steps[7] >= 40
    for call in desk.fill():
        desk.end(call)
    assert desk.regime.view(now=desk.now, wall_ms=desk.wall_ms).learned is None


def test_a_raised_limit_does_not_lift_what_was_learned_and_a_lowered_one_clamps_it() -> None:
    desk = Desk(8)
    calls = desk.fill()
    desk.now += 0.1
    desk.end(calls[-1], CROWDED, chance=0.0)
    for call in calls[:-1]:
        desk.end(call)
    desk.pass_one()

    desk.regime.configure(limit=20)
    assert desk.limit() == 4
    desk.regime.configure(limit=3)
    assert desk.limit() == 3


def test_a_limit_that_nothing_was_learned_about_follows_the_configuration() -> None:
    desk = Desk(2)

    desk.regime.configure(limit=5, release_lag_ms=300.0)

    assert (desk.limit(), desk.regime.lag_s()) == (5, 0.3)


# --- 1305, 529 -------------------------------------------------------------------------------------------------------


def test_an_overload_rests_the_account_30_60_90_120_seconds_and_leaves_the_limit() -> None:
    desk = Desk(4)
    rests = []

    for _ in range(5):
        desk.refused(UNWELL)
        at = desk.regime.next_at(desk.now)
        assert at is not None
        rests.append(round(at - desk.now, 3))
        desk.now = at

    assert rests == [30.0, 60.0, 90.0, 120.0, 120.0]
    assert (desk.regime.state, desk.limit()) == (S.OVERLOADED, 4)


def test_a_burst_of_overloads_is_one() -> None:
    desk = Desk(4)
    calls = desk.fill()
    desk.now += 0.1

    for call in calls:
        desk.end(call, UNWELL, chance=0.0)

    assert desk.next_in() == 30.0


def test_jitter_is_at_most_a_tenth_and_retry_after_the_earliest_time() -> None:
    desk, other = Desk(), Desk()

    desk.refused(UNWELL, chance=1.0)
    other.refused(msgspec.structs.replace(UNWELL, retry_after_s=45.0))

    assert desk.next_in() == 33.0
    assert other.next_in() == 45.0


def test_after_an_overload_slots_come_back_one_after_another() -> None:
    desk = Desk(4)
    desk.refused(UNWELL)
    desk.now += 30.0
    desk.pass_one()

    seen = []
    for _ in range(5):
        seen.append((len(desk.fill()), desk.next_in()))
        desk.now += 2.0

    assert seen == [(1, 2.0), (1, 2.0), (1, 2.0), (1, None), (0, None)]


def test_a_success_starts_the_table_anew() -> None:
    desk = Desk(4)
    desk.refused(UNWELL)
    desk.now += 30.0
    desk.refused(UNWELL)
    desk.now += 60.0
    desk.pass_one()

    desk.refused(UNWELL)

    assert desk.next_in() == 30.0


def test_an_account_that_stays_overloaded_tells_its_waiters_and_lets_a_later_one_try() -> None:
    desk = Desk(4)
    began = desk.now + 0.1
    told_at = None
    while told_at is None:
        if desk.may_go:
            desk.refused(UNWELL)
        at = desk.regime.next_at(desk.now)
        assert at is not None
        assert not desk.regime.turns_all_away(desk.now)
        desk.now = at
        told_at = at if desk.regime.turns_all_away(at) else None

    turned = desk.turned()

    assert told_at == pytest.approx(began + OVERLOAD_TOTAL_S)
    assert turned is not None
    assert (turned.reason, turned.until_ms is not None, "1305" in turned.detail) == (Refusal.PARKED, True, True)
    at = desk.regime.next_at(desk.now)
    assert at is not None
    desk.now = at
    assert (desk.may_go, desk.turned()) == (True, None)
    desk.pass_one()
    assert not desk.regime.turns_all_away(desk.now)


def test_a_request_refused_while_siblings_pass_is_refused_and_the_account_goes_on() -> None:
    desk = Desk(4)
    desk.refused(UNWELL, work="poison")
    desk.now += 30.0
    assert desk.regime.is_doubtful("poison")
    desk.pass_one("a")
    desk.now += 10.0
    assert desk.turned(work="poison") is None

    desk.refused(UNWELL, work="poison")
    assert desk.regime.state is S.OPEN
    for work in ("b", "c"):
        desk.pass_one(work)
    desk.refused(UNWELL, work="poison")

    turned = desk.turned(work="poison")
    assert turned is not None
    assert turned.reason is Refusal.REQUEST_REFUSED
    assert (desk.regime.state, desk.limit(), desk.turned(work="d")) == (S.OPEN, 4, None)


# --- 1308, 1310, 1316 to 1321 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["1308", "1310", *map(str, range(1316, 1322))])
def test_a_full_window_parks_until_its_reset_then_one_tries_then_slot_by_slot(code: str) -> None:
    desk = Desk(4)
    desk.refused(full(1000.0, code=code, at_ms=WALL_MS + 100))

    assert (desk.regime.state, desk.next_in()) == (S.PARKED, 1000.0)
    desk.now += 999.9
    assert not desk.may_go
    desk.now += 0.1
    assert len(desk.fill()) == 1
    desk.end(next(iter(desk.out)))
    assert (desk.regime.state, len(desk.fill())) == (S.OPEN, 1)
    desk.now += 2.0
    assert len(desk.fill()) == 1


@pytest.mark.parametrize(
    ("fault", "parked_s"),
    [
        pytest.param(full(1000.0), 999.9, id="a stamp"),
        pytest.param(full(9 * HOUR), 5 * HOUR, id="a stamp beyond the window is clamped"),
        pytest.param(full(None), 600.0, id="no end: tried again in a while"),
        pytest.param(full(-60.0), 600.0, id="an end that has passed tells nothing"),
        pytest.param(msgspec.structs.replace(full(None), retry_after_s=997.0), 997.0, id="Retry-After alone"),
        pytest.param(
            msgspec.structs.replace(full(None), retry_after_s=504_641.0), 5 * HOUR, id="a Retry-After beyond the window"
        ),
        pytest.param(
            msgspec.structs.replace(full(997.0 + 8 * HOUR, window_s=31 * 24 * HOUR), retry_after_s=997.0),
            997.0,
            id="a stamp that is off by hours loses against Retry-After",
        ),
        pytest.param(
            msgspec.structs.replace(full(3 * HOUR + 1000), retry_after_s=60.0),
            3 * HOUR + 999.9,
            id="a Retry-After that says when to ask again does not end the window",
        ),
        pytest.param(full(1.0), 5.0, id="an end within two clocks' difference"),
    ],
)
def test_how_long_a_park_is(fault: Fault, parked_s: float) -> None:
    desk = Desk()

    desk.refused(fault)

    assert desk.next_in() == parked_s


def test_better_evidence_shortens_a_park_and_worse_does_not_prolong_it() -> None:
    desk = Desk(4)
    first, second, third = desk.go(), desk.go(), desk.go()
    desk.end(first, full(4 * HOUR))
    assert desk.next_in() == 4 * HOUR

    desk.end(second, msgspec.structs.replace(full(None), retry_after_s=997.0))
    assert desk.next_in() == 997.0
    desk.end(third, full(4 * HOUR))
    assert desk.next_in() == 997.0


def test_the_window_that_ends_last_counts() -> None:
    desk = Desk(4)
    first, second = desk.go(), desk.go()

    desk.end(first, full(30 * HOUR, code="1310", window_s=31 * 24 * HOUR))
    desk.end(second, full(HOUR))

    assert desk.next_in() == 30 * HOUR


def test_a_set_wall_clock_neither_ends_nor_prolongs_a_park() -> None:
    desk = Desk()
    desk.refused(full(1000.0))

    for step_ms in (86_400_000, -86_400_000):
        desk.stepped_ms = step_ms
        assert (desk.may_go, desk.next_in()) == (False, 999.9)
        view = desk.regime.view(now=desk.now, wall_ms=desk.wall_ms)
        assert view.until_ms == desk.wall_ms + 999_900


def test_who_cannot_wait_for_the_end_is_told_when_it_is() -> None:
    desk = Desk()
    desk.refused(full(1000.0))

    turned = desk.turned(wait_s=30.0)

    assert turned is not None
    assert (turned.reason, turned.until_ms) == (Refusal.PARKED, desk.wall_ms + 999_900)
    assert desk.turned(wait_s=2000.0) is None
    assert desk.turned(wait_s=None) is None


# --- the quota, read -------------------------------------------------------------------------------------------------


def window(
    used: float | None, left_s: float | None = None, *, name: str = "TOKENS_LIMIT 5 h", blocks: bool = True
) -> QuotaWindow:
    resets_at_ms = None if left_s is None else WALL_MS + round(left_s * 1000)
    return QuotaWindow(name=name, used_percent=used, resets_at_ms=resets_at_ms, blocks=blocks)


WEEK = "TOKENS_LIMIT 1 week"


@pytest.mark.parametrize(
    ("windows", "parked_s"),
    [
        pytest.param((window(0.0, HOUR), window(100.0, 50 * HOUR, name=WEEK)), 50 * HOUR, id="any full window"),
        pytest.param((window(100.0, HOUR), window(100.0, 50 * HOUR, name=WEEK)), 50 * HOUR, id="the last of two"),
        pytest.param(
            (window(100.0, 2 * HOUR), window(100.0, HOUR, name="CREDIT_LIMIT 5 h")), 2 * HOUR, id="of one length"
        ),
        pytest.param((window(99.0, HOUR),), None, id="nearly full"),
        pytest.param((window(100.0, HOUR, name="TIME_LIMIT 1 month", blocks=False),), None, id="a tools' window"),
        pytest.param((window(None, HOUR),), None, id="a window without numbers"),
        pytest.param((window(100.0),), 600.0, id="full, and nobody says until when"),
        pytest.param((window(100.0, -HOUR),), 600.0, id="full, and its end has passed"),
        pytest.param((), None, id="no window"),
    ],
)
def test_what_a_reading_parks(windows: tuple[QuotaWindow, ...], parked_s: float | None) -> None:
    desk = Desk()

    desk.sees(*windows)

    assert (desk.regime.state is S.PARKED, desk.next_in()) == (parked_s is not None, parked_s)
    view = desk.regime.view(now=desk.now, wall_ms=desk.wall_ms)
    assert (view.quota, view.quota_seen_ms) == (windows, WALL_MS)


def test_a_reading_without_a_full_window_ends_a_park_early_and_slot_by_slot() -> None:
    desk = Desk(4)
    desk.refused(full(4 * HOUR))

    desk.sees(window(3.0, HOUR))

    assert (desk.regime.state, len(desk.fill())) == (S.OPEN, 1)


def test_a_reading_without_numbers_ends_no_park() -> None:
    desk = Desk(4)
    desk.refused(full(4 * HOUR))

    desk.sees(window(None, HOUR))
    desk.sees()

    assert desk.regime.state is S.PARKED


def test_a_reading_corrects_an_error_and_later_errors_do_not_correct_it() -> None:
    desk = Desk(4)
    first, second = desk.go(), desk.go()
    desk.end(first, full(4 * HOUR))

    desk.sees(window(100.0, HOUR))
    desk.end(second, full(4 * HOUR))

    assert desk.next_in() == HOUR


def test_a_full_window_without_end_keeps_the_end_that_an_error_told() -> None:
    desk = Desk(4)
    desk.refused(full(1000.0))

    desk.sees(window(100.0))

    assert desk.next_in() == 999.9


# --- 1313 and the rest -----------------------------------------------------------------------------------------------


def test_a_lock_turns_everybody_away_until_a_person_unlocks_it() -> None:
    desk = Desk(4)
    calls = desk.fill()
    desk.end(calls[0], LOCKED)
    desk.end(calls[1])
    desk.sees(window(0.0))
    desk.now += 1e9

    turned = desk.turned()

    assert turned is not None
    assert (turned.reason, turned.until_ms, "Fair Usage" in turned.detail) == (Refusal.LOCKED, None, True)
    assert (desk.regime.is_locked, desk.may_go, desk.regime.next_at(desk.now)) == (True, False, None)
    assert desk.regime.turns_all_away(desk.now)
    desk.end(calls[2])
    desk.regime.unlock(desk.now)
    desk.end(calls[3], LOCKED)  # it had been sent before
    assert (desk.regime.state, len(desk.fill())) == (S.OPEN, 1)


@pytest.mark.parametrize("fault", [CROWDED, UNWELL, full(4 * HOUR), LOCKED], ids=["1302", "1305", "1308", "1313"])
def test_unlock_ends_every_state(fault: Fault) -> None:
    desk = Desk(4)
    desk.refused(fault, chance=1.0)

    desk.regime.unlock(desk.now)

    assert (desk.regime.state, desk.may_go, desk.turned()) == (S.OPEN, True, None)


def test_what_older_calls_say_after_an_unlock_is_past() -> None:
    desk = Desk(4)
    calls = desk.fill()
    desk.end(calls.pop(), LOCKED)
    desk.regime.unlock(desk.now)

    for call, fault in zip(calls, (full(HOUR), CROWDED, UNWELL), strict=True):
        desk.end(call, fault)

    assert desk.regime.state is S.OPEN


HARMLESS = [kind for kind in K if kind not in (K.CONCURRENCY, K.RATE, K.OVERLOADED, K.QUOTA, K.LOCKED)]


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_is_the_calls_own_affair_is_counted_and_leaves_the_budget(kind: FaultKind) -> None:
    desk = Desk(4)

    desk.refused(fault_named(kind, "no", code="1113"))
    desk.refused(fault_named(kind, "still no", code="1113"))

    assert (desk.regime.state, desk.limit(), desk.may_go) == (S.OPEN, 4, True)
    [counted] = desk.regime.view(now=desk.now, wall_ms=desk.wall_ms).faults
    assert (counted.kind, counted.code, counted.count, counted.message) == (kind.value, "1113", 2, "still no")


def test_the_gravest_state_is_shown_in_words() -> None:
    desk = Desk(4)
    calls = desk.fill()

    def told() -> tuple[BudgetState, str | None]:
        view = desk.regime.view(now=desk.now, wall_ms=desk.wall_ms)
        return view.state, view.state_reason

    assert told() == (S.OPEN, None)
    desk.end(calls[0], CROWDED)
    assert told() == (S.PAUSED, "1302: Rate limit reached for requests; next try in 1 s")
    desk.end(calls[1], UNWELL, chance=0.0)
    assert told() == (S.OVERLOADED, "1305: temporarily overloaded; next try in 30 s")
    desk.end(calls[2], full(None))
    assert told() == (S.PARKED, "1308: Usage limit reached; when it resets is unknown; next try in 10 min")
    desk.end(calls[3], LOCKED)
    assert told() == (
        S.LOCKED,
        "1313: Fair Usage Policy; settle it with the provider, then `covey budget unlock zai:1`",
    )


def test_an_answer_as_it_came_drives_the_budget() -> None:
    text = "Usage limit reached for 5 hour. Your limit will reset at 2027-01-15 17:00:00"
    body = f'{{"error":{{"code":"1308","message":"{text}"}}}}'.encode()
    desk = Desk()

    desk.refused(classify(status=429, body=body, now=WALL_MS / 1000))

    # WALL_MS is 2027-01-15 08:00:00 UTC, so the stamp, in UTC+8, is an hour later.
    assert desk.next_in() == HOUR - 0.1


# --- the release lag -------------------------------------------------------------------------------------------------


class Provider:
    """A provider that goes on counting a call for `lag_s` after its end."""

    def __init__(self, limit: int, lag_s: float) -> None:
        self.limit, self.lag_s = limit, lag_s
        self.counted: list[float] = []

    def refuses(self, in_flight: int, now: float) -> bool:
        return in_flight + sum(now < end + self.lag_s for end in self.counted) > self.limit


def drive(provider: Provider, *, limit: int, calls: int, length_s: float = 1.0) -> tuple[Desk, list[int]]:
    """Keep the budget busy for so many calls, slots lingering as told; also return which of them were refused."""
    desk = Desk(limit)
    lingering: list[float] = []
    ends: dict[CallId, tuple[float, bool]] = {}
    refusals: list[int] = []
    for _ in range(40 * calls):
        if len(provider.counted) + len(refusals) >= calls:
            break
        lingering = [at for at in lingering if at > desk.now]
        while desk.regime.admits(in_flight=len(desk.out) + len(lingering), now=desk.now):
            running = sum(not refused for _, refused in ends.values())
            refused = provider.refuses(running + 1, desk.now)
            call = CallId(f"call_{len(desk.out)}_{desk.now}_{len(provider.counted)}_{len(refusals)}")
            desk.out[call] = desk.now
            desk.regime.granted(call, work=None, in_flight=len(desk.out) + len(lingering), now=desk.now)
            ends[call] = (desk.now + (0.02 if refused else length_s * (1 + 0.1 * (len(ends) % 3))), refused)
            if refused:
                refusals.append(len(provider.counted) + len(refusals))
        times = [at for at, _ in ends.values()] + lingering
        times += [] if (at := desk.regime.next_at(desk.now)) is None else [at]
        desk.now = max(desk.now + 1e-6, min(times))
        for call in [call for call, (at, _) in ends.items() if at <= desk.now]:
            _, refused = ends.pop(call)
            if not refused:
                provider.counted.append(desk.now)
            desk.end(call, CROWDED if refused else None, chance=0.5)
            lingering.append(desk.now + desk.regime.lag_s())
    return desk, refusals


@pytest.mark.parametrize("lag_s", [0.0, 0.15, 0.5, 1.2])
def test_a_lag_is_learned_from_few_refusals_and_the_limit_stays(lag_s: float) -> None:
    desk, refusals = drive(Provider(2, lag_s), limit=2, calls=300)

    assert len(refusals) <= 6
    assert desk.regime.lag_s() >= lag_s
    assert desk.limit() == 2
    assert [one for one in refusals if one >= 100] == []


@pytest.mark.parametrize("bears", [1, 2, 3])
def test_a_limit_that_is_too_high_is_not_taken_for_a_lag(bears: int) -> None:
    desk, refusals = drive(Provider(bears, 0.0), limit=4, calls=300)

    assert desk.regime.lag_s() <= 0.3
    assert desk.limit() in (bears, bears + 1)
    assert len(refusals) <= 12


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_successes_are_no_news_and_a_refusal_is_some_once() -> None:
    desk = Desk(4)
    for _ in range(50):
        desk.pass_one()
    assert desk.regime.news("a") is None

    desk.refused(full(1000.0))

    assert desk.regime.news("a") is not None
    assert desk.regime.news("a") is None


def test_records_stay_rare_while_the_limit_grows_back() -> None:
    desk = Desk(8)
    calls = desk.fill()
    desk.now += 0.1
    desk.end(calls[-1], CROWDED, chance=0.0)
    for call in calls[:-1]:
        desk.end(call)
    desk.pass_one()
    records = 0

    for _ in range(40):
        for call in desk.fill():
            desk.end(call)
            records += desk.regime.news("a") is not None
        desk.now += 1.0

    assert desk.limit() == 8
    assert records <= 8


@pytest.mark.parametrize("fault", [CROWDED, UNWELL, full(1000.0), LOCKED], ids=["1302", "1305", "1308", "1313"])
def test_a_killed_broker_has_a_successor_that_goes_on(fault: Fault) -> None:
    desk = Desk(4)
    desk.refused(fault, chance=1.0)

    heir = desk.successor(wall_s=0.5)

    assert heir.regime.state is desk.regime.state
    assert heir.regime.next_at(heir.now) == desk.regime.next_at(desk.now)
    assert heir.limit() == desk.limit()
    assert not heir.may_go


def test_the_wall_clock_may_be_set_between_two_brokers_of_one_boot() -> None:
    desk = Desk()
    desk.refused(full(1000.0))

    heir = desk.successor(now=desk.now + 1.0, wall_s=86_400.0)

    assert heir.next_in() == 998.9


def test_after_a_reboot_the_wall_clock_says_what_is_left() -> None:
    desk = Desk()
    desk.refused(full(1000.0))

    heir = desk.successor(new_boot="b", now=7.0, wall_s=500.0)

    assert heir.next_in() == pytest.approx(499.9)
    news = heir.regime.news("b")
    assert news is not None
    assert news.boot == "b"


def test_a_lock_survives_a_reboot() -> None:
    desk = Desk()
    desk.refused(LOCKED)

    heir = desk.successor(new_boot="b", now=7.0, wall_s=1e6)

    assert heir.regime.is_locked
    heir.now += 1e6
    assert not heir.may_go


@pytest.mark.parametrize("is_still_out", [True, False])
def test_a_probe_keeps_its_place_over_a_restart_only_while_it_is_out(is_still_out: bool) -> None:
    desk = Desk(4)
    desk.refused(UNWELL)
    desk.now += 30.0
    probe = desk.go()
    if not is_still_out:
        desk.out.clear()

    heir = desk.successor()

    assert heir.may_go is not is_still_out
    if is_still_out:
        heir.end(probe)
        assert heir.regime.state is S.OPEN


@pytest.mark.parametrize(
    ("fault", "left_s"),
    [
        pytest.param(CROWDED, 1.5, id="1302"),
        pytest.param(UNWELL, 32.5, id="1305"),
        pytest.param(msgspec.structs.replace(CROWDED, retry_after_s=40.0), 41.5, id="Retry-After"),
    ],
)
def test_after_a_reboot_a_pause_ends_when_it_would_have(fault: Fault, left_s: float) -> None:
    desk = Desk()
    desk.refused(fault, chance=1.0)

    heir = desk.successor(new_boot="b", now=7.0, wall_s=0.5)

    assert heir.next_in() == left_s


def test_a_prolonged_pause_ends_when_it_would_have_after_a_reboot() -> None:
    desk = Desk()
    first, second = desk.go(), desk.go()
    desk.now += 0.1
    desk.end(first, CROWDED)
    desk.end(second, msgspec.structs.replace(CROWDED, retry_after_s=40.0))

    assert desk.successor(new_boot="b", now=7.0, wall_s=0.5).next_in() == 39.5


def test_after_a_reboot_an_overload_is_as_old_as_it_was() -> None:
    desk = Desk()
    desk.refused(UNWELL)

    heir = desk.successor(new_boot="b", now=7.0, wall_s=OVERLOAD_TOTAL_S + 1)

    assert heir.regime.turns_all_away(heir.now)


def test_a_reading_and_another_configuration_are_news_if_they_change_something() -> None:
    desk = Desk()
    desk.sees(window(3.0))
    assert desk.regime.news("a") is not None
    desk.sees(window(3.0))
    assert desk.regime.news("a") is None


def test_overload_goes_on_where_it_was() -> None:
    desk = Desk(4)
    desk.refused(UNWELL)
    desk.now += 30.0
    desk.refused(UNWELL)

    heir = desk.successor()
    heir.now += 60.0
    heir.refused(UNWELL)

    assert heir.next_in() == 90.0
