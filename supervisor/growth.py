"""Growth: what a worker uses against what it may, as a pure function of what was known, a sample and the limits.

Over a soft limit a worker is *full*: it gets no new agents, until it is well below again, so that one near the bound
does not flap. Over a hard one it is *over*, and stays so for the rest of its life: it is being replaced.
"""

from __future__ import annotations

import msgspec

from ..protocol.settings import LimitSettings
from .exits import OverLimit

RELIEF = 0.9
"""A worker that was full takes agents again at this share of the limit."""

FILES_SOFT, FILES_HARD = 0.8, 0.95
"""Shares of the kernel's own limit on open files: above that, nothing of ours would ever be reached."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What a process uses; None is what could not be read, and nothing follows from it."""

    rss_mb: float | None = None
    fds: int | None = None
    threads: int | None = None


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one life of a worker."""

    full: tuple[OverLimit, ...] = ()
    """The soft limits it is over, at most one for each kind."""
    over: OverLimit | None = None
    """The first hard limit it was found over."""


def judge(before: Growth, sample: Sample, limits: LimitSettings) -> Growth:
    """What is known after another sample of the same life."""
    if before.over is not None:
        return before
    kinds = (
        ("rss_mb", sample.rss_mb, limits.rss_mb_soft, limits.rss_mb_hard),
        ("fds", sample.fds, limits.fds_soft, limits.fds_hard),
        ("threads", sample.threads, limits.threads_soft, limits.threads_hard),
    )
    was = {found.what: found for found in before.full}
    full = [_soft(what, value, soft, was.get(what)) for what, value, soft, _ in kinds]
    over = [_above(what, value, hard) for what, value, _, hard in kinds]
    return Growth(
        full=tuple(found for found in full if found is not None),
        over=next((found for found in over if found is not None), None),
    )


def bounded(limits: LimitSettings, open_files: int) -> LimitSettings:
    """The same limits, those on open files below the `open_files` that the kernel allows a process."""
    if open_files <= 0:
        return limits  # RLIM_INFINITY is -1
    soft, hard = int(open_files * FILES_SOFT), int(open_files * FILES_HARD)
    return msgspec.structs.replace(
        limits,
        fds_soft=min(limits.fds_soft, soft),
        fds_hard=min(limits.fds_hard, hard),
    )


def _soft(what: str, value: float | None, limit: int, before: OverLimit | None) -> OverLimit | None:
    if not limit:
        return None
    if value is None:
        return before
    is_over = value > limit or (before is not None and value > limit * RELIEF)
    return OverLimit(what=what, value=value, limit=limit) if is_over else None


def _above(what: str, value: float | None, limit: int) -> OverLimit | None:
    if not limit or value is None or value <= limit:
        return None
    return OverLimit(what=what, value=value, limit=limit)
