"""Names of the things that are talked about: one type per kind, so that they cannot be mixed up.

All are opaque, printable ASCII without spaces. Ids are chosen by whoever asks first, never by the receiver,
so that a repeated request can be recognised.
"""

from typing import NewType

AgentId = NewType("AgentId", str)
"""One agent, over all its restarts: `ag_` and 12 hex digits."""

CallId = NewType("CallId", str)
"""One attempt at a provider, and the slot it holds: `call_` and 16 hex digits. A retry is another call."""

SessionId = NewType("SessionId", str)
"""One conversation and its transcript in state.db: `ses_` and 12 hex digits."""

Incarnation = NewType("Incarnation", str)
"""One life of one process: unique over all restarts and reboots."""

BudgetKey = NewType("BudgetKey", str)
"""One provider account: host family and credential fingerprint, `zai:1f2e3d4c5b6a`."""

SwarmId = NewType("SwarmId", str)
"""One swarm: `swarm_` and 12 hex digits."""
