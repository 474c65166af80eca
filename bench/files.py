"""Open files: a benchmark of a thousand connections needs more than most shells allow."""

from __future__ import annotations

import resource


def raise_file_limit() -> None:
    """Allow this process as many as it may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
