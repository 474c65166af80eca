"""How long a provider may be silent: the clocks of an attempt, and what they are set to. Pure.

Waiting for a slot is no silence of the provider and is in none of them (`Vigil` runs them once the slot is there).

What a clock is set to: healthy providers were seen to say nothing for up to three minutes, and every peer that cut at
45, 90 or 180 seconds killed answers that were then paid for twice. A stream that is dead is found in six minutes at
the latest. Models that think unseen for longer have floors of their own (`model_families`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from ...protocol.model_families import family_floor_s
from ...protocol.settings import CallSettings, Effort, TimeoutSettings

HIGH_EFFORT_FLOOR_S: Final = 300.0
"""No clock of silence is shorter for a model that was asked to think hard."""
WHOLE_ANSWER_FLOOR_S: Final = 600.0
"""Without streaming the head comes when the whole answer is there."""
LOCAL_FLOOR_S: Final = 900.0
"""A server on this machine reads a long prompt for minutes and sends nothing meanwhile; nobody pays for the wait."""


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """How long a provider may be silent, in seconds."""

    connect_s: float = 20.0
    """From the slot to the first byte of the request on a socket: name, connection, proxy, TLS."""
    headers_s: float = 300.0
    """From then to the answer's head."""
    first_byte_s: float = 240.0
    """From the head to the first byte of the body."""
    first_content_s: float = 360.0
    """From the head to the first piece that says something."""
    content_s: float = 360.0
    """Between two pieces that say something; keep-alives say nothing."""
    silence_s: float = 240.0
    """Between two pieces of any kind."""
    total_s: float = 1800.0
    """From the slot to the answer's end."""
    refusal_s: float = 10.0
    """For the body of an error answer."""
    drain_s: float = 0.25
    """For what follows a complete answer, so that the connection can be used again."""

    @property
    def hold_s(self) -> float:
        """How long the slot may be held: longer than any call, so that it never ends under a running one."""
        return self.total_s + self.refusal_s + self.drain_s + 60.0

    def within(self, left_s: float) -> Clocks:
        """The same, but over after `left_s`: what the call has left."""
        return msgspec.structs.replace(self, total_s=max(0.0, min(self.total_s, left_s)))


DEFAULT_CLOCKS: Final = Clocks()


def clocks_for(
    timeouts: TimeoutSettings,
    calls: CallSettings,
    model: str,
    effort: Effort | None = None,
    *,
    is_streamed: bool = True,
    is_local: bool = False,
) -> Clocks:
    """The clocks for one call to `model`. What is configured holds as it is; the rest is no shorter than its floors.

    `is_local`: the provider runs on this machine.
    """
    own = calls.family_floor_seconds
    floor_s = family_floor_s(model, own) if own else _builtin_floor_s(model)
    if effort in (Effort.HIGH, Effort.MAX):
        floor_s = max(floor_s, HIGH_EFFORT_FLOOR_S)
    if is_local:
        floor_s = max(floor_s, LOCAL_FLOOR_S)
    head_floor_s = floor_s if is_streamed else max(floor_s, WHOLE_ANSWER_FLOOR_S)
    usual = DEFAULT_CLOCKS
    return Clocks(
        connect_s=_set(timeouts.connect_seconds, usual.connect_s),
        headers_s=_set(timeouts.headers_seconds, max(usual.headers_s, head_floor_s)),
        first_byte_s=_set(timeouts.first_byte_seconds, max(usual.first_byte_s, floor_s)),
        first_content_s=_set(timeouts.first_content_seconds, max(usual.first_content_s, floor_s)),
        content_s=_set(timeouts.content_seconds, max(usual.content_s, floor_s)),
        silence_s=_set(timeouts.silence_seconds, max(usual.silence_s, floor_s)),
        total_s=calls.total_seconds,
    )


@lru_cache(maxsize=256)  # the table is gone through name by name, for every attempt
def _builtin_floor_s(model: str) -> float:
    return family_floor_s(model, {})


def _set(configured_s: float | None, usual_s: float) -> float:
    return usual_s if configured_s is None else configured_s
