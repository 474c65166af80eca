"""What a worker lends to all its agents."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..protocol.ids import BudgetKey
from ..protocol.settings import Settings
from .calls.call_request import DEFAULT_CLOCKS, Clocks
from .calls.patience import DEFAULT_PATIENCE, Patience
from .delegation import AT_ONCE
from .ports import Children, Ledger, Slots

OnQuotaWanted = Callable[[BudgetKey, str, str | None], None]
"""Takes a budget whose quota the broker wishes for, its base URL and its key; must not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The ports, the configuration and the patience that agents of one process share."""

    slots: Slots
    ledger: Ledger
    children: Children
    settings: Settings
    environment: Mapping[str, str]
    """Where keys are looked up; commands of agents get it without secrets."""
    clocks: Clocks = DEFAULT_CLOCKS
    patience: Patience = DEFAULT_PATIENCE
    chance: Callable[[], float] = random.random
    children_at_once: int = AT_ONCE
    on_quota_wanted: OnQuotaWanted = lambda budget, base_url, api_key: None
