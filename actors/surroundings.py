"""What a worker lends to all its agents."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..protocol.settings import Settings
from .calls.benches import Benches
from .calls.caller import OnQuotaWanted
from .calls.unknowns import Unknowns
from .delegation import AT_ONCE
from .http.clients import Clients
from .ports import Children, Keys, Ledger, Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The ports, the configuration and the knowledge of providers that agents of one process share."""

    slots: Slots
    keys: Keys
    clients: Clients
    benches: Benches
    unknowns: Unknowns = field(default_factory=Unknowns)
    ledger: Ledger
    children: Children
    settings: Settings
    environment: Mapping[str, str]
    """Commands of agents get it without secrets."""
    chance: Callable[[], float] = random.random
    children_at_once: int = AT_ONCE
    on_quota_wanted: OnQuotaWanted = lambda budget, provider, api_key: None
