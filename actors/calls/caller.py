"""What the calls of one agent go through: ports, and ears for what happens."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ...protocol.ids import BudgetKey
from ...protocol.messages.fleet import AgentState
from ...protocol.settings import CallSettings, ProviderSettings
from ..http.clients import Clients
from ..ports import Keys, Slots
from .benches import Benches
from .call_request import CallEvent, Record
from .unknowns import Unknowns

USUAL: Final = CallSettings()

OnState = Callable[[AgentState, str], None]
"""Takes `waiting` or `calling` and the name of the provider, in the loop turn in which it becomes so."""

OnQuotaWanted = Callable[[BudgetKey, ProviderSettings, str | None], None]
"""Takes a budget whose quota the broker wishes for, its provider and its key; must not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls. All of it stays the caller's own."""

    slots: Slots
    keys: Keys
    clients: Clients
    benches: Benches
    unknowns: Unknowns = field(default_factory=Unknowns)
    calls: CallSettings = USUAL
    chance: Callable[[], float] = random.random
    record: Record
    may_start: Callable[[], bool] = lambda: True
    """Asked last thing before a request goes out; False counts as a cancel."""
    on_state: OnState = lambda state, provider: None
    on_quota_wanted: OnQuotaWanted = lambda budget, provider, api_key: None
    on_event: Callable[[CallEvent], None] | None = None
    """Shown the answer as it comes. Must not wait; hears nothing of an attempt that is over."""
    on_partial: Callable[[str], None] = lambda text: None
    """Told at a cancel what had come of the answer: a piece, never to be kept as one that was finished."""
