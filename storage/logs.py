"""Log events: a fixed name per line of code, values as fields.

The text of a record is `name key=value …`; handlers that write structured lines find the parts in the record's
`event` and `fields`.
"""

from __future__ import annotations

import logging


def log_event(logger: logging.Logger, name: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log one event. Fields that are None are left out; no secrets and no prompts belong in here."""
    if not logger.isEnabledFor(level):
        return
    said = {key: value for key, value in fields.items() if value is not None}
    text = " ".join([name, *(f"{key}={value}" for key, value in said.items())])
    logger.log(level, "%s", text, extra={"event": name, "fields": said}, stacklevel=2)
