"""Where a session is in its life, as two tables: one for the side that opens, one for the side that accepts.

    IDLE      nobody has greeted
    GREETING  hello was said, the welcome is awaited (opener)
    OPEN      both may ask and tell
    DRAINING  open, but nothing new is begun; ends once everything asked by either side is answered
    ADRIFT    draining while the connection is away; goes on draining when it is back
    CLOSED    over; what still comes is ignored

A step that is not in the table is refused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class State(Enum):
    """Where a session is in its life."""

    IDLE = auto()
    GREETING = auto()
    OPEN = auto()
    DRAINING = auto()
    ADRIFT = auto()
    CLOSED = auto()


class Step(Enum):
    """What happens to a session."""

    CONNECTED = auto()
    """The opener's transport stands (again)."""
    HELLO = auto()
    WELCOME = auto()
    STRANGER = auto()
    TRAFFIC = auto()
    """A numbered frame, a ping or a pong."""
    LOST = auto()
    """A number was skipped: something on its way to us is gone."""
    BYE = auto()
    DRAIN = auto()
    """We want to leave, but finish first."""
    SETTLED = auto()
    """Nothing is left to finish."""
    CLOSE = auto()
    """We leave now."""


Table = Mapping[tuple[State, Step], State]

_BOTH: Final[Table] = {
    (State.IDLE, Step.DRAIN): State.ADRIFT,
    (State.IDLE, Step.CLOSE): State.CLOSED,
    (State.OPEN, Step.TRAFFIC): State.OPEN,
    (State.OPEN, Step.DRAIN): State.DRAINING,
    (State.OPEN, Step.BYE): State.CLOSED,
    (State.OPEN, Step.CLOSE): State.CLOSED,
    (State.DRAINING, Step.TRAFFIC): State.DRAINING,
    (State.DRAINING, Step.LOST): State.ADRIFT,
    (State.DRAINING, Step.DRAIN): State.DRAINING,
    (State.DRAINING, Step.SETTLED): State.CLOSED,
    (State.DRAINING, Step.BYE): State.CLOSED,
    (State.DRAINING, Step.CLOSE): State.CLOSED,
    (State.ADRIFT, Step.TRAFFIC): State.ADRIFT,
    (State.ADRIFT, Step.DRAIN): State.ADRIFT,
    (State.ADRIFT, Step.SETTLED): State.CLOSED,
    (State.ADRIFT, Step.BYE): State.CLOSED,
    (State.ADRIFT, Step.CLOSE): State.CLOSED,
    (State.CLOSED, Step.TRAFFIC): State.CLOSED,
    (State.CLOSED, Step.BYE): State.CLOSED,
    (State.CLOSED, Step.DRAIN): State.CLOSED,
    (State.CLOSED, Step.CLOSE): State.CLOSED,
}

OPENER: Final[Table] = {
    **_BOTH,
    (State.IDLE, Step.CONNECTED): State.GREETING,
    (State.GREETING, Step.CONNECTED): State.GREETING,
    (State.GREETING, Step.WELCOME): State.OPEN,
    (State.GREETING, Step.STRANGER): State.GREETING,
    (State.GREETING, Step.TRAFFIC): State.GREETING,
    (State.GREETING, Step.DRAIN): State.ADRIFT,
    (State.GREETING, Step.BYE): State.CLOSED,
    (State.GREETING, Step.CLOSE): State.CLOSED,
    (State.OPEN, Step.CONNECTED): State.GREETING,
    (State.OPEN, Step.WELCOME): State.OPEN,
    (State.OPEN, Step.STRANGER): State.GREETING,
    (State.OPEN, Step.LOST): State.GREETING,
    (State.DRAINING, Step.CONNECTED): State.ADRIFT,
    (State.DRAINING, Step.WELCOME): State.DRAINING,
    (State.DRAINING, Step.STRANGER): State.ADRIFT,
    (State.ADRIFT, Step.CONNECTED): State.ADRIFT,
    (State.ADRIFT, Step.WELCOME): State.DRAINING,
    (State.ADRIFT, Step.STRANGER): State.ADRIFT,
    (State.CLOSED, Step.CONNECTED): State.CLOSED,
    (State.CLOSED, Step.WELCOME): State.CLOSED,
    (State.CLOSED, Step.STRANGER): State.CLOSED,
}

ACCEPTOR: Final[Table] = {
    **_BOTH,
    (State.IDLE, Step.HELLO): State.OPEN,
    (State.IDLE, Step.TRAFFIC): State.IDLE,
    (State.IDLE, Step.BYE): State.CLOSED,
    (State.OPEN, Step.HELLO): State.OPEN,
    (State.OPEN, Step.LOST): State.IDLE,
    (State.DRAINING, Step.HELLO): State.DRAINING,
    (State.ADRIFT, Step.HELLO): State.DRAINING,
    (State.CLOSED, Step.HELLO): State.CLOSED,
}
