"""Where log events go: one line each to stderr, which is the process's file in `logs/`. No key gets there."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from ..protocol.redaction import redact


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info covey.actors.broker lease_lost call=… pid=…`, one line per event."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = record.getMessage().replace("\n", "\\n")
        line = f"{stamp} {record.levelname.lower()} {record.name} {text}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return redact(line)


def log_to_stderr(*, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send every event of this process to stderr; replaces what was set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Libraries that log a line per request would drown the events.
    for noisy in ("httpx", "httpcore", "pykka", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
