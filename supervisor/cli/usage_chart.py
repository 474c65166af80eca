"""A report of usage as a picture: a bar for each row, in the terminal, or as a PNG with the optional extra `plot`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import UsageError
from ..usage_report import UsageLine, UsageReport
from .usage_words import cost_words, name_of

if TYPE_CHECKING:
    from rich.console import RenderableType

NO_MATPLOTLIB: Final = "a PNG needs matplotlib: pip install 'covey[plot]', or use --plot without a file"
MOST_BARS: Final = 40
COLUMNS: Final = 40
EIGHTHS: Final = " ▏▎▍▌▋▊▉"
KINDS: Final = {
    "from no cache": "input_tokens",
    "from a cache": "cache_read_tokens",
    "into a cache": "cache_write_tokens",
    "output": "output_tokens",
    "reasoning": "reasoning_tokens",
}


def picture(name: str) -> Path:
    """The file to draw into; raises `UsageError` where that cannot be, before anything is read."""
    path = Path(name)
    if path.suffix.lower() != ".png":
        raise UsageError(f"--plot {name} is not a .png file; without a file it is drawn here")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--plot {name}: there is no folder {path.absolute().parent}")
    if find_spec("matplotlib") is None:
        raise UsageError(NO_MATPLOTLIB)
    return path


def bar(value: int, *, top: int, columns: int = COLUMNS) -> str:
    """A bar of at most `columns` characters; whatever is more than 0 is seen, and `top` fills it."""
    if value <= 0 or top <= 0:
        return ""
    eighths = max(1, round(min(value, top) / top * columns * 8))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def bars(found: UsageReport) -> Iterator[RenderableType]:
    """The chart for a terminal: known tokens of each row, longest bar first unless rows are days."""
    from rich.text import Text

    from .output import table

    if not found.lines:
        yield Text("no calls were recorded" + ("" if found.since_ms is None else " in that time"))
        return
    top = max(line.total_tokens for line in found.lines)
    rows = table(found.by.value, "", ">tokens", ">cost")
    for line in shown(found):
        rows.add_row(
            Text(name_of(line, found.by)),
            Text(bar(line.total_tokens, top=top), style="cyan"),
            _tokens(line),
            cost_words(line),
        )
    yield rows
    if len(found.lines) > MOST_BARS:
        yield Text(f"… and {len(found.lines) - MOST_BARS} more rows (without --plot all are listed)")
    total = found.total
    unknown = f" ({total.unknown_calls} of {total.calls} calls unknown)" if total.unknown_calls else ""
    yield Text(f"{total.total_tokens:,} tokens in all{unknown}, cost {cost_words(total) or 'none'}")


def shown(found: UsageReport) -> tuple[UsageLine, ...]:
    """The rows that fit: the last days, or the first of all else."""
    return found.lines[-MOST_BARS:] if found.by.value == "day" else found.lines[:MOST_BARS]


def save(found: UsageReport, path: Path) -> None:
    """Write a PNG; raises `UsageError` where matplotlib is missing or the file cannot be written."""
    try:
        matplotlib: Any = import_module("matplotlib.figure")
    except ImportError:
        raise UsageError(NO_MATPLOTLIB) from None
    lines = shown(found)
    figure = matplotlib.Figure(figsize=(9, 1.5 + 0.3 * max(3, len(lines))), layout="constrained")
    axes = figure.subplots()
    names, done = [name_of(line, found.by) for line in lines], [0] * len(lines)
    for label, field in KINDS.items():
        counts = [getattr(line, field) or 0 for line in lines]
        axes.barh(range(len(lines)), counts, left=done, label=label)
        done = [before + count for before, count in zip(done, counts, strict=True)]
    axes.set_yticks(range(len(lines)), labels=names)
    axes.invert_yaxis()
    axes.set_xlabel("tokens")
    axes.set_title(f"usage by {found.by.value}")
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UsageError(f"--plot {path}: {error.strerror}") from None


def _tokens(line: UsageLine) -> str:
    return f"{line.total_tokens:,}{' + ?' if line.unknown_calls else ''}"
