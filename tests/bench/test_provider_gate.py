"""Who is let in and who is refused, as a pure function of moods, calls and time."""

from __future__ import annotations

import msgspec
import pytest

from covey.bench.provider_gate import Asking, Gate
from covey.bench.provider_moods import Bodies, Death, FairUse, Moods, Overload, Rpm, Window
from covey.bench.provider_options import ProviderOptions

ASKING = Asking(account="a", key="k", model="m")
FULL = Window(percentage=100, resets_in_s=60)


def gate(limit: int = 1, **moods: object) -> Gate:
    wanted = msgspec.structs.replace(Moods(), **moods)
    return Gate(ProviderOptions(limit=limit), wanted, started_unix=1_000_000.0)


def told(gate: Gate, now: float = 0.0, **asking: object) -> str | None:
    refused = gate.refusal(msgspec.structs.replace(ASKING, **asking), now=now)
    return refused and refused.code


@pytest.mark.parametrize(
    ("moods", "asking", "code"),
    [
        pytest.param({}, {}, None, id="healthy"),
        pytest.param({"limit": 0}, {}, "1302", id="no room"),
        pytest.param({"limit": 0, "limit_code": 1303}, {}, "1303", id="another code for no room"),
        pytest.param({"model_limits": {"m": 0}}, {}, "1302", id="no room for the model"),
        pytest.param({"model_limits": {"m": 0}}, {"model": "n"}, None, id="room for another model"),
        pytest.param({"overload": Overload()}, {}, "1305", id="overload"),
        pytest.param({"cursed": ("x y",)}, {"texts": ("a", "b x y z")}, "1305", id="cursed text"),
        pytest.param({"cursed": ("x y",)}, {"texts": ("a x", "y z")}, None, id="half of a cursed text"),
        pytest.param({"windows": (FULL,)}, {}, "1308", id="window is full"),
        pytest.param({"refused_models": {"m": 1311}}, {}, "1311", id="model not in the plan"),
        pytest.param({"plan_expired": True}, {}, "1309", id="plan expired"),
        pytest.param({}, {"plan_url": True}, None, id="plan key on a plan URL"),
        pytest.param({}, {"plan_url": False}, "1113", id="plan key on the other URL"),
        pytest.param({"plan_keys": "^plan-"}, {"plan_url": True}, "1113", id="other key on a plan URL"),
        pytest.param({"plan_keys": "^plan-"}, {"plan_url": False}, None, id="other key on the other URL"),
        pytest.param({"limit": 0, "overload": Overload()}, {}, "1305", id="overload is told before room is looked at"),
        pytest.param({"windows": (FULL,), "overload": Overload()}, {}, "1308", id="quota is told before overload"),
        pytest.param({"windows": (FULL,)}, {"plan_url": False}, "1113", id="the wrong URL is told before quota"),
    ],
)
def test_one_reason_is_told(moods: dict[str, object], asking: dict[str, object], code: str | None) -> None:
    assert told(gate(**moods), **asking) == code


def test_room_is_each_accounts_own() -> None:
    rules = gate(limit=1)
    rules.enter(1, ASKING, now=0.0)

    assert (told(rules), told(rules, account="b")) == ("1302", None)


def test_a_call_counts_until_the_lag_after_its_end_is_over() -> None:
    rules = gate(limit=1, release_lag_ms=300)
    rules.enter(1, ASKING, now=0.0)
    rules.leave(1, now=10.0)

    assert (told(rules, 10.2), told(rules, 10.3)) == ("1302", None)


def test_an_overload_holds_between_its_moments_from_when_it_was_set() -> None:
    rules = gate()
    rules.set_moods(Moods(overload=Overload(from_s=10, to_s=20)), now=100.0)

    assert [told(rules, now) for now in (109.9, 110.0, 119.9, 120.0)] == [None, "1305", "1305", None]


def test_an_overload_of_so_many_answers_ends_with_them_and_another_mood_does_not_renew_it() -> None:
    rules = gate(overload=Overload(answers=2, code=529))
    first = told(rules)
    rules.set_moods(msgspec.structs.replace(rules.moods, language="zh"), now=1.0)

    assert [first, told(rules), told(rules)] == ["529", "529", None]


def test_an_overloaded_provider_can_tell_another_status() -> None:
    refused = gate(overload=Overload(status=529)).refusal(ASKING, now=0.0)

    assert refused is not None
    assert (refused.code, refused.status) == ("1305", 529)


def test_a_request_too_many_in_the_sliding_window_is_refused_until_the_oldest_is_out_of_it() -> None:
    rules = gate(limit=9, rpm=Rpm(requests=2, window_s=10))
    for call, now in enumerate((0.0, 4.0)):
        assert told(rules, now) is None
        rules.enter(call, ASKING, now=now)
        rules.leave(call, now=now)

    assert [told(rules, now) for now in (5.0, 9.9, 10.0)] == ["1302", "1302", None]
    assert told(rules, 5.0, account="b") is None


def test_refusals_within_a_while_lock_the_account_until_it_is_unlocked() -> None:
    rules = gate(fair_use=FairUse(refusals=3, within_s=10))
    for now in (0.0, 1.0, 11.5, 11.6):
        rules.refused("a", now=now)
    before = told(rules, 11.6)
    rules.refused("a", now=11.7)

    assert (before, told(rules, 11.7), told(rules, 1e6), told(rules, 1e6, account="b")) == (None, "1313", "1313", None)
    rules.unlock()
    assert told(rules, 1e6) is None


def test_a_window_fills_up_with_tokens_and_is_empty_after_its_reset() -> None:
    rules = gate(windows=(Window(tokens=100, percentage=50, resets_in_s=60),))
    rules.spend("a", 49, now=1.0)
    before = told(rules, 2.0)
    rules.spend("a", 1, now=3.0)

    assert (before, told(rules, 4.0), told(rules, 4.0, account="b"), told(rules, 60.0)) == (None, "1308", None, None)


def test_headers_are_later_for_every_other_call_in_flight() -> None:
    rules = gate(limit=9, headers_ms_per_call=500)
    delays = []
    for call in range(3):
        rules.enter(call, ASKING, now=0.0)
        delays.append(rules.headers_delay_s(ASKING, now=0.0))

    assert delays == [0.0, 0.5, 1.0]


def test_every_third_body_dies() -> None:
    rules = gate(limit=9, bodies=Bodies(dies=Death.CUT, every=3))
    dying = []
    for call in range(6):
        dying.append(rules.dying_body() is not None)
        rules.enter(call, ASKING, now=0.0)

    assert dying == [False, False, True, False, False, True]
