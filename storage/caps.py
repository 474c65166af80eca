"""What is kept about a cap: a record of the lease journal, written whenever a call that spends from it is settled."""

from __future__ import annotations

import msgspec


class CapKept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cap"):
    """A cap as it stands; the latest record of a name is the one that counts. What is reserved is not in it: it follows
    from the leases that are outstanding."""

    name: str
    tokens: int = 0
    cost_usd: float = 0.0
    unknown_calls: int = 0
    """Calls in `tokens` and `cost_usd` with what was expected of them, because nobody knows what they used."""
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    stamp: str = ""
    """The period that this was spent in; another one begins at nothing. Empty where there are no periods."""
