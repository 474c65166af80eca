"""The storm's chart: what is drawn from moments, in characters and as a file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from covey.bench.provider_tally import AccountTally
from covey.bench.storm_chart import bar, counts, lines, save
from covey.bench.storm_client import Outcome, pause_s
from covey.bench.storm_run import Side, Storm
from covey.protocol.errors import UsageError


def side(name: str, *, wall_s: float, refused_at: tuple[float, ...] = ()) -> Side:
    tally = AccountTally(
        requests=2,
        answered=2,
        aborted=0,
        in_flight=0,
        peak_in_flight=1,
        refused={"1302": len(refused_at)},
        tokens_in=10,
        tokens_out=2,
        tokens_refused=5 * len(refused_at),
        peak_per_s=2,
        locked=False,
        models={},
    )
    outcomes = (
        Outcome(ended=1.0, attempts=1, is_answered=True),
        Outcome(ended=2.0, attempts=6, is_answered=False),
    )
    return Side(name=name, wall_s=wall_s, outcomes=outcomes, tally=tally, refused_at=refused_at, answered_at=(0.5, 1.0))


def storm() -> Storm:
    return Storm(
        alone=side("alone", wall_s=10.0, refused_at=(0.1, 0.2, 9.0)),
        covey=side("covey", wall_s=5.0),
        strangers_cpus=0.0,
    )


def test_moments_are_counted_by_column_and_what_is_late_counts_in_the_last() -> None:
    assert counts([0.0, 0.9, 1.0, 3.9, 7.0], columns=4, span_s=4.0) == [2, 1, 0, 2]


def test_whatever_happened_at_all_is_seen_and_the_most_is_a_full_block() -> None:
    assert bar([0, 1, 50, 100], top=100) == " ▁▄█"


def test_a_bar_of_nothing_is_empty() -> None:
    assert bar([0, 0], top=0) == "  "


def test_both_sides_have_the_same_axes_and_fit_a_terminal() -> None:
    drawn = lines(storm())

    bars = [line for line in drawn if "│" in line]
    assert len(bars) == 4
    assert len({len(line) for line in bars}) == 1
    assert max(map(len, drawn)) <= 80
    assert drawn[-1].endswith("10 s")


def test_a_side_counts_its_calls_and_the_attempts_beyond_the_first() -> None:
    one = side("alone", wall_s=10.0, refused_at=(1.0,))

    assert (one.answered, one.failed, one.refusals, one.tokens_in_vain) == (1, 1, 1, 5)
    assert one.retries_per_min == 30.0


@pytest.mark.parametrize(
    ("refusals", "chance", "expected"),
    [
        pytest.param(1, 0.0, 0.5, id="first"),
        pytest.param(3, 0.0, 2.0, id="doubled"),
        pytest.param(9, 0.0, 8.0, id="no longer than the longest"),
        pytest.param(1, 1.0, 0.375, id="shortened by a quarter at most"),
    ],
)
def test_a_refused_client_pauses_like_an_sdk(refusals: int, chance: float, expected: float) -> None:
    assert pause_s(refusals, chance) == expected


def test_a_png_is_written_or_matplotlib_asked_for(tmp_path: Path) -> None:
    picture = tmp_path / "storm.png"

    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(UsageError, match=r"covey\[plot\]"):
            save(storm(), picture)
    else:
        save(storm(), picture)
        assert picture.read_bytes().startswith(b"\x89PNG")
