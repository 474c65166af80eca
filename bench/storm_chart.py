"""The storm as a picture: refusals and answers over time, of both sides with the same axes.

In the terminal with block characters; as a PNG with matplotlib, the optional extra `plot`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..protocol.errors import UsageError

if TYPE_CHECKING:
    from .storm_run import Storm

NO_MATPLOTLIB: Final = "a PNG needs matplotlib: pip install 'covey[plot]', or use --plot terminal"
BLOCKS: Final = " ▁▂▃▄▅▆▇█"
COLUMNS: Final = 60
TITLES: Final = {"alone": "each by itself", "covey": "through covey"}


def counts(moments: Sequence[float], *, columns: int, span_s: float) -> list[int]:
    """How many of the moments lie in each of the columns that `span_s` is cut into; later ones count in the last."""
    found = [0] * columns
    for moment in moments:
        found[min(columns - 1, max(0, int(moment / span_s * columns)))] += 1
    return found


def bar(values: Sequence[int], *, top: int) -> str:
    """One character a value; whatever is more than 0 is seen, and `top` is a full block."""
    return "".join(BLOCKS[min(8, math.ceil(8 * value / top))] if top > 0 else " " for value in values)


def lines(storm: Storm) -> list[str]:
    """The chart for a terminal, at most 80 columns wide."""
    sides = (storm.alone, storm.covey)
    span_s = max(side.wall_s for side in sides)
    drawn: list[str] = []
    for title, moments in (
        ("refused", [side.refused_at for side in sides]),
        ("answered", [side.answered_at for side in sides]),
    ):
        rows = [counts(each, columns=COLUMNS, span_s=span_s) for each in moments]
        top = max(1, *map(max, rows))
        drawn.append(f"{title}, up to {top * COLUMNS / span_s:.0f} per second")
        drawn += [f"{TITLES[side.name]:>15} │{bar(row, top=top)}│" for side, row in zip(sides, rows, strict=True)]
    end = f"{span_s:.0f} s"
    drawn.append(" " * 17 + "0 s" + end.rjust(COLUMNS - 3))
    return drawn


def save(storm: Storm, path: Path) -> None:
    """Write a PNG; raises `UsageError` where matplotlib is not installed."""
    try:
        matplotlib: Any = import_module("matplotlib.figure")
    except ImportError:
        raise UsageError(NO_MATPLOTLIB) from None
    sides = (storm.alone, storm.covey)
    span_s = max(side.wall_s for side in sides)
    columns = max(1, math.ceil(span_s))
    figure = matplotlib.Figure(figsize=(8, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for side in sides:
        refused = counts(side.refused_at, columns=columns, span_s=float(columns))
        above.step(range(columns), refused, where="post", label=TITLES[side.name])
        done = sorted(side.answered_at)
        below.plot([0.0, *done], range(len(done) + 1), label=TITLES[side.name])
    above.set_ylabel("refused per second")
    below.set_ylabel("calls answered")
    below.set_xlabel("seconds")
    above.legend()
    figure.savefig(path, dpi=150)
