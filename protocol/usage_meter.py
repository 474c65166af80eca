"""What a call used, out of all the reports that its answer carries.

Reports are running totals and never added up: for each side (what went in, what came out) the last report that speaks
of it wins, as a set, so that no number of one report is mixed with a part from another. A stream that begins with a
report has only a seed for what came out there; a report of zeros after another one says nothing.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from .usage import Usage, disjoint
from .usage_shapes import Inflow, Outflow, report_of

RAW_CHARS: Final = 500
_NO_REPORT: Final = frozenset({b"", b"null"})

Side = TypeVar("Side", Inflow, Outflow)


class UsageMeter:
    """Takes the reports of one answer in the order they came. Owned by who reads the answer; never raises."""

    def __init__(self) -> None:
        self._went_in: tuple[Inflow, str] | None = None
        self._came_out: tuple[Outflow, str] | None = None

    @property
    def usage(self) -> Usage | None:
        """What is known so far; None until both sides are, for half a report is none."""
        if self._went_in is None or self._came_out is None:
            return None
        (inflow, above), (outflow, below) = self._went_in, self._came_out
        usage = disjoint(
            prompt=inflow.prompt,
            completion=outflow.completion,
            cache_read=inflow.cache_read,
            cache_write=inflow.cache_write,
            cache_write_1h=inflow.cache_write_1h,
            reasoning=outflow.reasoning,
        )
        if not (usage.is_adjusted or inflow.is_odd or outflow.is_odd):
            return usage
        return msgspec.structs.replace(usage, is_adjusted=True, raw=" ".join(dict.fromkeys((above, below)))[:RAW_CHARS])

    def take(self, raw: bytes | msgspec.Raw, *, is_opening: bool = False) -> None:
        """Take one report, as JSON; null, nothing, and what is no report change nothing.

        `is_opening` is for the report at the beginning of a stream (`message_start`): what it says of the answer is no
        count, and what it says of the prompt gives way to any other report.
        """
        if bytes(raw) in _NO_REPORT:
            return  # as in nearly every chunk of a stream
        report, text = report_of(raw), _shortened(raw)
        if report.went_in is not None and not (is_opening and _is_known(self._went_in)):
            self._went_in = _later(self._went_in, (report.went_in, text))
        if report.came_out is not None and not is_opening:
            self._came_out = _later(self._came_out, (report.came_out, text))


def usage_of(raw: bytes | msgspec.Raw) -> Usage | None:
    """Read one report by itself; None if it does not say what went in and what came out."""
    meter = UsageMeter()
    meter.take(raw)
    return meter.usage


def _later(known: tuple[Side, str] | None, new: tuple[Side, str]) -> tuple[Side, str]:
    if known is None:
        return new
    before, after = known[0], new[0]
    if _is_zero(after) and not _is_zero(before):
        return known
    # The same count without its parts is the same report in fewer words.
    return known if before.has_parts and not after.has_parts and before.named == after.named else new


def _is_known(side: tuple[Side, str] | None) -> bool:
    return side is not None and not _is_zero(side[0])


def _is_zero(side: Inflow | Outflow) -> bool:
    return (side.prompt if isinstance(side, Inflow) else side.completion) == 0


def _shortened(raw: bytes | msgspec.Raw) -> str:
    return bytes(raw)[:RAW_CHARS].decode("utf-8", "replace")
